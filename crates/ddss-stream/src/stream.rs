//! Streams and listeners for programs that use this crate directly.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::endpoint::{Endpoint, Native};
use crate::reason::Reason;
use crate::sys::{self, Descriptor};

/// Transport of a stream at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// The kernel's TCP.
    Tcp,
    /// Shared memory of this node.
    SameNode,
}

/// A connected stream.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    endpoint: Option<Endpoint>,
}

/// A listener whose streams use shared memory with peers of this node.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
}

impl Listener {
    /// Binds an address and listens.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { tcp: TcpListener::bind(address)? })
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (tcp, peer) = self.tcp.accept()?;
        let endpoint = Endpoint::accepted(Descriptor(tcp.as_raw_fd()));
        Ok((Stream { tcp, endpoint }, peer))
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Stream {
    /// Connects to an address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let endpoint = Endpoint::connecting(Descriptor(socket.as_raw_fd()), address);
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
        Ok(Self { tcp: socket.into(), endpoint })
    }

    /// Returns the transport of the bytes that this end writes next.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match &self.endpoint {
            Some(endpoint) if endpoint.is_shared() && !endpoint.writes_to_tcp() => Transport::SameNode,
            _ => Transport::Tcp,
        }
    }

    /// Returns the reason for the transport.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.endpoint.as_ref().map_or(Reason::NoLibrary, Endpoint::reason)
    }

    /// Shuts one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.tcp.shutdown(how)?;
        if let Some(endpoint) = &self.endpoint
            && !endpoint.stay_on_tcp(Reason::KernelCall)
            && how != Shutdown::Read
        {
            endpoint.shut_writing();
        }
        Ok(())
    }

    /// Sets or clears the non-blocking mode.
    pub fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        self.tcp.set_nonblocking(is_set)
    }

    #[cfg(test)]
    #[allow(clippy::expect_used, reason = "a test without its stream fails")]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("the stream has an end")
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor(self.tcp.as_raw_fd())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.before_drop(self.descriptor());
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(endpoint) = &self.endpoint else { return (&self.tcp).read(room) };
        let socket = self.descriptor();
        if let Some((result, _)) = endpoint.native(socket, Native::Read, || sys::kernel_receive(socket.0, room)) {
            return usize::try_from(result).map_err(|_| io::Error::last_os_error());
        }
        if endpoint.is_plain() {
            return (&self.tcp).read(room);
        }
        Ok(sys::with_room(room, |memory| endpoint.read(socket, memory, 0))?)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(endpoint) = &self.endpoint else { return (&self.tcp).write(bytes) };
        let socket = self.descriptor();
        if let Some((result, _)) = endpoint.native(socket, Native::Write, || sys::kernel_send(socket.0, bytes)) {
            return usize::try_from(result).map_err(|_| io::Error::last_os_error());
        }
        if endpoint.is_plain() {
            return (&self.tcp).write(bytes);
        }
        Ok(sys::with_bytes(bytes, |memory| endpoint.write(socket, memory, 0))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        (&*self).read(room)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
