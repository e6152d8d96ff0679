//! Connection set-up: connect, accept, reject, and the limit on half-open peers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_admission::select_eviction;
use rustix::event::epoll;
use tracing::debug;

use super::Iwarp;
use super::poll::{HALF_OPEN_PER_WAIT, LISTENER};
use crate::events::{CloseReason, Events};
use crate::fabric::FabricError;
use crate::id::PeerId;
use crate::iwarp::connection::{Connection, Context};
use crate::iwarp::peer::{Link, Peer};
use crate::iwarp::socket;
use crate::limits::{HALF_OPEN_MAX, HELLO_BYTES_MAX};
use crate::sealing::Sealing;

/// Pause in accepting when the process has no descriptors left.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);

impl Iwarp {
    pub(super) fn start_connect(
        &mut self,
        address: SocketAddr,
        hello: &[u8],
        is_sealed: bool,
    ) -> Result<PeerId, FabricError> {
        if hello.len() > HELLO_BYTES_MAX {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        let id = self.peers.next().ok_or(FabricError::Full("peer"))?;
        let seed = self.keys.draw()?;
        let socket = socket::connect(address).map_err(|error| FabricError::System("connect a socket", error))?;
        let connection = Connection::connecting(id, address, Arc::clone(&self.config), seed, hello, is_sealed);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        self.add(&socket, id.index, flags).map_err(|error| FabricError::System("add a socket to epoll", error))?;
        let mut peer = Peer::new(socket, connection, Link::Connecting);
        peer.watched = flags;
        self.insert(peer);
        Ok(id)
    }

    pub(super) fn seal_connection(&mut self, id: PeerId, sealing: Sealing) -> Result<(), FabricError> {
        let peer = self.peers.known(id).filter(|peer| !peer.closing).ok_or(FabricError::UnknownPeer(id))?;
        if !peer.connection.seal(sealing, &self.memory) {
            return Err(FabricError::WrongState(id));
        }
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.push(id.index);
        }
        Ok(())
    }

    pub(super) fn answer_request(&mut self, id: PeerId, hello: &[u8], accept: bool) -> Result<(), FabricError> {
        if hello.len() > HELLO_BYTES_MAX {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        let peer = self.peers.known(id).filter(|peer| !peer.closing).ok_or(FabricError::UnknownPeer(id))?;
        if accept && !peer.has_options {
            socket::tune(&peer.socket).map_err(|error| FabricError::System("set socket options", error))?;
        }
        let accepted = match accept.then(|| peer.connection.accept(hello)) {
            Some(Ok(true)) => true,
            Some(Ok(false)) => return Err(FabricError::WrongState(id)),
            Some(Err(fault)) => {
                // No common parameters: the other side is rejected, and the owner receives *closed*.
                debug!(peer = %id, %fault, "rejected a peer without common parameters");
                false
            }
            None => false,
        };
        if !accepted {
            let reason = if accept { &[] } else { hello };
            if !peer.connection.reject(reason) {
                return Err(FabricError::WrongState(id));
            }
            peer.closing = true;
            self.closing.push(id);
        }
        if peer.half_open {
            peer.half_open = false;
            self.half_open -= 1;
        }
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.push(id.index);
        }
        Ok(())
    }

    /// Accepts a few waiting connections of a listener.
    pub(super) fn accept_connections(&mut self, index: usize, events: &mut Events) {
        if self.listen_resume_at.is_some() {
            return;
        }
        for _ in 0..HALF_OPEN_PER_WAIT {
            match socket::accept(&self.listeners[index]) {
                Ok(Some((socket, address))) => {
                    self.has_connect_backlog = true;
                    self.accept_connection(socket, address, events);
                }
                Ok(None) => return,
                Err(error) => {
                    debug!(%error, "cannot accept a connection; accepting pauses");
                    self.pause_listening();
                    return;
                }
            }
        }
    }

    /// Adds a peer that the acceptor admitted.
    pub(super) fn adopt(&mut self, mut peer: Box<Peer>, events: &mut Events) {
        if self.half_open >= HALF_OPEN_MAX {
            self.evict_half_open(events);
        }
        let address = peer.connection.address();
        let Some(id) = self.peers.next() else {
            debug!(%address, "rejected a connection: the peer table is full");
            return;
        };
        let flags = epoll::EventFlags::IN;
        if let Err(error) = self.add(&peer.socket, id.index, flags) {
            debug!(%address, %error, "cannot add a connection to epoll");
            return;
        }
        peer.connection.rename(id);
        peer.half_open = true;
        peer.watched = flags;
        self.half_open += 1;
        self.insert(*peer);
        events.push_admitted(id, address);
    }

    /// Detaches a peer with a pending request, for adoption by another fabric. `None` if it is gone.
    pub(super) fn detach(&mut self, id: PeerId) -> Option<Box<Peer>> {
        let is_waiting = self.peers.known(id).is_some_and(|peer| peer.half_open && !peer.closing);
        let mut peer = is_waiting.then(|| self.peers.take(id.index)).flatten()?;
        self.watch(&mut peer, epoll::EventFlags::empty());
        self.set_deadline(&mut peer, None);
        peer.half_open = false;
        self.half_open -= 1;
        // The adopting fabric has its own list of dirty slots.
        peer.dirty = false;
        self.dirty.retain(|other| *other != id.index);
        self.peers.release(id.index);
        Some(peer)
    }

    fn accept_connection(&mut self, socket: OwnedFd, address: SocketAddr, events: &mut Events) {
        if self.half_open >= HALF_OPEN_MAX {
            self.evict_half_open(events);
        }
        let Some(id) = self.peers.next() else {
            debug!(%address, "rejected a connection: the peer table is full");
            return;
        };
        let Ok(seed) = self.keys.draw() else { return };
        let flags = epoll::EventFlags::IN;
        if let Err(error) = self.add(&socket, id.index, flags) {
            debug!(%address, %error, "cannot add a connection to epoll");
            return;
        }
        let connection = Connection::accepting(id, address, Arc::clone(&self.config), seed);
        let mut peer = Peer::new(socket, connection, Link::Up);
        peer.half_open = true;
        peer.watched = flags;
        self.half_open += 1;
        self.insert(peer);
    }

    /// Evicts one of the peers that wait to be accepted. A new peer is as likely to be legitimate as a waiting one,
    /// and a silent peer must not keep others out.
    fn evict_half_open(&mut self, events: &mut Events) {
        let half_open = |slot: &u32| self.peers.at(*slot).filter(|peer| peer.half_open);
        // Peers with a deadline are listed in order of arrival.
        let waiting = || self.timed.iter().copied().filter(|slot| half_open(slot).is_some());
        let addresses = waiting().filter_map(|slot| Some(self.peers.at(slot)?.connection.address().ip()));
        let Some(slot) = select_eviction(addresses).and_then(|index| waiting().nth(index)) else { return };
        let Some(mut peer) = self.peers.take(slot) else { return };
        debug!(peer = %peer.id(), "evicted a half-open connection: too many wait to be accepted");
        peer.abort(CloseReason::TimedOut, &mut Context { memory: &mut self.memory, events });
        self.settle(peer);
    }

    fn insert(&mut self, mut peer: Peer) {
        let slot = peer.id().index;
        peer.deadline = Some(Instant::now() + self.config.handshake_timeout);
        self.timed.push(slot);
        self.peers.insert(peer.id(), Box::new(peer));
    }

    /// Stops watching the listeners: without free descriptors they stay readable and would keep the thread awake.
    fn pause_listening(&mut self) {
        self.listen_resume_at = Some(Instant::now() + LISTEN_PAUSE);
        for listener in &self.listeners {
            // The listener is registered; if removal failed, the cost would be extra wake-ups.
            let _ = epoll::delete(&self.epoll, listener);
        }
    }

    pub(super) fn resume_listening(&mut self) {
        self.listen_resume_at = None;
        for index in 0..self.listeners.len() {
            let flags = epoll::EventFlags::IN;
            let data = epoll::EventData::new_u64(LISTENER | index as u64);
            if let Err(error) = epoll::add(&self.epoll, &self.listeners[index], data, flags) {
                debug!(%error, "cannot resume listening");
            }
        }
    }

    pub(super) fn watch_listener(&self, listener: &OwnedFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER | self.listeners.len() as u64);
        Ok(epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN)?)
    }

    fn add(&self, socket: impl AsFd, slot: u32, flags: epoll::EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(slot));
        Ok(epoll::add(&self.epoll, socket, data, flags)?)
    }
}
