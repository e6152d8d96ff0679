//! The channel for tasks of each shard, created at its first use. All asynchronous clients and handles of one client
//! share it, and so do blocking calls that wait for an event beyond the client's own channels.

use crate::error::Error;
use crate::error::reason::Reason;
use crate::reactor::reactor::Reactor;
use crate::reactor::reconnect::WaitList;
use crate::session::of_process::PerProcess;
use crate::session::{Inner, Session};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, Mutex, PoisonError};

/// The channel for tasks, on the daemon that runs at present.
#[derive(Default)]
pub(crate) struct TaskChannel {
    /// Set by the first call on a session of this process.
    pub(crate) reactor: ArcSwapOption<Reactor>,
    /// Taken by the thread that creates a new reactor.
    turn: Mutex<()>,
    pub(crate) search: PerProcess<WaitList>,
}

/// The channels for tasks of one client, one for each shard.
pub(crate) struct Tasks(Box<[TaskChannel]>);

impl Tasks {
    pub(crate) fn new(shards: u8) -> Self {
        Self((0..shards.max(1)).map(|_| TaskChannel::default()).collect())
    }

    /// Returns the channel of a shard.
    pub(crate) fn of(&self, inner: &Inner) -> &TaskChannel {
        &self.0[usize::from(inner.plan.shard) % self.0.len()]
    }

    /// Drops the reactors of a parent of this process.
    pub(crate) fn leave_parent(&self) {
        self.0.iter().for_each(TaskChannel::leave_parent);
    }
}

impl TaskChannel {
    /// Drops the reactor of a parent of this process.
    fn leave_parent(&self) {
        if self.reactor.load().as_ref().is_some_and(|reactor| reactor.session.attachment.is_inherited()) {
            self.reactor.store(None);
        }
    }

    /// Returns the reactor of a session of this process, created now if the session is new.
    pub(crate) fn reactor_on(&self, session: &Arc<Session>) -> Result<Arc<Reactor>, Error> {
        let existing = || self.reactor.load_full().filter(|reactor| Arc::ptr_eq(&reactor.session, session));
        if let Some(reactor) = existing() {
            return Ok(reactor);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reactor) = existing() {
            return Ok(reactor);
        }
        let reactor = Arc::new(Reactor::start(Arc::clone(session)).map_err(Reason::Thread)?);
        self.reactor.store(Some(Arc::clone(&reactor)));
        Ok(reactor)
    }
}
