//! How a node learns that it was removed from its cluster. The members know it by the directory and answer each call of a removed
//! node with that word; the leader calls the node, too. So it learns also when it was dead, or cut off, at that time.

use crate::supervisor::{Departure, Supervisor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The node's own side of its removal. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removal {
    vitals: Supervisor,
    /// The node is leaving by its own wish: the same word is then no news.
    leaves: Arc<AtomicBool>,
}

impl Removal {
    pub(crate) fn new(vitals: Supervisor) -> Self {
        Self { vitals, leaves: Arc::default() }
    }

    /// The node asks to leave, or stays after all.
    pub(crate) fn set_leaves(&self, leaves: bool) {
        self.leaves.store(leaves, Ordering::Release);
    }

    /// A member says that this node was removed: the node ends.
    pub(crate) fn learn(&self, from: impl fmt::Display) {
        if !self.leaves.load(Ordering::Acquire) && self.vitals.depart(Departure::Removed) {
            tracing::error!(told_by = %from, "this node was removed from its cluster: stopping");
        }
    }

    /// The node has left by its own wish: it ends.
    pub(crate) fn leave(&self) {
        self.vitals.depart(Departure::Left);
    }

    /// Another daemon is this node now: this one ends.
    pub(crate) fn supersede(&self) {
        self.vitals.depart(Departure::Superseded);
    }

    /// Whether the node is out of its cluster.
    pub(crate) fn is_out(&self) -> bool {
        self.vitals.departure().is_some()
    }
}
