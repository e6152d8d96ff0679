//! Faults in copies from and to the program's memory: a wrong pointer is `EFAULT`, as it is in the kernel.
//!
//! The library has a handler of SIGSEGV and SIGBUS. It continues a copy behind its fault, and hands every other signal to the program's
//! own action: the program sees the actions that it set. A program that sets them past libc gets a signal
//! in place of `EFAULT`, and one that blocks them ends.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{sighandler_t, siginfo_t};

use super::actions::{self, Action, DEFAULT_ACTION};
use crate::sys::real;

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns true for a signal that the library handles itself.
pub(super) fn is_handled(signal: c_int) -> bool {
    [libc::SIGSEGV, libc::SIGBUS].contains(&signal) && IS_INSTALLED.load(Ordering::Acquire)
}

/// Returns the address of the library's handler.
pub(super) fn handler() -> sighandler_t {
    on_fault as *const () as sighandler_t
}

/// Installs the handler before the program's `main`.
pub(super) fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let mut found = actions::empty();
        // SAFETY: without a new action the call only fills `found`.
        let asked = unsafe { real::sigaction(signal, std::ptr::null(), &raw mut found) };
        if asked == 0 {
            // Another library may have set a handler before, which this one has recorded then.
            if !actions::is_handler(found.sa_sigaction) || !actions::is_handler(Action::of(signal).handler()) {
                Action::of(signal).set(&found);
            }
            enter_kernel(signal, &found);
        }
    }
    IS_INSTALLED.store(true, Ordering::Release);
}

/// Sets the library's handler with the program's mask and flags.
pub(super) fn enter_kernel(signal: c_int, programs: &libc::sigaction) -> c_int {
    let is_handled = actions::is_handler(programs.sa_sigaction);
    let flags = if is_handled { programs.sa_flags & !libc::SA_RESETHAND } else { libc::SA_RESTART };
    let mut action = *programs;
    action.sa_sigaction = handler();
    action.sa_flags = flags | libc::SA_SIGINFO;
    // SAFETY: the action lives until the call returns, and the handler has the type that the flags promise.
    unsafe { real::sigaction(signal, &raw const action, std::ptr::null_mut()) }
}

unsafe extern "C-unwind" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both to a handler with `SA_SIGINFO`.
    let is_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: as above.
    if is_fault && unsafe { resume(context.cast()) } {
        return;
    }
    let handler = Action::of(signal).handler();
    if is_fault && !actions::is_handler(handler) {
        // A fault is repeated after the return, and ends the program as it would have without the library.
        // SAFETY: the default action is no code.
        unsafe { real::sigaction(signal, &raw const DEFAULT_ACTION.0, std::ptr::null_mut()) };
        return;
    }
    // SAFETY: the kernel's own arguments.
    unsafe { actions::run(signal, info, context) }
}

/// Continues a copy behind its fault. False: the fault is not one of a copy.
///
/// # Safety
///
/// The kernel passed the context to a handler.
unsafe fn resume(context: *mut libc::ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; the kernel loads the registers from it when the handler returns.
    let place = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let place = unsafe { &raw mut (*context).uc_mcontext.pc };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        // SAFETY: as above.
        let address = unsafe { place.read() };
        let Some(next) = ddss_stream::resume_address(address as usize) else { return false };
        // SAFETY: as above.
        unsafe { place.write(next as _) };
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        false
    }
}
