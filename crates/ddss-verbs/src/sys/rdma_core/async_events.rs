//! What happened to a queue without its asking: found by the address of the library's object, which is all that the
//! library's event names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi;

/// Queues of this process, by the address of the library's object.
static WATCHED: Mutex<Option<HashMap<usize, Arc<AtomicU32>>>> = Mutex::new(None);

fn watched() -> MutexGuard<'static, Option<HashMap<usize, Arc<AtomicU32>>>> {
    // The map is whole between any two of its calls, whoever panicked.
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes an event for whoever watches this object, if anybody still does.
pub(super) fn note(object: usize, event: i32) {
    if let Some(bits) = watched().as_ref().and_then(|map| map.get(&object)) {
        bits.fetch_or(1 << event, Ordering::Release);
    }
}

/// What happened to one object; it is watched as long as this lives.
#[derive(Debug)]
pub(crate) struct AsyncErrors {
    object: usize,
    bits: Arc<AtomicU32>,
}

impl AsyncErrors {
    pub(super) fn watch(object: usize) -> Self {
        let bits = Arc::new(AtomicU32::new(0));
        watched().get_or_insert_default().insert(object, Arc::clone(&bits));
        Self { object, bits }
    }

    fn has(&self, events: &[i32]) -> bool {
        let bits = self.bits.load(Ordering::Acquire);
        events.iter().any(|event| bits & (1 << event) != 0)
    }

    /// Nothing has happened.
    pub(crate) fn is_none(&self) -> bool {
        self.bits.load(Ordering::Acquire) == 0
    }

    /// The peer asked for what it may not have.
    pub(crate) fn is_peers_fault(&self) -> bool {
        self.has(&[abi::ASYNC_QP_REQUEST, abi::ASYNC_QP_ACCESS])
    }

    /// The queue is dead for another reason.
    pub(crate) fn is_fatal(&self) -> bool {
        self.has(&[abi::ASYNC_QP_FATAL, abi::ASYNC_CQ_ERROR])
    }

    /// The first bytes came before the word that the connection stands.
    pub(crate) fn is_established(&self) -> bool {
        self.has(&[abi::ASYNC_ESTABLISHED])
    }
}

impl Drop for AsyncErrors {
    fn drop(&mut self) {
        if let Some(map) = watched().as_mut() {
            map.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_hears_of_its_own_trouble_only() {
        // If this failed, one peer's mistake would end another peer's connection.
        let (one, other) = (AsyncErrors::watch(0x1000), AsyncErrors::watch(0x2000));
        note(0x1000, abi::ASYNC_QP_ACCESS);
        note(0x3000, abi::ASYNC_QP_FATAL);
        assert!(one.is_peers_fault() && !one.is_fatal());
        assert!(!other.is_peers_fault() && !other.is_fatal());
        drop(one);
        note(0x1000, abi::ASYNC_QP_FATAL);
        let again = AsyncErrors::watch(0x1000);
        assert!(!again.is_fatal(), "an object of the same address is another one");
    }
}
