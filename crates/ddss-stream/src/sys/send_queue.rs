//! Queues of a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

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

/// Places in the kernel's `tcp_info`, and its bytes up to there.
const INFO_RECEIVED: usize = 128;
const INFO_BYTES: usize = INFO_RECEIVED + 8;
/// States of a connection in which the peer may still send, and in which it has ended.
const OPEN: [u8; 3] = [1, 4, 5];
const ENDED: [u8; 3] = [8, 9, 11];
/// Looks at a connection that receives meanwhile.
const LOOKS: u32 = 1000;

/// Returns the number of bytes that processes have read from a TCP connection since it began. `None`: the connection is over.
pub(crate) fn bytes_read(socket: impl AsFd) -> Option<u64> {
    let received = || {
        let (mut info, mut length) = ([0u8; INFO_BYTES], INFO_BYTES as libc::socklen_t);
        let (number, place) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
        // SAFETY: the call writes at most `length` bytes, and `info` has as many.
        let asked = unsafe { libc::getsockopt(number, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) };
        let is_whole = asked == 0 && length as usize == INFO_BYTES;
        let bytes = info[INFO_RECEIVED..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
        // The kernel counts the end of the stream as a byte.
        let end = u64::from(ENDED.contains(&info[0]));
        (is_whole && (end == 1 || OPEN.contains(&info[0]))).then(|| bytes - end)
    };
    let mut before = received()?;
    for _ in 0..LOOKS {
        let waiting = rustix::io::ioctl_fionread(&socket).ok()?;
        let after = received()?;
        if after == before {
            return before.checked_sub(waiting);
        }
        before = after;
    }
    None
}
