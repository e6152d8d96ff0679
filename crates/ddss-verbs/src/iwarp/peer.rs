//! One connection and its socket: how bytes get from the one to the other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::events::CloseReason;
use crate::fabric::{AdmissionToken, PeerId};
use crate::iwarp::connection::{Connection, Context, Stage};
use crate::limits::{
    BULK_BYTES, EARLY_BYTES, LINGER_BYTES, LOW_WATER_BYTES, NEXT_BYTES, RECEIVE_BUDGET_BYTES, RECEIVE_BYTES,
    SEND_BUDGET_BYTES,
};
use crate::sys::{receive_into, send_parts, set_low_water};

/// Where a receive lands. One for all connections of a fabric.
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    /// Bytes of payload that did not land here, but went straight to their place.
    pub(crate) straight: u64,
}

/// The longest frame that may have to be kept until its end arrives, markers included.
const KEPT_BYTES_MAX: usize = 68 << 10;

const _: () = {
    let frame = super::mpa::FRAME_BYTES_MAX;
    assert!(frame + (frame / 508 + 2) * super::mpa::MARKER_BYTES <= KEPT_BYTES_MAX, "a marked frame is kept whole");
    assert!(super::mpa::START_BYTES + super::mpa::PRIVATE_BYTES_MAX <= KEPT_BYTES_MAX, "a start frame is kept whole");
};

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; KEPT_BYTES_MAX + RECEIVE_BYTES], straight: 0 }
    }
}

/// How far a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// TCP is still connecting.
    Connecting,
    Up,
    /// The last bytes are being sent; what comes in is thrown away.
    Lingering,
    /// Nothing more can be done with it.
    Dead,
}

/// See the module.
pub(crate) struct Peer {
    pub(crate) socket: OwnedFd,
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    /// An incomplete frame, until more of it arrives.
    kept: Vec<u8>,
    /// The socket took less than there is.
    pub(crate) blocked: bool,
    /// The write side is shut down, after the last byte.
    shut: bool,
    /// It is in the list of those with something to send.
    pub(crate) dirty: bool,
    /// It is in the list of those that are polled directly.
    pub(crate) hot: bool,
    /// Polls in a row without a byte.
    pub(crate) quiet: u32,
    /// Bytes that the last receive brought.
    pub(crate) received: usize,
    /// Receives that brought something since the last sleep.
    pub(crate) busy: u32,
    /// What epoll watches it for.
    pub(crate) watched: EventFlags,
    /// Its socket is not readable for epoll before [`LOW_WATER_BYTES`] are there.
    low_water: bool,
    /// `close` was called.
    pub(crate) closing: bool,
    /// It is counted among those whose last bytes are being sent.
    pub(crate) lingers: bool,
    /// Nobody accepted it yet.
    pub(crate) half_open: bool,
    /// Its socket behaves as this fabric wants it.
    pub(crate) tuned: bool,
    /// What the guard gave it.
    pub(crate) pass: Option<AdmissionToken>,
    pub(crate) deadline: Option<Instant>,
}

/// What a receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Some,
    /// The budget is used up and there may be more.
    More,
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd, connection: Connection, link: Link) -> Self {
        Self {
            socket,
            connection,
            link,
            kept: Vec::new(),
            blocked: false,
            shut: false,
            dirty: false,
            hot: false,
            quiet: 0,
            received: 0,
            busy: 0,
            watched: EventFlags::empty(),
            low_water: false,
            closing: false,
            lingers: false,
            half_open: false,
            tuned: false,
            pass: None,
            deadline: None,
        }
    }

    pub(crate) fn id(&self) -> PeerId {
        self.connection.id()
    }

    /// While nothing but [`receive`](Self::receive) looks at its socket: what comes is acknowledged as it comes. It has to end before
    /// epoll watches the socket.
    pub(crate) fn acknowledge_early(&mut self, early: bool) -> io::Result<()> {
        if early != self.low_water {
            set_low_water(self.socket.as_fd(), if early { LOW_WATER_BYTES } else { 1 })?;
            self.low_water = early;
        }
        Ok(())
    }

    /// Receives and works, up to a budget.
    pub(crate) fn receive(&mut self, scratch: &mut Scratch, cx: &mut Context<'_>) -> Received {
        let mut budget = if self.link == Link::Lingering { LINGER_BYTES } else { RECEIVE_BUDGET_BYTES };
        let mut result = Received::Nothing;
        self.received = 0;
        while matches!(self.link, Link::Up | Link::Lingering) {
            let received = match self.connection.direct() {
                Some(direct) => self.receive_direct(direct, scratch, cx),
                None => self.receive_plain(scratch, cx),
            };
            let (count, drained) = match received {
                Ok(some) => some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.lose(CloseReason::Lost(error.kind()), cx);
                    return Received::Some;
                }
            };
            if count == 0 {
                self.lose(CloseReason::Gone, cx);
                return Received::Some;
            }
            result = Received::Some;
            self.received += count;
            budget = budget.saturating_sub(count);
            if drained {
                break;
            }
            if budget == 0 {
                return Received::More;
            }
        }
        result
    }

    fn receive_plain(&mut self, scratch: &mut Scratch, cx: &mut Context<'_>) -> io::Result<(usize, bool)> {
        let kept = self.kept.len();
        scratch.bytes[..kept].copy_from_slice(&self.kept);
        let wanted = match self.link {
            Link::Lingering => LINGER_BYTES,
            _ if self.connection.expects_large() => NEXT_BYTES,
            _ => RECEIVE_BYTES,
        };
        let room = &mut scratch.bytes[kept..kept + wanted];
        let (_, count) = rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT)?;
        if count > 0 && self.link == Link::Up {
            let bytes = &scratch.bytes[..kept + count];
            let used = self.connection.receive(bytes, cx);
            self.keep(&scratch.bytes[used..kept + count]);
        }
        Ok((count, count < wanted))
    }

    fn receive_direct(
        &mut self,
        (region, offset, bytes): (crate::fabric::RegionId, u64, usize),
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
    ) -> io::Result<(usize, bool)> {
        let rest = &mut scratch.bytes[..NEXT_BYTES];
        let mapping = cx.memory.held(region);
        let count = receive_into(self.socket.as_fd(), mapping, offset as usize, bytes, rest)?;
        let placed = count.min(bytes);
        scratch.straight += placed as u64;
        if placed > 0 {
            self.connection.placed(placed, cx);
        }
        let more = &scratch.bytes[..count - placed];
        let used = self.connection.receive(more, cx);
        self.keep(&scratch.bytes[used..count - placed]);
        Ok((count, count < bytes + NEXT_BYTES))
    }

    fn keep(&mut self, rest: &[u8]) {
        assert!(rest.len() <= KEPT_BYTES_MAX, "an incomplete frame is shorter than the longest one");
        self.kept.clear();
        self.kept.extend_from_slice(rest);
    }

    /// Sends what there is, as far as the socket takes it.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.link, Link::Up | Link::Lingering) {
            return;
        }
        self.blocked = false;
        let mut budget = SEND_BUDGET_BYTES;
        // A lone large message is sent while it is encoded, so that the other side has something to do meanwhile; many are
        // sent together.
        loop {
            let early = self.connection.has_little();
            let limit = match early {
                true if budget == SEND_BUDGET_BYTES => EARLY_BYTES,
                true => BULK_BYTES - EARLY_BYTES,
                false => BULK_BYTES,
            };
            self.connection.pump(limit, cx);
            if early && self.connection.ends_soon() {
                // A packet of its own costs more than what is left.
                self.connection.pump(BULK_BYTES, cx);
            }
            if self.connection.outbox().is_empty() {
                break;
            }
            match self.send_once(early, cx) {
                Ok(count) => {
                    self.connection.sent(count, cx);
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        self.connection.take_in(cx.memory);
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    self.connection.take_in(cx.memory);
                    return;
                }
                Err(error) => {
                    self.lose(CloseReason::Lost(error.kind()), cx);
                    return;
                }
            }
        }
        if self.link == Link::Lingering && !self.shut {
            self.shut = true;
            // The other side may already be gone; there is nobody left to tell.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        }
    }

    fn send_once(&mut self, early: bool, cx: &Context<'_>) -> io::Result<usize> {
        let outbox = self.connection.outbox();
        // More follows at once, so a packet that is not full may wait for it.
        let more = !early && self.connection.has_more();
        match outbox.single() {
            Some(bytes) => {
                let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                flags.set(SendFlags::MORE, more);
                rustix::net::send(&self.socket, bytes, flags).map_err(|error: Errno| error.into())
            }
            None => send_parts(self.socket.as_fd(), outbox.parts(cx.memory), more),
        }
    }

    /// The socket is of no more use. A reason that is already known to the owner stays.
    pub(crate) fn lose(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.connection.end(reason, &[], false, None, cx);
        self.link = Link::Dead;
        self.connection.discard(cx.memory);
    }

    /// Whether the connection has ended but the socket has not yet been told.
    pub(crate) fn should_linger(&self) -> bool {
        self.connection.stage() == Stage::Ended && self.link == Link::Up
    }
}
