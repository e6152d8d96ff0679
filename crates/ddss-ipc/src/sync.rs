//! The atomics of this crate, real or modelled, and every ordering of its protocols, by name.
//!
//! Under `--cfg loom` the model checker's atomics replace the processor's. One ordering can be weakened by name
//! (`DDSS_WEAKEN=take`), so that a test can show that each of them is needed.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::cell::UnsafeCell;

/// The named orderings. Everything else in the crate is `Relaxed`.
pub(crate) mod order {
    use super::{Ordering, fence};

    /// A slot's first word, by its writer: the other words are visible no later than the sequence. Pairs with [`take`].
    #[inline(always)]
    pub(crate) fn publish() -> Ordering {
        weaken("publish", Ordering::Release)
    }

    /// A slot's first word, by its reader. Pairs with [`publish`].
    #[inline(always)]
    pub(crate) fn take() -> Ordering {
        weaken("take", Ordering::Acquire)
    }

    /// A pool slot's word, by the thread that acquires it: the writes of the last owner are visible. Pairs with
    /// [`pool_release`].
    #[inline(always)]
    pub(crate) fn pool_acquire() -> Ordering {
        weaken("pool_acquire", Ordering::Acquire)
    }

    /// A pool slot's word, by the thread that releases it. Pairs with [`pool_acquire`].
    #[inline(always)]
    pub(crate) fn pool_release() -> Ordering {
        weaken("pool_release", Ordering::Release)
    }

    /// A combiner's word, by the thread that acquires it: the work of the last holder is visible. Pairs with
    /// [`combiner_release`].
    #[inline(always)]
    pub(crate) fn combiner_acquire() -> Ordering {
        weaken("combiner_acquire", Ordering::Acquire)
    }

    /// A combiner's word, by the holder that has no more work. Pairs with [`combiner_acquire`].
    #[inline(always)]
    pub(crate) fn combiner_release() -> Ordering {
        weaken("combiner_release", Ordering::Release)
    }

    /// A combiner's word, by a thread that leaves requests to the holder: the thread's writes are visible to the
    /// holder. Pairs with [`combiner_collect`].
    #[inline(always)]
    pub(crate) fn combiner_request() -> Ordering {
        weaken("combiner_request", Ordering::AcqRel)
    }

    /// A combiner's word, by the holder that collects requests. Pairs with [`combiner_request`].
    #[inline(always)]
    pub(crate) fn combiner_collect() -> Ordering {
        weaken("combiner_collect", Ordering::Acquire)
    }

    /// A call's state, by the thread that reads it. Pairs with [`call_transition`].
    #[inline(always)]
    pub(crate) fn call_observe() -> Ordering {
        weaken("call_observe", Ordering::Acquire)
    }

    /// A call's state, by the caller that parks: how to wake it is visible. Pairs with [`call_transition`].
    #[inline(always)]
    pub(crate) fn call_park() -> Ordering {
        weaken("call_park", Ordering::Release)
    }

    /// A call's state, by the threads that submit and complete it. The caller's record and the completion are visible
    /// to readers; how to wake the caller is visible to the completing thread. Pairs with [`call_observe`] and with
    /// [`call_park`].
    #[inline(always)]
    pub(crate) fn call_transition() -> Ordering {
        weaken("call_transition", Ordering::AcqRel)
    }

    /// The bits of slots, by the thread that allocates them: it comes after all accesses of earlier owners. Pairs with
    /// [`slot_release`].
    #[inline(always)]
    pub(crate) fn slot_acquire() -> Ordering {
        weaken("slot_acquire", Ordering::Acquire)
    }

    /// The bits of slots, by the thread that frees them. Pairs with [`slot_acquire`].
    #[inline(always)]
    pub(crate) fn slot_release() -> Ordering {
        weaken("slot_release", Ordering::Release)
    }

    /// Fence of the client between the announcement of its sleep and the last poll. Pairs with [`before_wake`].
    #[inline(always)]
    pub(crate) fn before_client_sleep() {
        fence_unless("before_client_sleep");
    }

    /// Fence of the service between the completions of a sweep and the check for sleepers. Pairs with
    /// [`before_client_sleep`].
    #[inline(always)]
    pub(crate) fn before_wake() {
        fence_unless("before_wake");
    }

    /// Fence of the client between a request and the read of the service's sleep id. Pairs with
    /// [`before_service_sleep`].
    #[inline(always)]
    pub(crate) fn before_doorbell() {
        fence_unless("before_doorbell");
    }

    /// Fence of the service between the announcement of its sleep and its last sweep. Pairs with [`before_doorbell`].
    #[inline(always)]
    pub(crate) fn before_service_sleep() {
        fence_unless("before_service_sleep");
    }

    /// Fence of the service between the end of its sleep and the next sweep. A client that still saw the old sleep id,
    /// and had already rung for it, does not ring again, so this sweep must see its request. Pairs with
    /// [`before_doorbell`].
    #[inline(always)]
    pub(crate) fn after_service_sleep() {
        fence_unless("after_service_sleep");
    }

    /// Fence of the service between the announcement of deferred replies and its last read of the client's count. Pairs
    /// with [`after_receive`].
    pub(crate) fn before_deferred_check() {
        fence_unless("before_deferred_check");
    }

    /// Fence of the client between the count of a received message and the check for deferred replies. Pairs with
    /// [`before_deferred_check`].
    pub(crate) fn after_receive() {
        fence_unless("after_receive");
    }

    /// Fence of a channel between its deadline and the check whether the timeout thread sleeps. Pairs with
    /// [`before_timeout_sleep`].
    pub(crate) fn before_block() {
        fence_unless("before_block");
    }

    /// Fence of the timeout thread between the announcement of its sleep and its last check of the deadlines. Pairs
    /// with [`before_block`].
    pub(crate) fn before_timeout_sleep() {
        fence_unless("before_timeout_sleep");
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn weaken(_name: &str, ordering: Ordering) -> Ordering {
        ordering
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn fence_unless(_name: &str) {
        fence(Ordering::SeqCst);
    }

    #[cfg(loom)]
    fn weakened(name: &str) -> bool {
        use std::sync::OnceLock;
        static WEAKENED: OnceLock<String> = OnceLock::new();
        WEAKENED.get_or_init(|| std::env::var("DDSS_WEAKEN").unwrap_or_default()) == name
    }

    #[cfg(loom)]
    fn weaken(name: &str, ordering: Ordering) -> Ordering {
        if weakened(name) { Ordering::Relaxed } else { ordering }
    }

    #[cfg(loom)]
    fn fence_unless(name: &str) {
        if !weakened(name) {
            fence(Ordering::SeqCst);
        }
    }
}
