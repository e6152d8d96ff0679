//! One type of stream for all transports.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::local::LocalStream;
use super::policy::{Transport, TransportPolicy};
use crate::reason::Reason;
use crate::wire::WireStream;

/// A connected stream.
///
/// Threads may read and write at the same time through `&Stream`. [`split`](Self::split) gives each direction an owner.
#[derive(Debug)]
pub struct Stream {
    carrier: Carrier,
}

/// Carrier of the bytes.
#[derive(Debug)]
pub(super) enum Carrier {
    Local(LocalStream),
    Wire(Box<WireStream>),
}

impl Stream {
    /// Connects to an address, with [`TransportPolicy::Auto`].
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_with(address, &TransportPolicy::Auto)
    }

    /// Connects to an address. On the wire this waits until both sides agree on a plan.
    pub fn connect_with(address: SocketAddr, policy: &TransportPolicy) -> io::Result<Self> {
        Ok(Self::of(match policy {
            TransportPolicy::Auto => Carrier::Local(LocalStream::connect(address, true)?),
            TransportPolicy::Tcp => Carrier::Local(LocalStream::connect(address, false)?),
            TransportPolicy::Wire(config) => Carrier::Wire(Box::new(WireStream::connect(address, config)?)),
        }))
    }

    pub(super) fn of(carrier: Carrier) -> Self {
        Self { carrier }
    }

    pub(super) fn accepted(tcp: TcpStream, policy: &TransportPolicy) -> io::Result<Self> {
        Ok(Self::of(match policy {
            TransportPolicy::Auto => Carrier::Local(LocalStream::accepted(tcp, true)),
            TransportPolicy::Tcp => Carrier::Local(LocalStream::accepted(tcp, false)),
            TransportPolicy::Wire(config) => Carrier::Wire(Box::new(WireStream::start_accept(tcp, config)?)),
        }))
    }

    /// Returns the transport of the bytes that this end writes next.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match &self.carrier {
            Carrier::Local(local) => local.transport(),
            Carrier::Wire(_) => Transport::Wire,
        }
    }

    /// Returns the reason for the transport.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match &self.carrier {
            Carrier::Local(local) => local.reason(),
            Carrier::Wire(_) => Reason::Wire,
        }
    }

    /// Returns the stream on the wire, for its plan, copies and messages.
    #[must_use]
    pub fn as_wire(&self) -> Option<&WireStream> {
        match &self.carrier {
            Carrier::Local(_) => None,
            Carrier::Wire(wire) => Some(wire),
        }
    }

    /// Writes all bytes; on the wire the peer can read them in place, without a copy on either side. Returns the number of those: zero on
    /// other transports, and see [`WireStream::write_zero_copy`].
    ///
    /// # Errors
    /// As with [`WireStream::write_zero_copy`], and on other transports with [`Write::write_all`].
    pub fn write_zero_copy(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.carrier {
            Carrier::Local(local) => (&*local).write_all(bytes).map(|()| 0),
            Carrier::Wire(wire) => wire.write_zero_copy(bytes),
        }
    }

    /// Shuts one direction or both. On the wire it waits until the socket has everything that was written.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let wire = match &self.carrier {
            Carrier::Local(local) => return local.shutdown(how),
            Carrier::Wire(wire) => wire,
        };
        if how != Shutdown::Write {
            wire.shutdown_read();
        }
        if how == Shutdown::Read { Ok(()) } else { wire.shutdown_write() }
    }

    /// Sets or clears the non-blocking mode.
    pub fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        match &self.carrier {
            Carrier::Local(local) => local.set_nonblocking(is_set),
            Carrier::Wire(wire) => {
                wire.set_nonblocking(is_set);
                Ok(())
            }
        }
    }

    /// Sets the maximum time of a read; `None` waits as long as the peer lives.
    pub fn set_read_timeout(&self, max: Option<Duration>) -> io::Result<()> {
        match &self.carrier {
            Carrier::Local(local) => local.tcp().set_read_timeout(max),
            Carrier::Wire(wire) => {
                wire.set_read_timeout(max);
                Ok(())
            }
        }
    }

    /// Sets the maximum time of a write; `None` waits as long as the peer lives.
    pub fn set_write_timeout(&self, max: Option<Duration>) -> io::Result<()> {
        match &self.carrier {
            Carrier::Local(local) => local.tcp().set_write_timeout(max),
            Carrier::Wire(wire) => {
                wire.set_write_timeout(max);
                Ok(())
            }
        }
    }

    /// Returns the address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().local_addr()
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    #[cfg(feature = "tokio")]
    pub(super) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    fn tcp(&self) -> &TcpStream {
        match &self.carrier {
            Carrier::Local(local) => local.tcp(),
            Carrier::Wire(wire) => &wire.tcp,
        }
    }

    #[cfg(test)]
    #[allow(clippy::panic, reason = "a test without its stream fails")]
    pub(crate) fn endpoint(&self) -> &crate::endpoint::Endpoint {
        let Carrier::Local(local) = &self.carrier else { panic!("the stream is on the wire") };
        local.endpoint().unwrap_or_else(|| panic!("the stream has no end in shared memory"))
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &self.carrier {
            Carrier::Local(local) => (&*local).read(room),
            Carrier::Wire(wire) => (&**wire).read(room),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.carrier {
            Carrier::Local(local) => (&*local).write(bytes),
            Carrier::Wire(wire) => (&**wire).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.carrier {
            Carrier::Local(_) => Ok(()),
            Carrier::Wire(wire) => (&**wire).flush(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.carrier {
            Carrier::Local(local) => (&*local).read(room),
            // This thread has the stream for itself.
            Carrier::Wire(wire) => wire.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp().as_raw_fd()
    }
}
