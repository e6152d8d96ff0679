//! The connection to the peer: on the wire, or plain TCP if the peer does not speak it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv};

use super::names::SocketNames;
use super::tcp_close::{end_on_close, reset_on_close};
use crate::limits::{PUMP_CONNECT_MAX, PUMP_HELLO_WAIT};
use crate::wire::{WireConfig, WireStream, is_request};

/// Bytes of a start frame that show that it is one.
const KEY_BYTES: usize = 16;

/// Connection to the peer.
///
/// ```text
/// accepted:   Unknown -> Wire       the first bytes are a request of the wire
///                     -> Plain      other bytes; or none, while the program has something to say
/// connected:  Asking  -> Wire       the peer answers the hello
///                     -> Dialling   anything else: a new connection
///             Dialling -> Plain
/// ```
#[derive(Debug)]
pub(super) enum FarEnd {
    Unknown { tcp: TcpStream, since: Instant },
    Asking { stream: WireStream, names: SocketNames, deadline: Instant },
    Dialling { tcp: TcpStream, deadline: Instant },
    Wire(WireStream),
    Plain { tcp: TcpStream, is_checked: bool },
    Failed,
}

/// Result of a look at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// The peer has to move first.
    Wait,
    /// A new socket has to be watched.
    NewSocket,
    /// Bytes can travel.
    Ready,
}

impl FarEnd {
    pub(super) fn accepted(tcp: OwnedFd) -> Self {
        Self::Unknown { tcp: tcp.into(), since: Instant::now() }
    }

    pub(super) fn connected(tcp: OwnedFd, names: SocketNames, config: &WireConfig) -> io::Result<Self> {
        let stream = WireStream::start_connect(tcp.into(), config)?;
        stream.set_nonblocking(true);
        Ok(Self::Asking { stream, names, deadline: Instant::now() + config.handshake_max })
    }

    pub(super) fn is_wire(&self) -> bool {
        matches!(self, Self::Wire(_))
    }

    /// Chooses the transport. `has_news`: the program wrote something or ended.
    pub(super) fn choose(&mut self, has_news: bool, config: &WireConfig) -> io::Result<Choice> {
        let (next, choice) = match std::mem::replace(self, Self::Failed) {
            Self::Unknown { tcp, since } => look(tcp, since, has_news, config)?,
            Self::Asking { stream, names, deadline } => match stream.complete_start() {
                Ok(()) => (Self::Wire(stream), Choice::Ready),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    (Self::Asking { stream, names, deadline }, Choice::Wait)
                }
                Err(_) => {
                    stream.abort();
                    (
                        Self::Dialling { tcp: dial(&names)?, deadline: Instant::now() + PUMP_CONNECT_MAX },
                        Choice::NewSocket,
                    )
                }
            },
            Self::Dialling { tcp, deadline } => dialled(tcp, deadline)?,
            ready => (ready, Choice::Ready),
        };
        *self = next;
        Ok(choice)
    }

    /// Returns the time at which the connection has to go on without an event.
    pub(super) fn at(&self, has_news: bool) -> Option<Instant> {
        match self {
            Self::Unknown { since, .. } => has_news.then(|| *since + PUMP_HELLO_WAIT),
            Self::Asking { deadline, .. } | Self::Dialling { deadline, .. } => Some(*deadline),
            Self::Wire(stream) => stream.interest().ok().and_then(|interest| interest.at),
            Self::Plain { .. } | Self::Failed => None,
        }
    }

    /// Reads bytes of the peer; 0 is the end of its direction.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Wire(stream) => stream.read(room),
            Self::Plain { tcp, is_checked } => {
                if !*is_checked && check_late_request(tcp)? {
                    *is_checked = true;
                }
                tcp.read(room)
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Wire(stream) => stream.write(bytes),
            Self::Plain { tcp, .. } => tcp.write(bytes),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Gives the socket everything that was written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Wire(stream) => stream.flush(),
            _ => Ok(()),
        }
    }

    /// Closes the direction of this side behind everything written.
    pub(super) fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Self::Wire(stream) => stream.shutdown_write(),
            Self::Plain { tcp, .. } => tcp.shutdown(Shutdown::Write),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Resets the connection.
    pub(super) fn abort(self) {
        match self {
            Self::Wire(stream) | Self::Asking { stream, .. } => stream.abort(),
            // Their close resets.
            Self::Unknown { .. } | Self::Plain { .. } | Self::Dialling { .. } | Self::Failed => {}
        }
    }

    /// Closes the connection; everything that was written is with the kernel.
    pub(super) fn close(self) {
        if let Some(socket) = self.socket() {
            end_on_close(socket);
        }
        match self {
            // The peer's credits may still be on their way, and no other thread waits for them.
            Self::Wire(stream) if stream.is_drop_slow() => {
                drop(std::thread::Builder::new().spawn(move || drop(stream)))
            }
            other => drop(other),
        }
    }
}

impl FarEnd {
    /// Returns the socket, unless the connection has failed.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Wire(stream) | Self::Asking { stream, .. } => Some(stream.as_fd()),
            Self::Unknown { tcp, .. } | Self::Plain { tcp, .. } | Self::Dialling { tcp, .. } => Some(tcp.as_fd()),
            Self::Failed => None,
        }
    }
}

/// Looks at the first bytes of an accepted connection without taking them.
fn look(tcp: TcpStream, since: Instant, has_news: bool, config: &WireConfig) -> io::Result<(FarEnd, Choice)> {
    let is_late = since.elapsed() >= PUMP_HELLO_WAIT;
    let plain = |tcp, is_checked| Ok((FarEnd::Plain { tcp, is_checked }, Choice::Ready));
    match peek(&tcp)? {
        None if is_late && has_news => plain(tcp, false),
        None => Ok((FarEnd::Unknown { tcp, since }, Choice::Wait)),
        Some((_, 0)) => plain(tcp, true),
        Some((bytes, count)) => match is_request(&bytes[..count]) {
            Some(true) => {
                let stream = WireStream::start_accept(tcp, config)?;
                stream.set_nonblocking(true);
                Ok((FarEnd::Wire(stream), Choice::Ready))
            }
            Some(false) => plain(tcp, true),
            None if is_late => Err(io::ErrorKind::ConnectionReset.into()),
            None => Ok((FarEnd::Unknown { tcp, since }, Choice::Wait)),
        },
    }
}

/// Refuses a request of the wire that comes after the choice of TCP: the program must not see it as its peer's bytes. True: other bytes came.
fn check_late_request(tcp: &TcpStream) -> io::Result<bool> {
    match peek(tcp)? {
        None => Ok(false),
        Some((bytes, count)) if count > 0 && is_request(&bytes[..count]) != Some(false) => {
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Some(_) => Ok(true),
    }
}

/// Copies the first bytes that wait in a socket. `None`: none came yet.
fn peek(tcp: &TcpStream) -> io::Result<Option<([u8; KEY_BYTES], usize)>> {
    let mut bytes = [0; KEY_BYTES];
    match recv(tcp, &mut bytes[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((count, _)) => Ok(Some((bytes, count))),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects once more, for plain bytes.
fn dial(names: &SocketNames) -> io::Result<TcpStream> {
    let family = if names.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    reset_on_close(&socket)?;
    let mut from = names.own;
    from.set_port(0);
    rustix::net::bind(&socket, &from)?;
    match rustix::net::connect(&socket, &names.peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Looks whether a connection is there.
fn dialled(tcp: TcpStream, deadline: Instant) -> io::Result<(FarEnd, Choice)> {
    if let Err(error) = sockopt::socket_error(&tcp)? {
        return Err(error.into());
    }
    if rustix::net::getpeername(&tcp).is_ok_and(|peer: Option<rustix::net::SocketAddrAny>| peer.is_some()) {
        return Ok((FarEnd::Plain { tcp, is_checked: true }, Choice::Ready));
    }
    if Instant::now() >= deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok((FarEnd::Dialling { tcp, deadline }, Choice::Wait))
}

/// Makes plain reads and writes return at once.
pub(super) fn set_nonblocking(tcp: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(tcp)?;
    Ok(rustix::fs::fcntl_setfl(tcp, flags | rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn accepted() -> (FarEnd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = OwnedFd::from(listener.accept().unwrap().0);
        set_nonblocking(&tcp).unwrap();
        (FarEnd::accepted(tcp), peer)
    }

    fn wait_for_bytes(far: &FarEnd) {
        use rustix::event::{PollFd, PollFlags, poll};
        let socket = far.socket().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], None).unwrap();
    }

    // If this failed, a client without the library could not use a server that has it.
    #[test]
    fn first_bytes_choose_the_transport() {
        let config = WireConfig::default();
        for (bytes, is_wire) in
            [(&b"MPA ID Req Frame"[..], true), (b"GET / HTTP/1.1\r\n", false), (b"MPA is short", false)]
        {
            let (mut far, mut peer) = accepted();
            assert_eq!(far.choose(true, &config).unwrap(), Choice::Wait);
            peer.write_all(bytes).unwrap();
            wait_for_bytes(&far);
            assert_eq!(far.choose(false, &config).unwrap(), Choice::Ready);
            assert_eq!(far.is_wire(), is_wire);
        }
    }

    // If this failed, a program would get the request of a late peer as bytes.
    #[test]
    fn late_request_resets_a_connection_that_became_plain() {
        let config = WireConfig::default();
        let (mut far, mut peer) = accepted();
        let FarEnd::Unknown { since, .. } = &mut far else { panic!() };
        *since = since.checked_sub(PUMP_HELLO_WAIT).unwrap();
        assert_eq!(far.choose(false, &config).unwrap(), Choice::Wait);
        assert_eq!(far.choose(true, &config).unwrap(), Choice::Ready);
        assert!(matches!(far, FarEnd::Plain { .. }));
        peer.write_all(b"MPA ID Req Frame and more").unwrap();
        wait_for_bytes(&far);
        assert_eq!(far.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
