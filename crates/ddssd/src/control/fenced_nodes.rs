//! Nodes that get no lease, and proposals in flight: the leader's state about replicated segments.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Duration of a lease, from the time of the request.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// Fenced nodes: nodes about to be declared dead or removed. They get no lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct FencedNodes(Arc<Mutex<HashSet<u16>>>);

/// Keeps a node fenced until it is dropped.
#[derive(Debug)]
pub(crate) struct FenceGuard {
    fenced_nodes: FencedNodes,
    node: u16,
}

impl FencedNodes {
    /// Locks the set: while the guard lives, no node is fenced.
    pub(super) fn nodes(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_fenced(&self, node: u16) -> bool {
        self.nodes().contains(&node)
    }

    /// Fences a node that is still silent. No lease is granted between this check and the fence.
    pub(crate) fn fence(&self, node: u16, is_silent: impl Fn() -> bool) -> Option<FenceGuard> {
        let mut nodes = self.nodes();
        (is_silent() && nodes.insert(node)).then(|| FenceGuard { fenced_nodes: self.clone(), node })
    }
}

impl Drop for FenceGuard {
    fn drop(&mut self) {
        self.fenced_nodes.nodes().remove(&self.node);
    }
}

/// Keys of the proposals in flight: segment, epoch with turn, and kind.
pub(crate) type ProposalsInFlight = Arc<Mutex<HashSet<(u64, u64, u8)>>>;
