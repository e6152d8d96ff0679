//! Nodes that are being removed, each fenced meanwhile.

use crate::control::fenced_nodes::{FenceGuard, FencedNodes, LEASE};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time from the fence of a node until its lease has surely expired: its own clock may be slower, as `replication`
/// says.
const FENCED_AFTER: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2);
/// A fence without a repeated request ends after this time: the node may go on.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

/// Nodes that are being removed; each is fenced meanwhile. Clones share the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepartingNodes(Arc<Mutex<HashMap<u16, Fence>>>);

#[derive(Debug)]
struct Fence {
    /// Term of the fence: another leader may have granted a lease before this node led again.
    term: u64,
    since: Instant,
    asked: Instant,
    _guard: FenceGuard,
}

impl DepartingNodes {
    /// Returns true if the lease of a node has surely expired. The first call fences the node.
    pub(super) fn has_lease_expired(&self, fenced_nodes: &FencedNodes, node: u16, term: u64, now: Instant) -> bool {
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if fences.get(&node).is_some_and(|fence| fence.term != term) {
            fences.remove(&node);
        }
        if let Some(fence) = fences.get_mut(&node) {
            fence.asked = now;
            return now.duration_since(fence.since) > FENCED_AFTER;
        }
        if let Some(guard) = fenced_nodes.fence(node, || true) {
            fences.insert(node, Fence { term, since: now, asked: now, _guard: guard });
        }
        false
    }

    /// Drops fences of other terms and fences whose request is not repeated.
    pub(in crate::control) fn drop_stale(&self, term: u64, now: Instant) {
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fences.retain(|_, fence| fence.term == term && now.duration_since(fence.asked) < FORGOTTEN_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_bound_to_one_term_and_ends_when_request_is_not_repeated() {
        // If this broke, a leaving node would serve old values, or a node that stays would never serve again.
        let (departing, fenced_nodes) = (DepartingNodes::default(), FencedNodes::default());
        let began = Instant::now();
        let fenced = |after: Duration, term| departing.has_lease_expired(&fenced_nodes, 3, term, began + after);
        let is_fenced = || fenced_nodes.fence(3, || true).is_none();
        assert!(!fenced(Duration::ZERO, 1) && is_fenced());
        assert!(!fenced(LEASE, 1));
        assert!(fenced(FENCED_AFTER * 2, 1));
        assert!(!fenced(FENCED_AFTER * 2, 2), "another leader may have granted a lease in between");
        assert!(!fenced(FENCED_AFTER * 3, 2) && fenced(FENCED_AFTER * 4, 2));
        departing.drop_stale(2, began + FENCED_AFTER * 4 + FORGOTTEN_AFTER / 2);
        assert!(is_fenced());
        departing.drop_stale(2, began + FENCED_AFTER * 4 + FORGOTTEN_AFTER);
        assert!(!is_fenced(), "the request is not repeated");
    }
}
