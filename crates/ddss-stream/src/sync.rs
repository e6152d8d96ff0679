//! The atomics of this crate, real or modelled, and the orderings of its protocols, by name.
//!
//! Under `--cfg loom` the model checker's atomics replace the processor's. `DDSS_WEAKEN=NAME` weakens one ordering, so
//! that a test can show that each of them is needed.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The named orderings. Everything else in the protocols is `Relaxed`.
pub(crate) mod order {
    use super::{Ordering, fence};

    /// The tail, by the writer: the bytes before it are visible. Pairs with [`take`].
    #[inline(always)]
    pub(crate) fn publish() -> Ordering {
        weaken("publish", Ordering::Release)
    }

    /// The tail, by the reader. Pairs with [`publish`].
    #[inline(always)]
    pub(crate) fn take() -> Ordering {
        weaken("take", Ordering::Acquire)
    }

    /// The head, by the reader: the bytes before it were copied. Pairs with [`reuse`].
    #[inline(always)]
    pub(crate) fn free() -> Ordering {
        weaken("free", Ordering::Release)
    }

    /// The head, by the writer: the bytes before it may be overwritten. Pairs with [`free`].
    #[inline(always)]
    pub(crate) fn reuse() -> Ordering {
        weaken("reuse", Ordering::Acquire)
    }

    /// The phase, by the writer: the end of the one before, and its bytes, are visible. Pairs with [`turn`].
    #[inline(always)]
    pub(crate) fn switch() -> Ordering {
        weaken("switch", Ordering::Release)
    }

    /// The phase of the writer, by the reader. Pairs with [`switch`].
    #[inline(always)]
    pub(crate) fn turn() -> Ordering {
        weaken("turn", Ordering::Acquire)
    }

    /// Orders the cursor store of the active side before its load of the rest word. Pairs with [`rest_fence`].
    #[inline(always)]
    pub(crate) fn bell_fence() {
        barrier("bell_fence");
    }

    /// Orders the store of the rest word before the last look at the cursor. Pairs with [`bell_fence`].
    #[inline(always)]
    pub(crate) fn rest_fence() {
        barrier("rest_fence");
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn weaken(_name: &str, order: Ordering) -> Ordering {
        order
    }

    #[cfg(loom)]
    fn weaken(name: &str, order: Ordering) -> Ordering {
        if std::env::var("DDSS_WEAKEN").is_ok_and(|weak| weak == name) { Ordering::Relaxed } else { order }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn barrier(_name: &str) {
        fence(Ordering::SeqCst);
    }

    #[cfg(loom)]
    fn barrier(name: &str) {
        if !std::env::var("DDSS_WEAKEN").is_ok_and(|weak| weak == name) {
            fence(Ordering::SeqCst);
        }
    }
}
