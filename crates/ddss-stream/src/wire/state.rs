//! State of a stream on the wire and its steps, none of which waits.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ddss_sdp::{CopyLedger, Plan};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::engine::Engine;
use super::error::refused;
use super::negotiation::{Negotiation, Step};

/// State behind the lock of a stream.
pub(super) struct WireState {
    phase: Phase,
    /// True once the peer's end of the TCP connection is gone.
    pub(super) has_ended: bool,
    pub(super) is_shut: bool,
    pub(super) is_read_shut: bool,
    pub(super) is_nonblocking: bool,
    pub(super) read_max: Option<Duration>,
    pub(super) write_max: Option<Duration>,
    /// Threads that sleep in `poll`.
    pub(super) waiters: u32,
    /// True while the waiters' descriptor is readable.
    pub(super) is_rung: bool,
    /// True if bytes moved since the waiters were woken: a step of another thread may be possible now.
    pub(super) has_moved: bool,
}

enum Phase {
    /// Start frames travel.
    Start(Box<Negotiation>),
    /// Frames travel.
    Open(Engine),
    /// The start failed.
    Failed(io::ErrorKind, String),
}

/// Events that let a stream go on.
pub(crate) struct Interest {
    /// Conditions of the socket.
    pub(crate) flags: PollFlags,
    /// Time at which the stream has to go on without one.
    pub(crate) at: Option<Instant>,
}

impl WireState {
    pub(super) fn new(negotiation: Negotiation) -> Self {
        Self {
            phase: Phase::Start(Box::new(negotiation)),
            has_ended: false,
            is_shut: false,
            is_read_shut: false,
            is_nonblocking: false,
            read_max: None,
            write_max: None,
            waiters: 0,
            is_rung: false,
            has_moved: false,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        match &self.phase {
            Phase::Start(negotiation) => negotiation.wanted_plan(),
            Phase::Open(engine) => engine.plan(),
            Phase::Failed(..) => Plan::basic(),
        }
    }

    pub(super) fn ledger(&self) -> CopyLedger {
        match &self.phase {
            Phase::Open(engine) => engine.ledger(),
            _ => CopyLedger::default(),
        }
    }

    pub(super) fn messages(&self) -> u32 {
        match &self.phase {
            Phase::Open(engine) => engine.messages(),
            _ => 0,
        }
    }

    /// Completes the start. `None`: the peer has to move first.
    pub(super) fn try_start(&mut self, tcp: &TcpStream) -> io::Result<Option<()>> {
        Ok(self.open(tcp)?.map(|_| ()))
    }

    /// Reads; `Some(0)` is the end of the stream. `None`: the peer has to move first.
    pub(super) fn try_read(&mut self, tcp: &TcpStream, out: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let is_read_shut = self.is_read_shut;
            let Some(engine) = self.open(tcp)? else { return Ok(None) };
            if let Some(bytes) = if is_read_shut { Some(0) } else { engine.read(out).map_err(refused)? } {
                self.has_moved |= bytes > 0;
                // Credits leave now. If they cannot, the next call reports why.
                let _ = self.send(tcp);
                return Ok(Some(bytes));
            }
            if self.has_ended {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the peer ended without closing the stream: bytes may be missing",
                ));
            }
            let has_moved = match self.send(tcp) {
                Ok(has_sent) => self.receive(tcp)? || has_sent,
                // The peer is gone, and the bytes that it sent before can still be read.
                Err(error) if is_gone(&error) => {
                    while self.receive(tcp)? {}
                    true
                }
                Err(error) => return Err(error),
            };
            if !has_moved && !self.has_ended {
                return Ok(None);
            }
        }
    }

    /// Writes what the send ring takes, which is at least a byte. `None`: the peer has to move first.
    pub(super) fn try_write(&mut self, tcp: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            let Some(engine) = self.open(tcp)? else { return Ok(None) };
            let taken = engine.write(bytes).map_err(refused)?;
            if taken > 0 || bytes.is_empty() {
                self.send(tcp)?;
                return Ok(Some(taken));
            }
            if !self.advance(tcp)? {
                return Ok(None);
            }
        }
    }

    /// Gives the socket everything that was written. `None`: the peer has to move first.
    pub(super) fn try_flush(&mut self, tcp: &TcpStream) -> io::Result<Option<()>> {
        loop {
            if self.open(tcp)?.is_none() {
                return Ok(None);
            }
            self.send(tcp)?;
            if !self.has_unsent() {
                return Ok(Some(()));
            }
            if !self.advance(tcp)? {
                return Ok(None);
            }
        }
    }

    /// Closes the direction of this side and gives the socket everything that was written.
    pub(super) fn try_shutdown(&mut self, tcp: &TcpStream) -> io::Result<Option<()>> {
        let Some(engine) = self.open(tcp)? else { return Ok(None) };
        engine.shutdown();
        self.is_shut = true;
        self.try_flush(tcp)
    }

    /// Sends and receives. Returns true if anything moved; fails if the peer is gone.
    pub(super) fn advance(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if self.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let has_sent = self.send(tcp)?;
        Ok(self.receive(tcp)? || has_sent)
    }

    /// Returns true if anything that was written has not left.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(&self.phase, Phase::Open(engine) if engine.has_unsent())
    }

    /// Closes the direction of this side, if frames travel.
    pub(super) fn close_direction(&mut self) {
        if let Phase::Open(engine) = &mut self.phase
            && !self.is_shut
        {
            engine.shutdown();
            self.is_shut = true;
        }
    }

    /// Returns true if credits of the peer can arrive after the last read.
    pub(super) fn has_credits(&self) -> bool {
        matches!(&self.phase, Phase::Open(engine) if !engine.plan().is_enhanced())
    }

    /// Returns the events that let the stream go on after a step that returned `None`.
    pub(super) fn interest(&mut self) -> Interest {
        let mut flags = PollFlags::empty();
        match &mut self.phase {
            Phase::Start(negotiation) => {
                flags.set(PollFlags::OUT, negotiation.has_unsent());
                flags.set(PollFlags::IN, !negotiation.has_unsent());
                Interest { flags, at: Some(negotiation.deadline()) }
            }
            Phase::Open(engine) => {
                flags.set(PollFlags::IN, !self.has_ended && !engine.receive_room().is_empty());
                flags.set(PollFlags::OUT, engine.outgoing().iter().any(|part| !part.is_empty()));
                let wait = engine.wait_ms().map(|ms| Duration::from_millis(ms.max(1)));
                Interest { flags, at: wait.map(|wait| Instant::now() + wait) }
            }
            Phase::Failed(..) => Interest { flags, at: None },
        }
    }

    /// Returns the engine once the start is complete. `None`: the peer has to move first.
    fn open(&mut self, tcp: &TcpStream) -> io::Result<Option<&mut Engine>> {
        if let Phase::Start(negotiation) = &mut self.phase {
            match negotiation.step(tcp) {
                Ok(Step::Wait) => return Ok(None),
                Ok(Step::Done(engine)) => {
                    self.has_moved = true;
                    self.phase = Phase::Open(engine);
                }
                Err(error) => self.phase = Phase::Failed(error.kind(), error.to_string()),
            }
        }
        match &mut self.phase {
            Phase::Open(engine) => Ok(Some(engine)),
            Phase::Failed(kind, text) => Err(io::Error::new(*kind, text.clone())),
            Phase::Start(_) => Ok(None),
        }
    }

    /// Sends what the socket takes. Returns true if that was anything.
    pub(super) fn send(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        let Phase::Open(engine) = &mut self.phase else { return Ok(false) };
        let mut has_sent = false;
        loop {
            let parts = engine.outgoing();
            if parts.iter().all(|part| part.is_empty()) {
                return Ok(has_sent);
            }
            let slices = parts.map(IoSlice::new);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(tcp, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => {
                    engine.sent(bytes);
                    has_sent = true;
                    self.has_moved = true;
                }
                Err(Errno::AGAIN) => return Ok(has_sent),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives what is there. Returns true if that was anything.
    pub(super) fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        let Phase::Open(engine) = &mut self.phase else { return Ok(false) };
        let room = engine.receive_room();
        if room.is_empty() || self.has_ended {
            return Ok(false);
        }
        match recv(tcp, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.has_ended = true,
            Ok((bytes, _)) => {
                engine.received(bytes).map_err(refused)?;
                self.has_moved = true;
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            // Bytes that came before it are still read.
            Err(Errno::CONNRESET) => self.has_ended = true,
            Err(error) => return Err(error.into()),
        }
        self.has_moved = true;
        Ok(false)
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
