//! Asynchronous events of queues, found by the address of the library's object, which is all that the event names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi;

/// Queues of this process, by the address of the library's object.
static WATCH_TABLE: Mutex<Option<HashMap<usize, Arc<AtomicU32>>>> = Mutex::new(None);

fn watch_table() -> MutexGuard<'static, Option<HashMap<usize, Arc<AtomicU32>>>> {
    // The map is consistent between any two calls, even after a panic.
    WATCH_TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records an event for the watcher of this object, if there is one.
pub(super) fn record(object: usize, event: i32) {
    if let Some(bits) = watch_table().as_ref().and_then(|map| map.get(&object)) {
        bits.fetch_or(1 << event, Ordering::Release);
    }
}

/// Asynchronous events of one object, which is watched as long as this value lives.
#[derive(Debug)]
pub(crate) struct AsyncErrors {
    object: usize,
    bits: Arc<AtomicU32>,
}

impl AsyncErrors {
    pub(super) fn watch(object: usize) -> Self {
        let bits = Arc::new(AtomicU32::new(0));
        watch_table().get_or_insert_default().insert(object, Arc::clone(&bits));
        Self { object, bits }
    }

    fn has(&self, events: &[i32]) -> bool {
        let bits = self.bits.load(Ordering::Acquire);
        events.iter().any(|event| bits & (1 << event) != 0)
    }

    /// Returns true if no event was recorded.
    pub(crate) fn is_none(&self) -> bool {
        self.bits.load(Ordering::Acquire) == 0
    }

    /// Returns true if the peer violated access rights.
    pub(crate) fn is_peer_violation(&self) -> bool {
        self.has(&[abi::ASYNC_QP_REQUEST, abi::ASYNC_QP_ACCESS])
    }

    /// Returns true if the queue is dead for another reason.
    pub(crate) fn is_fatal(&self) -> bool {
        self.has(&[abi::ASYNC_QP_FATAL, abi::ASYNC_CQ_ERROR])
    }

    /// Returns true if the first bytes arrived before the event that the connection is established.
    pub(crate) fn is_established(&self) -> bool {
        self.has(&[abi::ASYNC_ESTABLISHED])
    }
}

impl Drop for AsyncErrors {
    fn drop(&mut self) {
        if let Some(map) = watch_table().as_mut() {
            map.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_receives_only_its_own_errors() {
        // If this failed, one peer's error would end another peer's connection.
        let (one, other) = (AsyncErrors::watch(0x1000), AsyncErrors::watch(0x2000));
        record(0x1000, abi::ASYNC_QP_ACCESS);
        record(0x3000, abi::ASYNC_QP_FATAL);
        assert!(one.is_peer_violation() && !one.is_fatal());
        assert!(!other.is_peer_violation() && !other.is_fatal());
        drop(one);
        record(0x1000, abi::ASYNC_QP_FATAL);
        let again = AsyncErrors::watch(0x1000);
        assert!(!again.is_fatal(), "a new object at the same address has no events");
    }
}
