//! Send queue of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the bytes, the end of the stream among them, that the peer's kernel has not acknowledged.
pub(crate) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one `int`, and `bytes` is one.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if asked == 0 { Ok(bytes.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
}

/// Limits the bytes that the kernel has and has not sent. More stay with the caller, which can still append to them.
pub(crate) fn set_unsent_max(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // SAFETY: the call reads four bytes, and `bytes` has four.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
