//! One connection with its socket: moves bytes between the two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::events::CloseReason;
use crate::fabric::AdmissionToken;
use crate::id::{PeerId, RegionId};
use crate::iwarp::connection::{Connection, Context, Stage};
use crate::limits::{
    EARLY_SEND_BYTES, HEADER_RECEIVE_BYTES, LINGER_BYTES, LOW_WATER_BYTES, RECEIVE_BUDGET_BYTES, RECEIVE_BYTES,
    SEND_BUDGET_BYTES, SEND_QUEUE_GATHERED_BYTES,
};
use crate::sys::{receive_into, send_parts, set_low_water};

/// Receive buffer, shared by all connections of a fabric.
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    /// Payload bytes that bypassed this buffer and were received in place.
    pub(crate) zero_copy_bytes: u64,
}

/// Longest incomplete frame to be buffered until its end arrives, markers included.
const PARTIAL_FRAME_BYTES_MAX: usize = 68 << 10;

const _: () = {
    let frame = super::mpa::FRAME_BYTES_MAX;
    assert!(
        frame + (frame / 508 + 2) * super::mpa::MARKER_BYTES <= PARTIAL_FRAME_BYTES_MAX,
        "a marked frame fits the buffer"
    );
    assert!(
        super::mpa::sealed_frame_bytes(u16::MAX as usize) <= PARTIAL_FRAME_BYTES_MAX,
        "a sealed frame fits the buffer"
    );
    assert!(
        super::mpa::START_BYTES + super::mpa::PRIVATE_BYTES_MAX <= PARTIAL_FRAME_BYTES_MAX,
        "a start frame fits the buffer"
    );
};

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; PARTIAL_FRAME_BYTES_MAX + RECEIVE_BYTES], zero_copy_bytes: 0 }
    }
}

/// State of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// TCP is still connecting.
    Connecting,
    Up,
    /// The last bytes are being sent; received bytes are discarded.
    Lingering,
    /// The socket is of no more use.
    Dead,
}

/// A connection, its socket, and its place in the fabric's lists.
pub(crate) struct Peer {
    pub(crate) socket: OwnedFd,
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    /// Incomplete frame, until more of it arrives.
    partial_frame: Vec<u8>,
    /// The socket accepted less than was offered.
    pub(crate) blocked: bool,
    /// The write side is shut down, after the last byte.
    is_write_shut: bool,
    /// Listed among the slots with something to send.
    pub(crate) dirty: bool,
    /// Listed among the slots that every poll receives from.
    pub(crate) hot: bool,
    /// Consecutive polls without a byte.
    pub(crate) quiet_polls: u32,
    /// Bytes of the last receive.
    pub(crate) received: usize,
    /// Receives with data since the last sleep.
    pub(crate) busy_receives: u32,
    /// Consecutive sleeps without a byte between them.
    pub(crate) quiet_sleeps: u8,
    /// Flags that epoll watches the socket for.
    pub(crate) watched: EventFlags,
    /// The socket is not readable for epoll until [`LOW_WATER_BYTES`] have arrived.
    low_water: bool,
    /// `close` was called.
    pub(crate) closing: bool,
    /// Counted among the connections that send their last bytes.
    pub(crate) lingers: bool,
    /// The connection is not accepted yet.
    pub(crate) half_open: bool,
    /// The options of its socket are set.
    pub(crate) has_options: bool,
    /// Token from the admission filter.
    pub(crate) admission_token: Option<AdmissionToken>,
    pub(crate) deadline: Option<Instant>,
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Some,
    /// The budget is used up; more bytes may wait.
    More,
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd, connection: Connection, link: Link) -> Self {
        Self {
            socket,
            connection,
            link,
            partial_frame: Vec::new(),
            blocked: false,
            is_write_shut: false,
            dirty: false,
            hot: false,
            quiet_polls: 0,
            received: 0,
            busy_receives: 0,
            quiet_sleeps: 0,
            watched: EventFlags::empty(),
            low_water: false,
            closing: false,
            lingers: false,
            half_open: false,
            has_options: false,
            admission_token: None,
            deadline: None,
        }
    }

    pub(crate) fn id(&self) -> PeerId {
        self.connection.id()
    }

    /// Raises the low-water mark while only [`receive`](Self::receive) reads the socket, so that the kernel
    /// acknowledges packets on arrival. The mark is restored before epoll watches the socket.
    pub(crate) fn set_low_water_mark(&mut self, raised: bool) -> io::Result<()> {
        if raised != self.low_water {
            set_low_water(self.socket.as_fd(), if raised { LOW_WATER_BYTES } else { 1 })?;
            self.low_water = raised;
        }
        Ok(())
    }

    /// Receives and processes, up to a budget.
    pub(crate) fn receive(&mut self, scratch: &mut Scratch, cx: &mut Context<'_>) -> Received {
        let mut budget = if self.link == Link::Lingering { LINGER_BYTES } else { RECEIVE_BUDGET_BYTES };
        let mut result = Received::Nothing;
        self.received = 0;
        while matches!(self.link, Link::Up | Link::Lingering) {
            let received = match self.connection.direct_target() {
                Some(direct) => self.receive_direct(direct, scratch, cx),
                None => self.receive_plain(scratch, cx),
            };
            let (count, drained) = match received {
                Ok(some) => some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.abort(CloseReason::Lost(error.kind()), cx);
                    return Received::Some;
                }
            };
            if count == 0 {
                self.abort(CloseReason::ClosedByPeer, cx);
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
        let buffered = self.partial_frame.len();
        scratch.bytes[..buffered].copy_from_slice(&self.partial_frame);
        let wanted = match self.link {
            Link::Lingering => LINGER_BYTES,
            _ if self.connection.expects_large() => HEADER_RECEIVE_BYTES,
            _ => RECEIVE_BYTES,
        };
        let room = &mut scratch.bytes[buffered..buffered + wanted];
        let (_, count) = rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT)?;
        if count > 0 && self.link == Link::Up {
            let bytes = &mut scratch.bytes[..buffered + count];
            let used = self.connection.receive(bytes, cx);
            self.buffer_rest(&scratch.bytes[used..buffered + count]);
        }
        Ok((count, count < wanted))
    }

    fn receive_direct(
        &mut self,
        (region, offset, bytes): (RegionId, u64, usize),
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
    ) -> io::Result<(usize, bool)> {
        let rest = &mut scratch.bytes[..HEADER_RECEIVE_BYTES];
        let mapping = cx.memory.mapping(region);
        let count = receive_into(self.socket.as_fd(), mapping, offset as usize, bytes, rest)?;
        let placed = count.min(bytes);
        scratch.zero_copy_bytes += placed as u64;
        if placed > 0 {
            self.connection.advance_placement(placed, cx);
        }
        let more = &mut scratch.bytes[..count - placed];
        let used = self.connection.receive(more, cx);
        self.buffer_rest(&scratch.bytes[used..count - placed]);
        Ok((count, count < bytes + HEADER_RECEIVE_BYTES))
    }

    fn buffer_rest(&mut self, rest: &[u8]) {
        assert!(rest.len() <= PARTIAL_FRAME_BYTES_MAX, "an incomplete frame is shorter than the longest one");
        self.partial_frame.clear();
        self.partial_frame.extend_from_slice(rest);
    }

    /// Sends encoded bytes, as far as the socket accepts them.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.link, Link::Up | Link::Lingering) {
            return;
        }
        self.blocked = false;
        let mut budget = SEND_BUDGET_BYTES;
        // The start of a lone large message is sent while the rest is encoded, so that the receiver can begin. Many
        // messages are sent together.
        loop {
            let send_early = self.connection.has_few_messages();
            let limit = match send_early {
                true if budget == SEND_BUDGET_BYTES => EARLY_SEND_BYTES,
                true => SEND_QUEUE_GATHERED_BYTES - EARLY_SEND_BYTES,
                false => SEND_QUEUE_GATHERED_BYTES,
            };
            self.connection.encode_pending(limit, cx);
            if send_early && self.connection.has_only_small_messages() {
                // A packet of its own costs more than the rest.
                self.connection.encode_pending(SEND_QUEUE_GATHERED_BYTES, cx);
            }
            if self.connection.send_queue().is_empty() {
                break;
            }
            match self.send_once(send_early, cx) {
                Ok(count) => {
                    self.connection.sent(count, cx);
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        self.connection.copy_in_place_payload(cx.memory);
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    self.connection.copy_in_place_payload(cx.memory);
                    return;
                }
                Err(error) => {
                    self.abort(CloseReason::Lost(error.kind()), cx);
                    return;
                }
            }
        }
        if self.link == Link::Lingering && !self.is_write_shut {
            self.is_write_shut = true;
            // The other side may be gone already; then there is no receiver.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        }
    }

    fn send_once(&mut self, send_early: bool, cx: &Context<'_>) -> io::Result<usize> {
        let send_queue = self.connection.send_queue();
        // More bytes follow immediately, so a packet that is not full may wait for them.
        let more = !send_early && self.connection.has_more();
        match send_queue.single() {
            Some(bytes) => {
                let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                flags.set(SendFlags::MORE, more);
                rustix::net::send(&self.socket, bytes, flags).map_err(|error: Errno| error.into())
            }
            None => send_parts(self.socket.as_fd(), send_queue.parts(cx.memory), more),
        }
    }

    /// Ends the connection and gives up the socket. An earlier reason, which the owner knows, stays.
    pub(crate) fn abort(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.connection.end(reason, &[], false, None, cx);
        self.link = Link::Dead;
        self.connection.discard(cx.memory);
    }

    /// Returns true if the connection has ended but its socket is still open.
    pub(crate) fn should_linger(&self) -> bool {
        self.connection.stage() == Stage::Ended && self.link == Link::Up
    }
}
