//! The thread's error number, and messages to standard error.

/// Sets `errno`.
pub(crate) fn set(number: i32) {
    // SAFETY: libc returns the address of this thread's variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = number };
}

/// Returns `errno`.
pub(crate) fn get() -> i32 {
    // SAFETY: libc returns the address of this thread's variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place }
}

/// Writes a line to standard error, past this library.
pub(crate) fn report(line: &str) {
    // A program without standard error gets no message.
    let _ = rustix::io::write(ddss_stream::Descriptor(2), line.as_bytes());
}
