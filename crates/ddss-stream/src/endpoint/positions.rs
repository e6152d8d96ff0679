//! Positions of an end, by its own memory: what it may take and give next, and whether by the ring or by TCP.

use std::sync::atomic::Ordering;

use super::endpoint::Endpoint;
use crate::cursors::{BrokenCursor, Span, is_of_ring};
use crate::limits::{RING_BYTES, WRITABLE_BYTES};
use crate::sys::Link;

/// Side of a stream that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    Data = 0,
    Space = 1,
}

impl Want {
    pub(super) fn other(self) -> Self {
        if self == Self::Data { Self::Space } else { Self::Data }
    }
}

impl Endpoint {
    /// Returns the part of the peer's ring that this end may take next, from its own position on.
    #[inline]
    pub(crate) fn filled(&self, link: Link) -> Result<Span, BrokenCursor> {
        let (reader, incoming) = (&link.own().reader, link.incoming());
        let (head, phase) = (reader.head.load(Ordering::Relaxed), reader.phase.load(Ordering::Relaxed));
        if is_of_ring(phase) {
            return incoming.filled(head, phase, RING_BYTES);
        }
        match incoming.end(phase) {
            Some(end) if reader.tcp_read.load(Ordering::Relaxed) >= end => {
                incoming.filled(head, phase.wrapping_add(1), RING_BYTES)
            }
            _ => Ok(Span { position: head, bytes: 0 }),
        }
    }

    /// Returns the free part of this end's ring, from its own position on.
    #[inline]
    pub(crate) fn space(&self, link: Link) -> Result<Span, BrokenCursor> {
        let tail = link.own().writer.tail.load(Ordering::Relaxed);
        link.outgoing().space(tail, RING_BYTES)
    }

    /// Returns true after this end changed to its ring for the first time.
    #[inline]
    pub(crate) fn is_switched(link: Link) -> bool {
        link.own().writer.phase.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the peer has the memory, so that the end of the control socket is the end of the peer. Before, it only says that the
    /// peer stays on TCP, and TCP alone knows whether the peer is gone.
    #[inline]
    pub(crate) fn is_attached(link: Link) -> bool {
        Self::is_switched(link) || link.header().is_attached.load(Ordering::Acquire) != 0
    }

    /// Returns true if this end writes to TCP, so that the kernel knows whether it can.
    #[inline]
    #[must_use]
    pub fn writes_to_tcp(&self) -> bool {
        let Some(link) = self.local().link() else { return true };
        match link.own().writer.phase.load(Ordering::Relaxed) {
            0 => !Self::is_attached(link) || self.has_to_use_tcp(link) || !link.outgoing().is_followed(0),
            phase => !is_of_ring(phase),
        }
    }

    /// Returns true if the peer's next bytes come by the ring, and none by TCP, as far as this end knows.
    #[inline]
    pub(super) fn reads_ring(&self, link: Link) -> bool {
        let (reader, incoming) = (&link.own().reader, link.incoming());
        let phase = reader.phase.load(Ordering::Relaxed);
        match incoming.end(phase) {
            None => is_of_ring(phase),
            Some(end) => {
                let is_taken = reader.tcp_read.load(Ordering::Relaxed) >= end;
                !is_of_ring(phase) && is_taken && incoming.is_begun(phase.wrapping_add(1))
            }
        }
    }

    pub(super) fn has_to_use_tcp(&self, link: Link) -> bool {
        link.own().writer.stays_on_tcp.load(Ordering::Relaxed) != 0 || link.outgoing().is_tcp_wanted()
    }

    #[inline]
    pub(crate) fn has_ring_data(&self, link: Link) -> bool {
        // A broken cursor counts as readable: the read reports it.
        self.filled(link).map_or(true, |span| span.bytes > 0)
    }

    #[inline]
    pub(crate) fn has_ring_space(&self, link: Link) -> bool {
        !self.writes_to_tcp() && self.space(link).map_or(true, |span| span.bytes >= WRITABLE_BYTES)
    }

    /// Looks without a system call.
    pub(crate) fn has(&self, link: Link, want: Want) -> bool {
        match want {
            Want::Data => self.has_ring_data(link),
            Want::Space => self.has_ring_space(link),
        }
    }
}
