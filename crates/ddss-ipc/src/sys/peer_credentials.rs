//! Credentials of the peer of a local socket.

use std::os::fd::BorrowedFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;

use crate::server::session::Credentials;

/// Asks the kernel for the credentials of a connected process. The process id is 0 if this PID namespace has none for
/// it; rustix's types cannot express that, those of nix can.
pub(crate) fn credentials_of(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let peer = getsockopt(&socket, PeerCredentials).map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    Ok(Credentials { pid: peer.pid(), uid: peer.uid(), gid: peer.gid() })
}
