//! Credentials of the peer of a local socket.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::server::session::Credentials;

/// Asks the kernel for the credentials of a connected process. The process id is 0 if this PID namespace has none for
/// it; rustix's types cannot express that, so the call is made directly.
pub(crate) fn credentials_of(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes at most `bytes` bytes to a buffer
    // of that size.
    let asked = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, peer.as_mut_ptr().cast(), &raw mut bytes) };
    if asked != 0 || bytes as usize != size_of::<libc::ucred>() {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    // SAFETY: all bit patterns are valid numbers, zeroes and the kernel's bytes alike.
    let peer = unsafe { peer.assume_init() };
    Ok(Credentials { pid: peer.pid, uid: peer.uid, gid: peer.gid })
}
