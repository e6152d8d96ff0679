//! Streams whose bytes the kernel or shared memory carries.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::policy::Transport;
use crate::endpoint::{Endpoint, Native};
use crate::reason::Reason;
use crate::sys::{self, Descriptor};

/// A connected stream on the kernel's TCP, or in shared memory.
#[derive(Debug)]
pub(crate) struct LocalStream {
    tcp: TcpStream,
    endpoint: Option<Endpoint>,
    /// Reason for TCP where there is no end.
    reason: Reason,
}

impl LocalStream {
    /// Connects to an address. With `is_library` the bytes may go through shared memory.
    pub(crate) fn connect(address: SocketAddr, is_library: bool) -> io::Result<Self> {
        let (stream, address) = Self::unconnected(address, is_library)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&stream.tcp, &address))?;
        Ok(stream)
    }

    /// Begins to connect and does not wait: the socket is writable once there is a result.
    #[cfg(feature = "tokio")]
    pub(crate) fn start_connect(address: SocketAddr, is_library: bool) -> io::Result<Self> {
        let (stream, address) = Self::unconnected(address, is_library)?;
        stream.set_nonblocking(true)?;
        match rustix::net::connect(&stream.tcp, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(stream),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the stream of an accepted connection.
    pub(crate) fn accepted(tcp: TcpStream, is_library: bool) -> Self {
        let endpoint = if is_library { Endpoint::accepted(Descriptor(tcp.as_raw_fd())) } else { None };
        Self { tcp, endpoint, reason: without_end(is_library) }
    }

    fn unconnected(address: SocketAddr, is_library: bool) -> io::Result<(Self, SocketAddr)> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let endpoint = if is_library { Endpoint::connecting(Descriptor(socket.as_raw_fd()), address) } else { None };
        Ok((Self { tcp: socket.into(), endpoint, reason: without_end(is_library) }, address))
    }

    /// Returns the transport of the bytes that this end writes next.
    #[must_use]
    pub(crate) fn transport(&self) -> Transport {
        match &self.endpoint {
            Some(endpoint) if endpoint.is_shared() && !endpoint.writes_to_tcp() => Transport::SameNode,
            _ => Transport::Tcp,
        }
    }

    /// Returns the reason for the transport.
    #[must_use]
    pub(crate) fn reason(&self) -> Reason {
        self.endpoint.as_ref().map_or(self.reason, Endpoint::reason)
    }

    /// Shuts one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
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
    pub(crate) fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        self.tcp.set_nonblocking(is_set)
    }

    /// Returns the end that may use shared memory.
    #[cfg(any(test, feature = "tokio"))]
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor(self.tcp.as_raw_fd())
    }
}

/// Returns the reason for TCP of a stream that has no end in shared memory.
fn without_end(is_library: bool) -> Reason {
    if is_library { Reason::NoLibrary } else { Reason::Rule }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.before_drop(self.descriptor());
        }
    }
}

impl Read for &LocalStream {
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

impl Write for &LocalStream {
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

impl AsFd for LocalStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
