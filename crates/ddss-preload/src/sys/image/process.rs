//! Start of the library, and new processes.

use ddss_stream::Endpoint;

use crate::sys::real;

/// Runs before the program's `main`.
extern "C" fn start() {
    crate::startup::start();
}

// SAFETY: the section holds functions without arguments, which the loader calls once.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

/// Replaces libc's `fork`: the child uses the same streams.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fork() -> libc::pid_t {
    Endpoint::before_fork();
    // SAFETY: the program's call, unchanged.
    let child = unsafe { real::fork() };
    match child {
        0 => ddss_stream::forget_thread(),
        -1 => Endpoint::after_failed_fork(),
        _ => (),
    }
    child
}

/// Replaces libc's `vfork` by `fork`: the child of a `vfork` would change the parent's tables.
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: as the program called it.
    unsafe { fork() }
}

/// Sends the signal of a write without reader to this thread.
pub(crate) fn raise_broken_pipe() {
    // SAFETY: raises a signal that the kernel would raise here as well.
    unsafe { libc::raise(libc::SIGPIPE) };
}
