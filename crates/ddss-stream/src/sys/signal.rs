//! Handlers of signals, as the kernel has them, and a sleep that they interrupt.

use std::time::Duration;

use libc::pollfd;
use rustix::io::Errno;

/// Sleeps in the kernel until one of the descriptors is ready.
pub(crate) fn poll(list: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the list is a slice, and the time lives until the call returns.
    let found = unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout, std::ptr::null()) };
    usize::try_from(found).map_err(|_| super::user_memory::last_errno())
}

/// Returns true if a handler without `SA_RESTART` is installed.
pub(crate) fn interrupts_calls(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills `action`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zero bytes are a valid `sigaction`, whether or not the call filled it.
    let action = unsafe { action.assume_init() };
    let has_handler = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
    asked == 0 && has_handler && action.sa_flags & libc::SA_RESTART == 0
}
