//! Credentials of the peer of a local socket.

use std::os::fd::BorrowedFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;

/// Credentials of a socket's peer, from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Process id, for log lines only: the process may be gone and its id reused. 0 if this process' PID namespace has
    /// no id for it: a client outside of a daemon's container.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Primary group id of the user.
    pub gid: u32,
}

/// Asks the kernel for the credentials of a connected process. The process id is 0 if this PID namespace has none for
/// it; rustix's types cannot express that, those of nix can.
pub(crate) fn credentials_of(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let peer = getsockopt(&socket, PeerCredentials).map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    Ok(Credentials { pid: peer.pid(), uid: peer.uid(), gid: peer.gid() })
}
