//! Peeks over the border of two phases.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::endpoint::Endpoint;
use crate::cursors::{Span, is_of_ring};
use crate::limits::RING_BYTES;
use crate::sys::{self, Descriptor, Link, UserMemory};

impl Endpoint {
    /// Peeks behind the `done` bytes of a phase if it ends with them. Returns the number of bytes behind them.
    pub(super) fn peek_next_phase(
        &self,
        socket: Descriptor,
        link: Link,
        to: &UserMemory<'_>,
        done: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        let (reader, incoming) = (&link.own().reader, link.incoming());
        let (head, tcp_read) = (reader.head.load(Ordering::Relaxed), reader.tcp_read.load(Ordering::Relaxed));
        let phase = reader.phase.load(Ordering::Relaxed);
        let (next, position) = (phase.wrapping_add(1), if is_of_ring(phase) { head } else { tcp_read });
        let room = to.bytes() - done;
        if room == 0 || incoming.end(phase) != Some(position.wrapping_add(done as u64)) {
            return Ok(0);
        }
        if is_of_ring(next) {
            let span = incoming.filled(head, next, RING_BYTES).map_err(|_| Errno::CONNRESET)?;
            if span.bytes < room && incoming.end(next).is_some() {
                return self.peek_last_phase(socket, link, to, done, span, flags);
            }
            let span = Span { bytes: span.bytes.min(room), ..span };
            if flags & libc::MSG_TRUNC == 0 {
                link.read(link.side() ^ 1, span, to, done)?;
            }
            return Ok(span.bytes);
        }
        // As in `read_tcp`: how many there are, then whether they belong to this phase.
        let waiting = rustix::io::ioctl_fionread(socket)?;
        let bytes = incoming.end(next).map_or(waiting, |end| end.saturating_sub(tcp_read).min(waiting)) as usize;
        if bytes == 0 || sys::is_at_mark(socket) {
            return Ok(0);
        }
        to.receive(socket.0, done, bytes.min(room), flags & (libc::MSG_PEEK | libc::MSG_TRUNC))
    }

    /// Peeks at the ring's bytes behind the `done` bytes of TCP, and at those of TCP behind both: the last phase that a writer can have
    /// begun. The kernel peeks from the first byte only, so that the last bytes come first, behind a copy of the first ones.
    fn peek_last_phase(
        &self,
        socket: Descriptor,
        link: Link,
        to: &UserMemory<'_>,
        done: usize,
        ring: Span,
        flags: i32,
    ) -> Result<usize, Errno> {
        let waiting = rustix::io::ioctl_fionread(socket)? as usize;
        let last = waiting.saturating_sub(done).min(to.bytes() - done - ring.bytes);
        if flags & libc::MSG_TRUNC != 0 {
            return Ok(ring.bytes + last);
        }
        let received = match last {
            0 => done,
            _ => to.receive(socket.0, ring.bytes, done + last, libc::MSG_PEEK)?,
        };
        if last > 0 && to.receive(socket.0, 0, done, libc::MSG_PEEK)? < done {
            return Err(Errno::CONNRESET);
        }
        link.read(link.side() ^ 1, ring, to, done)?;
        Ok(ring.bytes + received.saturating_sub(done))
    }
}
