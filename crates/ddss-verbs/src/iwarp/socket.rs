//! TCP sockets with the options of this fabric: non-blocking, no delay, and dead hosts detected.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

/// Connections that the kernel queues before they are accepted.
const LISTEN_BACKLOG: i32 = 512;
/// Congestion control without pacing, based on loss; built into every kernel.
const CONGESTION_CONTROL: &str = "reno";
/// Silence after which the kernel sends keepalive probes, their interval and their number.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_COUNT: u32 = 5;
/// Time after which unacknowledged bytes mean that the other host is gone.
const USER_TIMEOUT_MS: u32 = 10_000;

/// Opens a listening socket.
pub(crate) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = open(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, LISTEN_BACKLOG)?;
    let bound = rustix::net::getsockname(&socket)?;
    let bound = SocketAddr::try_from(bound).map_err(|_| io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, bound))
}

/// Opens a socket and starts to connect it to `address`.
pub(crate) fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = open(address)?;
    tune(&socket)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Accepts one connection, if there is one. Its [options](tune) are set later: unauthenticated peers are not worth the
/// system calls.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    use rustix::io::Errno;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, address) = match rustix::net::acceptfrom_with(listener, flags) {
        Ok((socket, Some(address))) => (socket, address),
        Ok((_, None)) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Ok(address) = SocketAddr::try_from(address) else { return Ok(None) };
    Ok(Some((socket, address)))
}

/// Returns the result of a connect.
pub(crate) fn connected(socket: &OwnedFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

/// Sets the options of a connection's socket.
pub(crate) fn tune(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    // Pacing suits long fat networks; between nodes it delays packets that could be sent immediately. Where the choice
    // is unavailable, the system's default will do.
    let _ = sockopt::set_tcp_congestion(socket, CONGESTION_CONTROL);
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_has_no_delay_and_detects_dead_hosts() {
        // If this failed, small messages would wait for acknowledgements, or a get would wait hours for a dead host.
        let (listener, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let socket = connect(address).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let asks = sockopt::tcp_keepidle(&socket).unwrap()
            + sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
        assert_eq!(asks, Duration::from_secs(10), "a silent host is given up");
        assert_eq!(
            sockopt::tcp_user_timeout(&socket).unwrap(),
            10_000,
            "a host that acknowledges nothing is given up too"
        );
        drop(listener);
    }
}
