//! The removed node's side of a removal.
//!
//! The members reply *not a member* to each call of a removed node, and the leader notifies it. So the node also
//! learns it if it was dead or cut off at that time.

use crate::control::rpc::types::Reply;
use crate::supervisor::{Departure, Supervisor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Departure state of this node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removal {
    supervisor: Supervisor,
    /// The node leaves by its own request: the reply *not a member* is then expected.
    is_leaving: Arc<AtomicBool>,
}

impl Removal {
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self { supervisor, is_leaving: Arc::default() }
    }

    /// Sets whether the node is leaving by its own request.
    pub(crate) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
    }

    /// Stops the node, because a member says that it was removed.
    pub(crate) fn learn_removed(&self, from: impl fmt::Display) {
        if !self.is_leaving.load(Ordering::Acquire) && self.supervisor.depart(Departure::Removed) {
            tracing::error!(told_by = %from, "this node was removed from its cluster: stopping");
        }
    }

    /// Stops the node if a reply says that it is no member, or that its cluster is another one now.
    pub(crate) fn learn_from(&self, reply: &Reply, from: impl fmt::Display) {
        match reply {
            Reply::NotMember => self.learn_removed(from),
            Reply::Superseded(why) if self.supervisor.depart(Departure::Superseded) => {
                tracing::error!(why, "the cluster of this node was recovered as another one: stopping");
            }
            _ => {}
        }
    }

    /// Stops the node, because it cannot be this node of this cluster any more.
    pub(crate) fn stop(&self, how: Departure) {
        self.supervisor.depart(how);
    }

    /// Returns true if the node has left its cluster, was removed, or was superseded.
    pub(crate) fn is_out(&self) -> bool {
        self.supervisor.departure().is_some()
    }
}
