//! Many iWARP connections over real sockets, driven by one thread.
//!
//! A poll sends posted work, receives from the few recently active connections without epoll, and sends the answers.
//! It asks epoll about the other connections only now and then, and at once after a sleep. With an admission filter,
//! the thread of the [`acceptor`] handles unauthenticated peers; [`connect`] holds the handshakes, [`poll`] the event
//! loop, [`peer_table`] the slots.

mod acceptor;
mod connect;
mod peer_table;
mod poll;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ddss_core::limits::{HELLO_BYTES_MAX, MESSAGE_BYTES_MAX};
use rustix::event::epoll;

use crate::events::Events;
use crate::fabric::{
    AdmissionFilter, AdmissionToken, AtomicScope, Capabilities, Fabric, FabricError, PeerId, RegionId, Rights, Trust,
    Window,
};
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::connection::Context;
use crate::iwarp::peer::Scratch;
use crate::iwarp::socket;
use crate::limits::{SNAPSHOT_BYTES, WORK_BYTES_MAX};
use crate::memory::{Keys, Registry};
use crate::work::{PostError, PostErrorKind, Work};

use acceptor::Acceptor;
use peer_table::PeerTable;

/// iWARP in user space. The crate documentation has an example.
pub struct Iwarp {
    config: Arc<IwarpConfig>,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    /// Acceptor thread, if there is an admission filter.
    porch: Option<Acceptor>,
    /// End of a pause in accepting, after the system ran out of descriptors.
    listen_again: Option<Instant>,
    memory: Registry,
    keys: Keys,
    peers: PeerTable,
    scratch: Scratch,
    /// Slots with something to send.
    dirty: Vec<u32>,
    /// The dirty slots that the current poll works on.
    dirty_now: Vec<u32>,
    /// Slots that every poll receives from.
    hot: Vec<u32>,
    /// Slots with a deadline.
    timed: Vec<u32>,
    /// Peers that the next poll closes.
    closing: Vec<PeerId>,
    /// Abandoned reads, reported by the next poll.
    early: Vec<(PeerId, u64)>,
    half_open: usize,
    lingering: usize,
    polls: u32,
    /// Bytes moved since the last epoll wait.
    moved: usize,
    /// The next poll waits on epoll and reads the clock.
    look: bool,
    /// The last epoll wait left connection requests unserved.
    crowded: bool,
    /// The last poll sent or received something.
    has_moved: bool,
}

impl Iwarp {
    /// Creates a fabric without peers.
    ///
    /// # Errors
    /// No epoll descriptor is available.
    pub fn new(config: IwarpConfig) -> io::Result<Self> {
        Ok(Self {
            config: Arc::new(config),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners: Vec::new(),
            porch: None,
            listen_again: None,
            memory: Registry::default(),
            keys: Keys::default(),
            peers: PeerTable::default(),
            scratch: Scratch::new(),
            dirty: Vec::new(),
            dirty_now: Vec::new(),
            hot: Vec::new(),
            timed: Vec::new(),
            closing: Vec::new(),
            early: Vec::new(),
            half_open: 0,
            lingering: 0,
            polls: 0,
            moved: 0,
            look: false,
            crowded: false,
            has_moved: false,
        })
    }

    /// Returns the number of mapped regions, including deregistered ones that operations in flight still use.
    #[must_use]
    pub fn regions_mapped(&self) -> usize {
        self.memory.mapped()
    }

    /// Returns the number of open sockets, without listeners.
    #[must_use]
    pub fn sockets_open(&self) -> usize {
        self.peers.len()
    }

    /// Returns the payload bytes received directly into registered memory, copied only by the kernel.
    #[must_use]
    pub fn straight_bytes(&self) -> u64 {
        self.scratch.straight
    }
}

impl Fabric for Iwarp {
    fn capabilities(&self) -> Capabilities {
        let snapshot =
            if self.config.crc { SNAPSHOT_BYTES as u64 } else { crate::iwarp::connection::GATHERED_SNAPSHOT_BYTES };
        Capabilities {
            name: "iwarp",
            work_bytes_max: WORK_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            hello_bytes_max: HELLO_BYTES_MAX,
            reads_outstanding_max: usize::from(self.config.reads_outbound),
            snapshot_bytes: snapshot,
            words_whole: self.config.crc,
            atomics: AtomicScope::Thread,
            reads_abandonable: true,
            reads_overlap: true,
            write_done_is_placed: false,
            refusals_named: true,
            guarded: true,
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, bound) = socket::listen(address)?;
        if let Some(porch) = &self.porch {
            porch.watch(listener)?;
        } else {
            self.watch_listener(&listener)?;
            self.listeners.push(listener);
        }
        Ok(bound)
    }

    fn guard(&mut self, guard: Box<dyn AdmissionFilter>) -> io::Result<()> {
        self.open_porch(guard)
    }

    fn take_pass(&mut self, peer: PeerId) -> Option<AdmissionToken> {
        self.peers.get_mut(peer)?.pass.take()
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        self.start_connect(address, hello)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        self.answer(peer, hello, true)
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        self.answer(peer, reason, false)
    }

    fn close(&mut self, peer: PeerId) {
        if let Some(found) = self.peers.get_mut(peer)
            && !found.closing
        {
            found.closing = true;
            self.closing.push(peer);
        }
    }

    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.memory.register(memory, trust, offset, bytes)
    }

    fn deregister(&mut self, region: RegionId) {
        self.memory.deregister(region);
    }

    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let found = self.peers.get_mut(peer).ok_or(FabricError::UnknownPeer(peer))?;
        found.connection.windows.expose(&self.memory, &mut self.keys, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        if let Some(found) = self.peers.get_mut(peer) {
            found.connection.withdraw(key, &mut self.memory);
        }
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        for (index, work) in work.iter().enumerate() {
            let id = work.peer();
            let Some(peer) = self.peers.get_mut(id).filter(|peer| !peer.closing) else {
                return Err(PostError { index, kind: PostErrorKind::UnknownPeer });
            };
            peer.connection.post(work, &mut self.memory).map_err(|kind| PostError { index, kind })?;
            if !peer.dirty {
                peer.dirty = true;
                self.dirty.push(id.index);
            }
        }
        Ok(())
    }

    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool {
        let Some(found) = self.peers.get_mut(peer) else { return false };
        if !found.connection.abandon(tag, &mut self.memory) {
            return false;
        }
        self.early.push((peer, tag));
        true
    }

    fn poll(&mut self, events: &mut Events) -> usize {
        let before = events.len();
        self.drive(events);
        events.len() - before
    }

    fn has_moved(&self) -> bool {
        self.has_moved
    }

    fn arm(&mut self) -> bool {
        self.prepare_to_sleep()
    }

    fn disarm(&mut self) {
        self.look = true;
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timed = self.timed.iter().filter_map(|slot| self.peers.at(*slot)?.deadline);
        timed.chain(self.listen_again).min()
    }
}

impl Drop for Iwarp {
    fn drop(&mut self) {
        // A waiting peer learns of the end from the end of the stream; unsent bytes are lost.
        let mut events = Events::new();
        for slot in self.peers.slots() {
            if let Some(mut peer) = self.peers.take(slot) {
                let mut cx = Context { memory: &mut self.memory, events: &mut events };
                peer.lose(crate::events::CloseReason::Local, &mut cx);
            }
        }
    }
}
