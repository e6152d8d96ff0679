//! State of a stream on the wire and its steps, none of which waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ddss_sdp::{CopyLedger, Plan};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg};

use super::engine::Engine;
use super::error::refused;
use super::negotiation::{Negotiation, Step};
use super::socket_memory::{Incoming, Outgoing, ReadCall};

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
    /// Memory that the last step of a call lent to the stream.
    pub(super) lent: Lent,
    /// True while a call to read has the stream for itself: it may wait inside the socket, which saves two system calls.
    pub(super) is_exclusive: bool,
    /// System calls on the socket so far.
    pub(super) calls: SystemCalls,
}

/// Counts of system calls, for tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct SystemCalls {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) waits: u32,
}

/// Memory that a call lends to the stream while it waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lent {
    Nothing,
    /// A read of the peer's memory fills it.
    Sink,
    /// It is advertised, and the call goes on at this time.
    Source(Option<Instant>),
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
            lent: Lent::Nothing,
            is_exclusive: false,
            calls: SystemCalls::default(),
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
    pub(super) fn try_read(&mut self, tcp: &TcpStream, call: &mut ReadCall<'_>) -> io::Result<Option<usize>> {
        loop {
            let is_read_shut = self.is_read_shut && !call.is_placing;
            let Some(engine) = self.open(tcp)? else { return Ok(None) };
            if let Some(bytes) = if is_read_shut { Some(0) } else { engine.read(call).map_err(refused)? } {
                self.has_moved |= bytes > 0;
                // Credits leave now. If they cannot, the next call reports why.
                let _ = self.send(tcp, None);
                return Ok(Some(bytes));
            }
            if self.has_ended {
                if self.peer_ended() {
                    continue;
                }
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the peer ended without closing the stream: bytes may be missing",
                ));
            }
            let mut place = |state: &mut Self| state.receive(tcp, call.is_placing.then_some(&mut *call.out));
            let has_moved = match self.send(tcp, None) {
                Ok(has_sent) => place(self)? || has_sent,
                // The peer is gone, and the bytes that it sent before can still be read.
                Err(error) if is_gone(&error) => {
                    self.is_exclusive = false;
                    while place(self)? {}
                    true
                }
                Err(error) => return Err(error),
            };
            if !has_moved && !self.has_ended {
                self.lent = if call.is_placing { Lent::Sink } else { Lent::Nothing };
                return Ok(None);
            }
        }
    }

    /// Takes the memory of a call to read away from the stream.
    pub(super) fn end_borrow(&mut self, memory: &[u8]) {
        if let Phase::Open(engine) = &mut self.phase {
            engine.end_borrow(memory);
            self.has_moved = true;
        }
    }

    fn peer_ended(&mut self) -> bool {
        if let Phase::Open(engine) = &mut self.phase { engine.peer_ended() } else { false }
    }

    /// Writes what the send ring takes, which is at least a byte. `None`: the peer has to move first.
    pub(super) fn try_write(&mut self, tcp: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            let Some(engine) = self.open(tcp)? else { return Ok(None) };
            let taken = engine.write(bytes).map_err(refused)?;
            if taken > 0 || bytes.is_empty() {
                if engine.take_look() {
                    self.receive(tcp, None)?;
                }
                self.send_what(tcp, None, true)?;
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
            self.send(tcp, None)?;
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
        let has_sent = self.send(tcp, None)?;
        Ok(self.receive(tcp, None)? || has_sent)
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
    pub(super) fn interest(&mut self, lent: Lent) -> Interest {
        let mut flags = PollFlags::empty();
        match &mut self.phase {
            Phase::Start(negotiation) => {
                flags.set(PollFlags::OUT, negotiation.has_unsent());
                flags.set(PollFlags::IN, !negotiation.has_unsent());
                Interest { flags, at: Some(negotiation.deadline()) }
            }
            Phase::Open(engine) => {
                flags.set(PollFlags::IN, !self.has_ended && engine.wants_receive(lent == Lent::Sink));
                flags.set(PollFlags::OUT, engine.wants_send(matches!(lent, Lent::Source(_))));
                let message_at = engine.wait_ms().map(|ms| Instant::now() + Duration::from_millis(ms.max(1)));
                let call_at = if let Lent::Source(at) = lent { at } else { None };
                Interest { flags, at: [message_at, call_at].into_iter().flatten().min() }
            }
            Phase::Failed(..) => Interest { flags, at: None },
        }
    }

    /// Returns the engine once the start is complete. `None`: the peer has to move first.
    pub(super) fn open(&mut self, tcp: &TcpStream) -> io::Result<Option<&mut Engine>> {
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

    /// Ends the stream: every later call fails with this error.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.phase = Phase::Failed(error.kind(), error.to_string());
        self.has_moved = true;
    }

    /// Sends what the socket takes. Returns true if that was anything. `memory` is that of the advertisement, if the call made it.
    pub(super) fn send(&mut self, tcp: &TcpStream, memory: Option<&[u8]>) -> io::Result<bool> {
        self.send_what(tcp, memory, false)
    }

    fn send_what(&mut self, tcp: &TcpStream, memory: Option<&[u8]>, may_hold: bool) -> io::Result<bool> {
        let Phase::Open(engine) = &mut self.phase else { return Ok(false) };
        let mut has_sent = false;
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut control = SendAncillaryBuffer::default();
            let result = match engine.outgoing(memory, may_hold) {
                Outgoing::Nothing => return Ok(has_sent),
                Outgoing::Frames(parts) => sendmsg(tcp, &parts.map(IoSlice::new), &mut control, flags),
                Outgoing::Segment(slices) => sendmsg(tcp, &slices, &mut control, flags),
            };
            self.calls.sends = self.calls.sends.wrapping_add(1);
            match result {
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

    /// Returns true if only bytes of the peer let the stream go on, and no other thread and no time does.
    fn can_wait_in_socket(&mut self) -> bool {
        self.is_exclusive && !self.is_nonblocking && self.read_max.is_none() && {
            let Interest { flags, at } = self.interest(Lent::Nothing);
            flags == PollFlags::IN && at.is_none()
        }
    }

    /// Receives what is there. Returns true if that was anything. `place` is the memory of the call, if a read fills it.
    pub(super) fn receive(&mut self, tcp: &TcpStream, mut place: Option<&mut [u8]>) -> io::Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        let flags = if self.can_wait_in_socket() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let Phase::Open(engine) = &mut self.phase else { return Ok(false) };
        let result = match engine.incoming(place.as_deref_mut()) {
            Incoming::Frames([]) => return Ok(false),
            Incoming::Frames(room) => recv(tcp, room, flags).map(|(bytes, _)| bytes),
            Incoming::Segment(mut slices) => receive_parts(tcp, &mut slices),
        };
        self.calls.receives = self.calls.receives.wrapping_add(1);
        match result {
            Ok(0) => self.has_ended = true,
            Ok(bytes) => {
                engine.received(bytes, place).map_err(refused)?;
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

fn receive_parts(tcp: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> rustix::io::Result<usize> {
    recvmsg(tcp, slices, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT).map(|message| message.bytes)
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
