//! Descriptors that signals name. A stream that returns to TCP has its control socket send signals as well: such a signal names a
//! hidden descriptor, and the program is told its own.

use std::ffi::c_int;

use libc::{siginfo_t, sigset_t, timespec};

use super::actions::{FAULTS, bit};
use crate::descriptor_table;
use crate::sys::real;

/// Code of a signal about a descriptor whose number has codes of its own.
const SI_SIGIO: c_int = -5;
/// Codes of other signals about a descriptor: `POLL_IN` to `POLL_HUP`.
const POLL_CODES: std::ops::RangeInclusive<c_int> = 1..=6;
/// Signals with other meanings of these codes.
const OTHERS: u64 = FAULTS | bit(libc::SIGCHLD);
/// Place of the descriptor in the information, behind three numbers and a band of the size of a pointer.
const PLACE: usize = 2 * size_of::<usize>() + size_of::<usize>();

/// Puts the program's descriptor in the place of a hidden one.
///
/// # Safety
///
/// The kernel filled the information.
pub(super) unsafe fn name_own_descriptor(info: *mut siginfo_t) {
    // SAFETY: promised by the caller.
    let siginfo_t { si_signo: signal, si_code: code, .. } = unsafe { *info };
    if code != SI_SIGIO && !(POLL_CODES.contains(&code) && OTHERS & bit(signal) == 0) {
        return;
    }
    let place = info.wrapping_byte_add(PLACE).cast::<c_int>();
    // SAFETY: information about a descriptor has its number at this place.
    let named = unsafe { place.read() };
    if !ddss_stream::is_hidden(named) {
        return;
    }
    let own = descriptor_table::streams().find(|(_, endpoint)| endpoint.is_control(named));
    if let Some((own, _)) = own {
        // SAFETY: as above.
        unsafe { place.write(own) };
    }
}

/// Replaces libc's `sigtimedwait`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let signal = unsafe { real::sigtimedwait(set, info, timeout) };
    if signal > 0 && !info.is_null() {
        // SAFETY: the call has filled the information.
        unsafe { name_own_descriptor(info) };
    }
    signal
}

/// Replaces libc's `sigwaitinfo`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: as the program called it.
    unsafe { sigtimedwait(set, info, std::ptr::null()) }
}
