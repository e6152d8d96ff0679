//! A connection of a program: its two ends, and the bytes between them.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::buffer::Buffer;
use super::far_end::{Choice, FarEnd, set_nonblocking};
use super::handover::Handover;
use super::local_end::LocalEnd;
use super::names::SocketNames;
use crate::endpoint::{Endpoint, WireRow};
use crate::limits::{PUMP_BREAK_MAX, PUMP_ORPHAN_MAX, PUMP_ROUNDS_MAX};
use crate::reason::Reason;
use crate::wire::WireConfig;

/// A connection that the pump carries.
#[derive(Debug)]
pub(super) struct Connection {
    local: LocalEnd,
    far: FarEnd,
    config: WireConfig,
    row: Option<WireRow>,
    to_peer: Buffer,
    to_program: Buffer,
    /// True once the peer knows that the program writes no more.
    is_peer_told: bool,
    /// True once the peer writes no more.
    has_peer_ended: bool,
    /// True once the program knows that.
    is_program_told: bool,
    /// Time until which the rest of a broken connection is delivered.
    broken_until: Option<Instant>,
    /// Time until which the peer may go on after the program has closed its end.
    orphan_until: Option<Instant>,
}

/// Result of the steps of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// An event has to come first, or this time.
    Wait(Option<Instant>),
    /// The connection can go on, and lets others go first.
    Again,
    /// The far end has a new socket.
    NewSocket,
    /// The stream ended in order.
    Finished,
    /// Both ends have to be reset.
    Broken,
}

impl Connection {
    pub(super) fn new(handover: Handover, config: &WireConfig) -> io::Result<Self> {
        let Handover { is_acceptor, process, tcp, local } = handover;
        set_nonblocking(&tcp)?;
        let names = SocketNames::of_tcp(&tcp)?;
        let row = Endpoint::of_pump(is_acceptor, process, names.own, names.peer);
        let far = if is_acceptor { FarEnd::accepted(tcp) } else { FarEnd::connected(tcp, names, config)? };
        Ok(Self {
            local: LocalEnd::new(local),
            far,
            config: *config,
            row,
            to_peer: Buffer::default(),
            to_program: Buffer::default(),
            is_peer_told: false,
            has_peer_ended: false,
            is_program_told: false,
            broken_until: None,
            orphan_until: None,
        })
    }

    pub(super) fn local(&self) -> &LocalEnd {
        &self.local
    }

    pub(super) fn far(&self) -> Option<BorrowedFd<'_>> {
        self.far.socket()
    }

    /// Takes what `epoll` reports of the program's end.
    pub(super) fn note_local(&mut self, events: EventFlags) {
        self.local.note(events);
    }

    /// Moves what can be moved without waiting.
    pub(super) fn advance(&mut self, scratch: &mut [u8]) -> Progress {
        match self.far.choose(self.local.has_news(), &self.config) {
            Ok(Choice::Wait) if self.local.is_reset() => return Progress::Broken,
            Ok(Choice::Wait) => return Progress::Wait(self.far.at(self.local.has_news())),
            Ok(Choice::NewSocket) => return Progress::NewSocket,
            Ok(Choice::Ready) => self.show(),
            Err(_) => return Progress::Broken,
        }
        for _ in 0..PUMP_ROUNDS_MAX {
            let has_moved_out = self.move_out(scratch).unwrap_or_else(|_| self.break_off());
            let has_moved_in = match self.move_in(scratch) {
                Ok(has_moved) => has_moved,
                // What the peer sent before is with the program.
                Err(_) => return Progress::Broken,
            };
            if !has_moved_out && !has_moved_in {
                return self.rest();
            }
        }
        Progress::Again
    }

    /// Decides what a connection without a move is.
    fn rest(&mut self) -> Progress {
        let has_left = self.is_peer_told && self.to_peer.is_empty();
        if has_left && self.is_program_told {
            return Progress::Finished;
        }
        // The program closed with bytes unread, or no longer exists while the peer goes on: TCP resets, too.
        let is_useless = self.local.is_reset() || self.local.is_closed() && self.local.is_refusing();
        if is_useless && (has_left || self.broken_until.is_some()) || self.local.is_reset() && self.to_peer.is_empty() {
            return Progress::Broken;
        }
        if has_left && self.local.is_closed() && self.orphan_until.is_none() {
            self.orphan_until = Some(Instant::now() + PUMP_ORPHAN_MAX);
        }
        let until = [self.broken_until, self.orphan_until].into_iter().flatten().min();
        if until.is_some_and(|until| until <= Instant::now()) {
            return Progress::Broken;
        }
        let at = [until, self.far.at(false)].into_iter().flatten().min();
        Progress::Wait(at)
    }

    /// Notes that the peer takes no more bytes; those that it sent before are still delivered, for a time.
    fn break_off(&mut self) -> bool {
        self.to_peer.clear();
        self.broken_until.get_or_insert_with(|| Instant::now() + PUMP_BREAK_MAX);
        false
    }

    /// Moves bytes of the program to the peer.
    fn move_out(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        if self.is_peer_told || self.broken_until.is_some() {
            return Ok(false);
        }
        if !self.to_peer.is_empty() {
            let Some(taken) = if_possible(self.far.write(self.to_peer.rest()))? else { return Ok(false) };
            self.to_peer.consume(taken);
            self.count_out(taken);
            return Ok(true);
        }
        match self.local.read(scratch)? {
            None => if_possible(self.far.flush()).map(|_| false),
            Some(0) => {
                self.is_peer_told = if_possible(self.far.shutdown_write())?.is_some();
                Ok(self.is_peer_told)
            }
            Some(bytes) => {
                let taken = match if_possible(self.far.write(&scratch[..bytes])) {
                    Ok(taken) => taken.unwrap_or(0),
                    Err(error) => return Err(error),
                };
                self.to_peer.fill(&scratch[taken..bytes]);
                self.count_out(taken);
                Ok(true)
            }
        }
    }

    /// Moves bytes of the peer to the program.
    fn move_in(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        if !self.to_program.is_empty() {
            let Some(taken) = self.local.write(self.to_program.rest())? else { return Ok(false) };
            self.to_program.consume(taken);
            return Ok(true);
        }
        if self.has_peer_ended {
            return Ok(false);
        }
        let Some(bytes) = if_possible(self.far.read(scratch))? else { return Ok(false) };
        if bytes == 0 {
            (self.has_peer_ended, self.is_program_told) = (true, true);
            self.local.shutdown_write();
            return Ok(true);
        }
        if let Some(row) = &self.row {
            row.add_read(bytes);
        }
        let taken = self.local.write(&scratch[..bytes])?.unwrap_or(0);
        self.to_program.fill(&scratch[taken..bytes]);
        Ok(true)
    }

    fn count_out(&self, bytes: usize) {
        if let Some(row) = &self.row {
            row.add_written(bytes);
        }
    }

    /// Shows the transport in `ddss streams`.
    fn show(&self) {
        if let Some(row) = &self.row {
            row.show(if self.far.is_wire() { Reason::WireRule } else { Reason::NoWire });
        }
    }

    /// Ends the connection.
    pub(super) fn end(self, is_in_order: bool) {
        if is_in_order {
            self.local.close_in_order();
            self.far.close();
        } else {
            drop(self.local);
            self.far.abort();
        }
    }
}

/// Turns an operation that would wait into `None`.
fn if_possible<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
