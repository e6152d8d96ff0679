//! Interrupted calls: the kernel continues a blocking `recv` after a handler with `SA_RESTART`, but never a `poll`.

use crate::sys;

/// Returns true if every handler of the process asks that interrupted calls continue.
pub(crate) fn are_calls_restarted() -> bool {
    (1..=64).all(|signal| !sys::interrupts_calls(signal))
}
