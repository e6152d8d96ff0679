//! A stream on the wire, driven by the thread that calls it.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ddss_sdp::{Addresses, CopyLedger, Framing, Plan, SdpError, StreamConfig, Terms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::engine::{Engine, capabilities};
use super::start::StartFrame;
use crate::limits::{LINGER_LOOK_EVERY, WIRE_CLOSE_MAX, WIRE_HANDSHAKE_MAX};
use crate::sys;

/// Settings of a stream on the wire.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// Way in which the stream moves its bytes. Both sides get the basic one if either wants it.
    pub plan: Plan,
    /// True if the frames that this side receives have markers, as iWARP asks for on TCP.
    pub markers: bool,
    /// True if frames have checksums. Off only if both sides say so.
    pub checksums: bool,
    /// Buffers.
    pub stream: StreamConfig,
    /// Maximum time until the peer has answered the hello.
    pub handshake_max: Duration,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            plan: Plan::of(&capabilities()),
            markers: true,
            checksums: true,
            // A message of a private buffer has to fit one frame.
            stream: StreamConfig { buffer_bytes_max: 63 << 10, ..StreamConfig::default() },
            handshake_max: WIRE_HANDSHAKE_MAX,
        }
    }
}

impl WireConfig {
    /// Sets the basic plan, that of the specification.
    #[must_use]
    pub fn basic(self) -> Self {
        Self { plan: Plan::basic(), ..self }
    }
}

/// One end of a stream on the wire.
///
/// [`Write::write`] takes bytes into the send ring and sends what the socket takes; the rest leaves with a later call or
/// [`Write::flush`]. Dropping the stream closes its direction and sends what is left, for a second at most.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpListener;
///
/// use ddss_stream::wire::{WireConfig, WireStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let other = std::thread::spawn(move || -> std::io::Result<String> {
///     let mut stream = WireStream::accept(listener.accept()?.0, &WireConfig::default())?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text)?;
///     Ok(text)
/// });
/// let mut stream = WireStream::connect(address, &WireConfig::default())?;
/// stream.write_all(b"hello")?;
/// stream.shutdown_write()?;
/// assert_eq!(other.join().expect("the thread ends")?, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct WireStream {
    pub(super) tcp: TcpStream,
    engine: Engine,
    /// True once the peer's end of the TCP connection is gone.
    has_ended: bool,
    is_shut: bool,
    read_max: Option<Duration>,
    write_max: Option<Duration>,
}

impl fmt::Debug for WireStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireStream").field("tcp", &self.tcp).field("plan", &self.engine.plan()).finish_non_exhaustive()
    }
}

impl WireStream {
    /// Connects to an address and agrees on a plan.
    ///
    /// # Errors
    /// There is no connection, or the peer does not speak the protocol, or does not answer in time.
    pub fn connect(address: SocketAddr, config: &WireConfig) -> io::Result<Self> {
        Self::begin(TcpStream::connect(address)?, config)
    }

    /// Makes the stream of a TCP connection that this side opened and has not used.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or does not answer in time.
    pub fn begin(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        let (own, peer) = (tcp.local_addr()?, tcp.peer_addr()?);
        let addresses = Addresses { source: own.ip(), destination: peer.ip(), port: own.port() };
        let hello = ddss_sdp::connect(&config.stream, config.plan, addresses).map_err(refused)?;
        tcp.set_read_timeout(Some(config.handshake_max))?;
        (&tcp).write_all(&config.start_frame(false, &hello).encode())?;
        let answer = StartFrame::read(&mut &tcp, true).map_err(timed_out)?;
        let terms = ddss_sdp::finish_connect(config.plan, &answer.private).map_err(refused)?;
        Self::new(tcp, config, &terms, &answer)
    }

    /// Makes the stream of a TCP connection that this side accepted and has not used.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or says nothing in time.
    pub fn accept(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        tcp.set_read_timeout(Some(config.handshake_max))?;
        let request = StartFrame::read(&mut &tcp, false).map_err(timed_out)?;
        let (terms, answer) = ddss_sdp::accept(&config.stream, config.plan, &request.private).map_err(refused)?;
        (&tcp).write_all(&config.start_frame(true, &answer).encode())?;
        Self::new(tcp, config, &terms, &request)
    }

    fn new(tcp: TcpStream, config: &WireConfig, terms: &Terms, peer: &StartFrame) -> io::Result<Self> {
        let checksum =
            (config.checksums || peer.checksums).then_some(crc32c::crc32c_append as ddss_sdp::frame::Checksum);
        let outbound = Framing { markers: peer.markers, checksum };
        let inbound = Framing { markers: config.markers, checksum };
        let engine = Engine::new(&config.stream, terms, outbound, inbound).map_err(refused)?;
        tcp.set_read_timeout(None)?;
        // The engine decides which messages wait.
        tcp.set_nodelay(true)?;
        Ok(Self { tcp, engine, has_ended: false, is_shut: false, read_max: None, write_max: None })
    }

    /// Returns the plan that both sides agreed on.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.engine.plan()
    }

    /// Returns the copies of stream bytes that this end has made.
    #[must_use]
    pub fn ledger(&self) -> CopyLedger {
        self.engine.ledger()
    }

    /// Returns the messages that this end has sent.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.engine.messages()
    }

    /// Sets the maximum time of a read; `None` waits as long as the peer lives.
    pub fn set_read_timeout(&mut self, max: Option<Duration>) {
        self.read_max = max;
    }

    /// Sets the maximum time of a write or flush; `None` waits as long as the peer lives.
    pub fn set_write_timeout(&mut self, max: Option<Duration>) {
        self.write_max = max;
    }

    /// Closes the direction of this side behind everything written. The peer can still write.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.is_shut = true;
        self.engine.shutdown();
        self.flush()
    }

    /// Waits until the peer's kernel has everything. A credit of the peer that arrives at a closed socket resets the connection, and
    /// bytes on their way would be lost.
    fn linger(&mut self, deadline: Instant) {
        let is_shut = self.tcp.shutdown(Shutdown::Write).is_ok();
        while is_shut && !self.has_ended && sys::unacknowledged_bytes(self.as_fd()).is_ok_and(|bytes| bytes > 0) {
            if Instant::now() >= deadline || self.receive().is_err() {
                return;
            }
            std::thread::sleep(LINGER_LOOK_EVERY);
        }
    }

    /// Sends and receives what is possible. If that was nothing, waits, until `deadline` at the latest.
    fn drive(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let sent = self.send()?;
        let received = self.receive()?;
        if sent || received || self.has_ended {
            return Ok(());
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.engine.receive_room().is_empty());
        flags.set(PollFlags::OUT, self.engine.outgoing().iter().any(|part| !part.is_empty()));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not move the stream in time"));
        }
        let small = self.engine.wait_ms().map(|ms| Duration::from_millis(ms.max(1)));
        let most = [left, small].into_iter().flatten().min();
        let most =
            most.map(|most| Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() });
        match poll(&mut [PollFd::from_borrowed_fd(self.tcp.as_fd(), flags)], most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends what the socket takes. Returns true if that was anything.
    fn send(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            let parts = self.engine.outgoing();
            if parts.iter().all(|part| part.is_empty()) {
                return Ok(any);
            }
            let slices = parts.map(IoSlice::new);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.tcp, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => {
                    self.engine.sent(bytes);
                    any = true;
                }
                Err(Errno::AGAIN) => return Ok(any),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives what is there. Returns true if that was anything.
    fn receive(&mut self) -> io::Result<bool> {
        let room = self.engine.receive_room();
        if room.is_empty() || self.has_ended {
            return Ok(false);
        }
        match recv(&self.tcp, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.has_ended = true,
            Ok((bytes, _)) => {
                self.engine.received(bytes).map_err(refused)?;
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Bytes that came before it are still read.
            Err(Errno::CONNRESET) => self.has_ended = true,
            Err(error) => return Err(error.into()),
        }
        Ok(false)
    }
}

impl Read for WireStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let deadline = self.read_max.map(|max| Instant::now() + max);
        loop {
            if let Some(bytes) = self.engine.read(out).map_err(refused)? {
                // Credits leave now. If they cannot, the next call reports why.
                let _ = self.send();
                return Ok(bytes);
            }
            if self.has_ended {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the peer ended without closing the stream: bytes may be missing",
                ));
            }
            match self.drive(deadline) {
                // The peer is gone, and what it sent before can still be read.
                Err(error) if is_gone(&error) => while self.receive()? {},
                driven => driven?,
            }
        }
    }
}

impl Write for WireStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let deadline = self.write_max.map(|max| Instant::now() + max);
        loop {
            let taken = self.engine.write(bytes).map_err(refused)?;
            if taken > 0 || bytes.is_empty() {
                self.send()?;
                return Ok(taken);
            }
            if self.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.drive(deadline)?;
        }
    }

    /// Waits until the socket has everything that was written.
    fn flush(&mut self) -> io::Result<()> {
        let deadline = self.write_max.map(|max| Instant::now() + max);
        loop {
            self.send()?;
            if !self.engine.has_unsent() {
                return Ok(());
            }
            if self.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.drive(deadline)?;
        }
    }
}

impl Drop for WireStream {
    fn drop(&mut self) {
        let deadline = Instant::now() + WIRE_CLOSE_MAX;
        if !self.is_shut {
            self.engine.shutdown();
        }
        while self.engine.has_unsent() && !self.has_ended {
            if self.drive(Some(deadline)).is_err() {
                return;
            }
        }
        if !self.engine.plan().is_enhanced() {
            self.linger(deadline);
        }
    }
}

impl AsFd for WireStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl WireConfig {
    fn start_frame(&self, is_reply: bool, private: &[u8]) -> StartFrame {
        StartFrame { is_reply, markers: self.markers, checksums: self.checksums, private: private.to_vec() }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn refused(error: SdpError) -> io::Error {
    let kind = match error {
        SdpError::Reset => io::ErrorKind::ConnectionReset,
        SdpError::WriteClosed => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer did not answer the hello in time: is it a stream on the wire?",
        ),
        _ => error,
    }
}
