//! Time of the last contact with each node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Time of the last contact with each node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastContact(Arc<Mutex<HashMap<u16, Instant>>>);

impl LastContact {
    pub(crate) fn record(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Instant::now());
    }

    pub(crate) fn forget(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    pub(crate) fn time_of(&self, node: u16) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }
}
