//! Who is at the other end of a local socket.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::server::session::Credentials;

/// Asks the kernel who has connected. The process is 0 if this one's PID namespace has no number for it: rustix's types have no
/// such number, so it is not asked by them.
pub(crate) fn credentials_of(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes at the most `bytes` bytes to where
    // there are that many.
    let asked = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, peer.as_mut_ptr().cast(), &raw mut bytes) };
    if asked != 0 || bytes as usize != size_of::<libc::ucred>() {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    // SAFETY: zeroes are numbers, and so is whatever the kernel wrote over them.
    let peer = unsafe { peer.assume_init() };
    Ok(Credentials { pid: peer.pid, uid: peer.uid, gid: peer.gid })
}
