//! Handlers of signals, as the kernel has them.

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
