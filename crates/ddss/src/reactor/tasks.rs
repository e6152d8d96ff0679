//! The channel for tasks of each shard, created at its first use. All asynchronous clients and handles of one client
//! share it, and so do blocking calls that wait for an event beyond the client's own channels.

use crate::error::Error;
use crate::error::reason::Reason;
use crate::reactor::reactor::Reactor;
use crate::reactor::reconnect::Reconnect;
use crate::session::{Inner, Session};
use arc_swap::{ArcSwap, Guard};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The channel for tasks, on the daemon that runs at present.
pub(crate) struct TaskChannel {
    pub(crate) reactor: ArcSwap<Reactor>,
    /// Taken by the thread that creates a new reactor.
    turn: Mutex<()>,
    pub(crate) search: Arc<Reconnect>,
}

/// The channels for tasks of one client, one for each shard.
pub(crate) struct Tasks {
    shards: Box<[OnceLock<TaskChannel>]>,
    /// Taken by the thread that creates a channel.
    turn: Mutex<()>,
}

impl Tasks {
    pub(crate) fn new(shards: u8) -> Self {
        Self { shards: (0..shards.max(1)).map(|_| OnceLock::new()).collect(), turn: Mutex::new(()) }
    }

    /// Returns the channel of a shard, created now if this is its first use.
    pub(crate) fn of(&self, inner: &Inner) -> Result<&TaskChannel, Error> {
        let place = &self.shards[usize::from(inner.plan.shard) % self.shards.len()];
        if let Some(channel) = place.get() {
            return Ok(channel);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = place.get() {
            return Ok(channel);
        }
        let reactor = ArcSwap::from_pointee(start_reactor(&inner.last_session())?);
        Ok(place.get_or_init(|| TaskChannel { reactor, turn: Mutex::new(()), search: Arc::default() }))
    }

    /// Returns the channel of a shard if it exists.
    pub(crate) fn existing(&self, inner: &Inner) -> Option<&TaskChannel> {
        self.shards[usize::from(inner.plan.shard) % self.shards.len()].get()
    }
}

impl TaskChannel {
    /// Returns the reactor of a session, created now if the session is new.
    pub(crate) fn reactor_on(&self, session: &Arc<Session>) -> Result<Arc<Reactor>, Error> {
        let reactor = self.reactor.load();
        if Arc::ptr_eq(&reactor.session, session) {
            return Ok(Guard::into_inner(reactor));
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let reactor = self.reactor.load_full();
        if Arc::ptr_eq(&reactor.session, session) {
            return Ok(reactor);
        }
        let reactor = Arc::new(start_reactor(session)?);
        self.reactor.store(Arc::clone(&reactor));
        Ok(reactor)
    }
}

fn start_reactor(session: &Arc<Session>) -> Result<Reactor, Error> {
    Reactor::start(Arc::clone(session)).map_err(|error| Reason::Thread(error).into())
}
