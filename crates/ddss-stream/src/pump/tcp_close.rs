//! Meaning of a close of a TCP socket. A process that is killed closes, too, and its peer must not take that for the end of the stream: so
//! every close resets, until the stream ends in order.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

/// Makes every later close of the socket a reset.
pub(super) fn reset_on_close(tcp: impl AsFd) -> Result<(), Errno> {
    sockopt::set_socket_linger(tcp, Some(Duration::ZERO))
}

/// Makes a close the end of this side's bytes again.
pub(super) fn end_on_close(tcp: impl AsFd) {
    // A failure means that the socket has no connection to end.
    let _ = sockopt::set_socket_linger(tcp, None);
}
