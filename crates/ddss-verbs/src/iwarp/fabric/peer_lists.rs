//! Lists that a peer is on: those with something to send, with a deadline, in epoll, and lingering.

use std::time::Instant;

use rustix::event::epoll;
use tracing::debug;

use super::Iwarp;
use crate::iwarp::connection::Stage;
use crate::iwarp::peer::{Link, Peer};
use crate::limits::LINGERING_MAX;

impl Iwarp {
    /// Updates the lists after work on a peer, then puts the peer back or removes it.
    pub(super) fn settle(&mut self, mut peer: Box<Peer>) {
        if peer.half_open && peer.connection.stage() == Stage::Ended {
            peer.half_open = false;
            self.half_open -= 1;
        }
        if peer.should_linger() {
            if self.lingering >= LINGERING_MAX {
                peer.link = Link::Dead;
                peer.connection.discard(&mut self.memory);
            } else {
                self.lingering += 1;
                peer.lingers = true;
                peer.link = Link::Lingering;
                self.set_deadline(&mut peer, Some(Instant::now() + self.config.linger_timeout));
                self.mark_dirty(&mut peer);
            }
        }
        if peer.connection.stage() == Stage::Ended && peer.link == Link::Connecting {
            peer.link = Link::Dead;
        }
        if peer.link == Link::Dead {
            self.remove(peer);
            return;
        }
        if peer.connection.is_connected() && peer.link == Link::Up && !peer.blocked && peer.deadline.is_some() {
            self.set_deadline(&mut peer, None);
        }
        if !peer.connection.is_idle() && matches!(peer.link, Link::Up | Link::Lingering) {
            self.mark_dirty(&mut peer);
        } else if peer.watched.contains(epoll::EventFlags::OUT) && peer.link != Link::Connecting {
            self.watch(&mut peer, epoll::EventFlags::IN);
        }
        self.peers.put_back(peer);
    }

    pub(super) fn remove(&mut self, peer: Box<Peer>) {
        let slot = peer.id().index;
        if peer.lingers {
            self.lingering -= 1;
        }
        self.hot.retain(|other| *other != slot);
        self.timed.retain(|other| *other != slot);
        self.dirty.retain(|other| *other != slot);
        self.dirty_now.retain(|other| *other != slot);
        self.peers.release(slot);
    }

    pub(super) fn mark_dirty(&mut self, peer: &mut Peer) {
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.push(peer.id().index);
        }
    }

    pub(super) fn set_deadline(&mut self, peer: &mut Peer, deadline: Option<Instant>) {
        let slot = peer.id().index;
        match (peer.deadline.is_some(), deadline.is_some()) {
            (false, true) => self.timed.push(slot),
            (true, false) => self.timed.retain(|other| *other != slot),
            _ => {}
        }
        peer.deadline = deadline;
    }

    /// Sets the epoll flags of a peer; empty flags remove it from epoll.
    pub(super) fn watch(&self, peer: &mut Peer, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(u64::from(peer.id().index));
        let changed = match (peer.watched.is_empty(), flags.is_empty()) {
            (true, true) => return,
            _ if peer.watched == flags => return,
            (true, false) => {
                if let Err(error) = peer.set_low_water_mark(false) {
                    debug!(peer = %peer.id(), %error, "cannot reset the low-water mark: the first bytes may be noticed late");
                }
                epoll::add(&self.epoll, &peer.socket, data, flags)
            }
            (false, true) => epoll::delete(&self.epoll, &peer.socket),
            (false, false) => epoll::modify(&self.epoll, &peer.socket, data, flags),
        };
        match changed {
            Ok(()) => peer.watched = flags,
            Err(error) => debug!(peer = %peer.id(), %error, "cannot change the epoll flags of a connection"),
        }
    }
}
