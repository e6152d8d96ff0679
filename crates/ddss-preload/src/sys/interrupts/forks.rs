//! Functions that libc calls around each `fork`.

use ddss_stream::Endpoint;

use crate::epoll;

unsafe extern "C" fn before() {
    Endpoint::finish_decisions();
    epoll::before_fork();
}

unsafe extern "C" fn after() {
    epoll::after_fork();
}

/// Registers the functions. Those that the program registers later run outside of them, so that they find no lock of the library held.
pub(crate) fn install() {
    epoll::start();
    // SAFETY: the functions stay as long as the process: nobody unloads a preloaded library.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    if failed != 0 {
        crate::sys::report("ddss-preload: no memory for the functions around fork\n");
    }
}
