//! Listeners of streams.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::policy::TransportPolicy;
use super::stream::Stream;

/// A listener whose streams use one transport policy.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    policy: TransportPolicy,
}

impl Listener {
    /// Binds an address and listens, with [`TransportPolicy::Auto`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(address, TransportPolicy::Auto)
    }

    /// Binds an address and listens.
    pub fn bind_with(address: SocketAddr, policy: TransportPolicy) -> io::Result<Self> {
        Ok(Self { tcp: TcpListener::bind(address)?, policy })
    }

    /// Waits for a connection. The first read or write of a stream on the wire waits for the hello of its peer; the listener does not.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (tcp, peer) = self.tcp.accept()?;
        Ok((Stream::accepted(tcp, &self.policy)?, peer))
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Sets or clears the non-blocking mode of [`accept`](Self::accept).
    pub fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        self.tcp.set_nonblocking(is_set)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }
}
