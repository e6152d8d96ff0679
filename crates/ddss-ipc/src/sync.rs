//! The atomics of this crate, real or modelled, and every ordering that its protocols rest on, by name.
//!
//! Under `--cfg loom` the model checker's atomics take the place of the processor's, and one of the orderings can be
//! weakened by name (`DDSS_WEAKEN=take`), so that a test can show that each of them is needed.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::cell::UnsafeCell;

/// The orderings that carry a meaning. Everything else in the crate is `Relaxed`.
pub(crate) mod order {
    use super::{Ordering, fence};

    /// A slot's first word, by who fills it: the other words are seen no later than the sequence.
    /// Pairs with [`take`].
    #[inline(always)]
    pub(crate) fn publish() -> Ordering {
        weaken("publish", Ordering::Release)
    }

    /// A slot's first word, by who empties it. Pairs with [`publish`].
    #[inline(always)]
    pub(crate) fn take() -> Ordering {
        weaken("take", Ordering::Acquire)
    }

    /// The word of a place, by who claims it: what its last holder wrote is seen. Pairs with [`give_back`].
    #[inline(always)]
    pub(crate) fn claim() -> Ordering {
        weaken("claim", Ordering::Acquire)
    }

    /// The same word, by who gives the place back. Pairs with [`claim`].
    #[inline(always)]
    pub(crate) fn give_back() -> Ordering {
        weaken("give_back", Ordering::Release)
    }

    /// A desk's word, by who finds nobody there: what was done there is seen. Pairs with [`leave_desk`].
    #[inline(always)]
    pub(crate) fn enter_desk() -> Ordering {
        weaken("enter_desk", Ordering::Acquire)
    }

    /// The same word, by who has nothing left to do. Pairs with [`enter_desk`].
    #[inline(always)]
    pub(crate) fn leave_desk() -> Ordering {
        weaken("leave_desk", Ordering::Release)
    }

    /// The same word, by who finds somebody there: what he wants done is seen. Pairs with [`take_word`].
    #[inline(always)]
    pub(crate) fn leave_word() -> Ordering {
        weaken("leave_word", Ordering::AcqRel)
    }

    /// The same word, by who is there. Pairs with [`leave_word`].
    #[inline(always)]
    pub(crate) fn take_word() -> Ordering {
        weaken("take_word", Ordering::Acquire)
    }

    /// The state of a call, by who looks after it. Pairs with [`end_call`].
    #[inline(always)]
    pub(crate) fn see_call() -> Ordering {
        weaken("see_call", Ordering::Acquire)
    }

    /// The same state, by who says how he is to be woken. Pairs with [`end_call`].
    #[inline(always)]
    pub(crate) fn doze() -> Ordering {
        weaken("doze", Ordering::Release)
    }

    /// The same state, by who begins the call and by who ends it: what was noted of it and the completion are seen by who
    /// looks, and how he is to be woken by who ends it.
    /// Pairs with [`see_call`] and with [`doze`].
    #[inline(always)]
    pub(crate) fn end_call() -> Ordering {
        weaken("end_call", Ordering::AcqRel)
    }

    /// The bits of slots, by who takes them: it comes after all that was done with them. Pairs with [`give_slot`].
    #[inline(always)]
    pub(crate) fn take_slot() -> Ordering {
        weaken("take_slot", Ordering::Acquire)
    }

    /// The bits of slots, by who gives them back. Pairs with [`take_slot`].
    #[inline(always)]
    pub(crate) fn give_slot() -> Ordering {
        weaken("give_slot", Ordering::Release)
    }

    /// Between "I sleep" and the last look at the slot, by the client. Pairs with [`before_wake`].
    #[inline(always)]
    pub(crate) fn before_sleep() {
        fence_unless("before_sleep");
    }

    /// Between the completions of a sweep and the look at who sleeps, by the service. Pairs with [`before_sleep`].
    #[inline(always)]
    pub(crate) fn before_wake() {
        fence_unless("before_wake");
    }

    /// Between a request and the look at the service's "I sleep", by the client. Pairs with [`before_rest`].
    #[inline(always)]
    pub(crate) fn before_ring() {
        fence_unless("before_ring");
    }

    /// Between the service's "I sleep" and its last sweep. Pairs with [`before_ring`].
    #[inline(always)]
    pub(crate) fn before_rest() {
        fence_unless("before_rest");
    }

    /// Between the service's "I am awake" and the sweep after it: a client that still saw the old word, and had
    /// already rung for it, does not ring again, so this sweep must see its request. Pairs with [`before_ring`].
    #[inline(always)]
    pub(crate) fn after_rest() {
        fence_unless("after_rest");
    }

    /// Between the service's "I hold replies back" and its last look at what the client took. Pairs with
    /// [`after_take`].
    pub(crate) fn before_hold() {
        fence_unless("before_hold");
    }

    /// Between "I took a message", by the client, and the look whether replies are held back. Pairs with
    /// [`before_hold`].
    pub(crate) fn after_take() {
        fence_unless("after_take");
    }

    /// Between a lane's note that it is about to block and the look whether its watch dozes. Pairs with
    /// [`before_doze`].
    pub(crate) fn before_block() {
        fence_unless("before_block");
    }

    /// Between the watch's "I doze" and its last look at the notes. Pairs with [`before_block`].
    pub(crate) fn before_doze() {
        fence_unless("before_doze");
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
