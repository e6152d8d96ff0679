//! Reads and writes of a shared stream, phase by phase: bytes of TCP, of the ring, and of TCP again.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::endpoint::Endpoint;
use super::positions::Want;
use super::readiness::Latched;
use crate::cursors::is_of_ring;
use crate::limits::{LOOK_BESIDE_SET, PHASES_MAX, PROBE_WRITES, RING_BYTES, WRITABLE_BYTES};
use crate::reason::Reason;
use crate::sys::{self, Descriptor, Hidden, Link, UserMemory};
use crate::thread_lock::ThreadLock;

/// Result of a step of a read.
enum Taken {
    Bytes(usize),
    /// The phase has ended, and the next one has the bytes.
    Phase,
    /// The stream has ended.
    End,
}

impl Endpoint {
    /// Reads as `recv` does, with its flags. 0 is the end of the stream.
    pub fn read(&self, socket: Descriptor, to: &UserMemory<'_>, flags: i32) -> Result<usize, Errno> {
        let (mut done, mut deadline, mut is_last) = (0, None, false);
        let is_peek = flags & libc::MSG_PEEK != 0;
        let low_water = self.local().low_water.load(Ordering::Relaxed) as usize + 1;
        let wanted = if flags & libc::MSG_WAITALL == 0 { low_water.min(to.bytes()) } else { to.bytes() };
        loop {
            // Bytes that come soon cost no system call but the one that says whether this call may wait.
            let has_spun = self.awaits_ring(to.bytes() - done) && !is_nonblocking(socket, flags);
            if has_spun {
                self.spin(Want::Data);
            }
            let taken = self.try_read(socket, to, if is_peek { 0 } else { done }, flags);
            let seen = taken.unwrap_or(0);
            match taken {
                Ok(0) => return Ok(done),
                Ok(bytes) => {
                    done = if is_peek { bytes } else { done + bytes };
                    if done >= wanted || is_last {
                        return Ok(done);
                    }
                    if !is_peek {
                        continue;
                    }
                    if is_nonblocking(socket, flags) {
                        return Ok(done);
                    }
                }
                Err(Errno::AGAIN | Errno::DEADLK) if is_nonblocking(socket, flags) => {
                    return some_or(done, Errno::AGAIN);
                }
                Err(Errno::AGAIN) => {
                    if !has_spun && self.spin(Want::Data) {
                        continue;
                    }
                }
                Err(error) => return some_or(done, error),
            }
            let until = *deadline.get_or_insert_with(|| Self::deadline(socket, Want::Data));
            let rested = match seen {
                0 => self.rest_until(socket, Want::Data, until),
                _ => self.rest_for_more(socket, to, seen, until).map(|may_come| is_last = !may_come),
            };
            match rested {
                Ok(()) => (),
                Err(Errno::INTR) if done == 0 && until.is_none() && crate::signals::are_calls_restarted() => (),
                Err(error) => return some_or(done, error),
            }
        }
    }

    /// Writes as `send` does, with its flags. A blocking call writes everything.
    pub fn write(&self, socket: Descriptor, from: &UserMemory<'_>, flags: i32) -> Result<usize, Errno> {
        let (mut done, mut deadline, mut is_announced) = (0, None, false);
        loop {
            match self.try_write(socket, from, done, flags) {
                Ok(bytes) => {
                    done += bytes;
                    if done >= from.bytes() {
                        return Ok(done);
                    }
                    if bytes > 0 || !is_announced && self.goes_on_by_tcp() {
                        continue;
                    }
                }
                Err(Errno::DEADLK) if is_nonblocking(socket, flags) => return some_or(done, Errno::AGAIN),
                Err(Errno::AGAIN) => (),
                Err(error) => return some_or(done, error),
            }
            if is_announced || is_nonblocking(socket, flags) {
                if !std::mem::replace(&mut is_announced, true) {
                    // Space that returned before the announcement wakes nobody: this call takes it.
                    self.announce_shortage();
                    continue;
                }
                self.local().is_full.store(1, Ordering::Relaxed);
                return some_or(done, Errno::AGAIN);
            }
            self.local().is_full.store(1, Ordering::Relaxed);
            if self.spin(Want::Space) {
                continue;
            }
            let until = *deadline.get_or_insert_with(|| Self::deadline(socket, Want::Space));
            match self.rest_until(socket, Want::Space, until) {
                Ok(()) => (),
                Err(Errno::INTR) if done == 0 && until.is_none() && crate::signals::are_calls_restarted() => (),
                Err(error) => return some_or(done, error),
            }
        }
    }

    pub(super) fn try_read(
        &self,
        socket: Descriptor,
        to: &UserMemory<'_>,
        offset: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        let link = self.local().link().ok_or(Errno::NOTCONN)?;
        if to.bytes() == offset {
            return Ok(0);
        }
        let mut wakes_writer = false;
        let taken = {
            let _lock = ThreadLock::take(&link.own().reader.lock)?;
            self.take_phases(socket, link, to, offset, flags, &mut wakes_writer)
        };
        if wakes_writer {
            self.ring_peer_of(socket, link);
        }
        let taken = taken?;
        if taken == 0 {
            match self.local().error.swap(0, Ordering::Relaxed) {
                // A pump of the peer was killed with bytes that it had taken.
                0 if self.peer_side(link).pumps.load(Ordering::Acquire) != 0 => return Err(Errno::CONNRESET),
                0 if self.has_lost_bells() => return Err(Errno::CONNRESET),
                0 => return Ok(0),
                error => return Err(Errno::from_raw_os_error(error)),
            }
        }
        Ok(taken)
    }

    /// Sleeps until a peek may see more than `seen` bytes, or until the deadline (`AGAIN`) or a signal (`INTR`). False: no more come.
    pub(super) fn rest_for_more(
        &self,
        socket: Descriptor,
        to: &UserMemory<'_>,
        seen: usize,
        deadline: Option<Instant>,
    ) -> Result<bool, Errno> {
        let Some(link) = self.local().link() else { return Ok(false) };
        let _blocked = self.block(true, false);
        self.announce(link, Want::Data);
        if self.try_read(socket, to, 0, libc::MSG_PEEK | libc::MSG_TRUNC)? > seen {
            return Ok(true);
        }
        // The kernel would report again and again what it has already: the caller looks again after a short sleep.
        let has_tcp = rustix::io::ioctl_fionread(socket)? > 0;
        let short = has_tcp.then_some(LOOK_BESIDE_SET);
        let of_tcp = if has_tcp { 0 } else { libc::POLLIN };
        let found = self.sleep(socket, link, Want::Data, of_tcp | libc::POLLRDHUP | libc::POLLPRI, short, deadline)?;
        // A read ends before urgent data, too.
        Ok(found & (libc::POLLRDHUP | libc::POLLPRI | libc::POLLHUP | libc::POLLERR) == 0)
    }

    /// Takes bytes of as many phases as there are. A short read tells programs that nothing is left: it must not end where a phase does.
    fn take_phases(
        &self,
        socket: Descriptor,
        link: Link,
        to: &UserMemory<'_>,
        offset: usize,
        flags: i32,
        wakes_writer: &mut bool,
    ) -> Result<usize, Errno> {
        let (reader, incoming) = (&link.own().reader, link.incoming());
        if reader.is_receiving.load(Ordering::Relaxed) != 0 {
            // A process that was killed took bytes that it did not count: the kernel did.
            let taken = sys::bytes_read(socket).ok_or(Errno::CONNRESET)?;
            reader.tcp_read.store(taken, Ordering::Relaxed);
            incoming.take_tcp(taken);
            reader.is_receiving.store(0, Ordering::Relaxed);
        }
        let mut done = 0;
        for _ in 0..PHASES_MAX {
            let phase = reader.phase.load(Ordering::Relaxed);
            let taken = if is_of_ring(phase) {
                self.take_from_ring(socket, link, to, offset + done, flags, wakes_writer)
            } else if done > 0 && sys::is_at_mark(socket) {
                // The kernel lets a read end before urgent data.
                break;
            } else {
                self.read_tcp(socket, link, to, offset + done, flags)
            };
            match taken {
                Ok(Taken::Bytes(bytes)) => done += bytes,
                Ok(Taken::End) => return Ok(done),
                Ok(Taken::Phase) => {}
                Err(error) if done == 0 => return Err(error),
                Err(error) => {
                    // The kernel reports a failure once.
                    if ![Errno::AGAIN, Errno::INTR, Errno::FAULT].contains(&error) {
                        self.record_failure(error);
                    }
                    break;
                }
            }
            if flags & libc::MSG_PEEK != 0 && done > 0 {
                return match self.peek_next_phase(socket, link, to, done, flags) {
                    Err(Errno::CONNRESET) => Err(Errno::CONNRESET),
                    more => Ok(done + more.unwrap_or(0)),
                };
            }
            if offset + done >= to.bytes() {
                break;
            }
            let position = if is_of_ring(phase) { &reader.head } else { &reader.tcp_read };
            if incoming.end(phase).is_none_or(|end| position.load(Ordering::Relaxed) < end) {
                break;
            }
            if is_of_ring(phase) {
                // A process that was killed may have left the ring full for its writer.
                *wakes_writer |= incoming.consume(reader.head.load(Ordering::Relaxed), true);
            }
            let next = phase.wrapping_add(1);
            reader.phase.store(next, Ordering::Relaxed);
            incoming.follow(next);
        }
        if done > 0 { Ok(done) } else { Err(Errno::AGAIN) }
    }

    /// Takes bytes from the ring.
    fn take_from_ring(
        &self,
        socket: Descriptor,
        link: Link,
        to: &UserMemory<'_>,
        offset: usize,
        flags: i32,
        wakes_writer: &mut bool,
    ) -> Result<Taken, Errno> {
        let mut is_ended = false;
        loop {
            let bytes = self.copy_from_ring(link, to, offset, flags, wakes_writer)?;
            if bytes > 0 {
                return Ok(Taken::Bytes(bytes));
            }
            if link.incoming().end(link.own().reader.phase.load(Ordering::Relaxed)).is_some() {
                return Ok(Taken::Phase);
            }
            // The last look at the ring comes after the end of TCP: the peer wrote before it ended.
            if std::mem::replace(&mut is_ended, true) {
                return Ok(Taken::End);
            }
            self.look_at_tcp(socket, link)?;
        }
    }

    /// Copies bytes from the ring. Returns their number.
    fn copy_from_ring(
        &self,
        link: Link,
        to: &UserMemory<'_>,
        offset: usize,
        flags: i32,
        wakes_writer: &mut bool,
    ) -> Result<usize, Errno> {
        let mut span = self.filled(link).map_err(|_| Errno::CONNRESET)?;
        let free = RING_BYTES - span.bytes;
        span.bytes = span.bytes.min(to.bytes() - offset);
        if span.bytes == 0 {
            return Ok(0);
        }
        if flags & libc::MSG_TRUNC == 0 {
            link.read(link.side() ^ 1, span, to, offset)?;
        }
        if flags & libc::MSG_PEEK != 0 {
            return Ok(span.bytes);
        }
        let is_worth_waking = free + span.bytes >= WRITABLE_BYTES;
        let head = span.position.wrapping_add(span.bytes as u64);
        // The own position moves first: a process that is killed in between leaves one that the next call publishes.
        link.own().reader.head.store(head, Ordering::Relaxed);
        *wakes_writer |= link.incoming().consume(head, is_worth_waking);
        Ok(span.bytes)
    }

    /// Reads what the peer sends by TCP in this phase.
    fn read_tcp(
        &self,
        socket: Descriptor,
        link: Link,
        to: &UserMemory<'_>,
        offset: usize,
        flags: i32,
    ) -> Result<Taken, Errno> {
        let (reader, incoming) = (&link.own().reader, link.incoming());
        let (phase, before) = (reader.phase.load(Ordering::Relaxed), reader.tcp_read.load(Ordering::Relaxed));
        let mut waiting = usize::MAX;
        if incoming.end(phase).is_none() {
            // First how many there are, then whether they belong to this phase: the peer may have gone on by the ring, and come back.
            waiting = rustix::io::ioctl_fionread(socket)? as usize;
            if waiting == 0 {
                waiting = sys::with_room(&mut [0], |memory| memory.receive(socket.0, 0, 1, libc::MSG_PEEK))?;
            }
        }
        let bytes = match incoming.end(phase) {
            Some(end) if before >= end => return Ok(Taken::Phase),
            Some(end) => (end - before).try_into().unwrap_or(usize::MAX),
            None => waiting,
        };
        let kept = flags & (libc::MSG_PEEK | libc::MSG_TRUNC);
        let is_taken = flags & libc::MSG_PEEK == 0;
        reader.is_receiving.store(is_taken.into(), Ordering::Relaxed);
        let received =
            if bytes == 0 { Ok(0) } else { to.receive(socket.0, offset, bytes.min(to.bytes() - offset), kept) };
        let taken = before + received.unwrap_or(0) as u64;
        if is_taken && taken > before {
            reader.tcp_read.store(taken, Ordering::Relaxed);
            incoming.take_tcp(taken);
        }
        reader.is_receiving.store(0, Ordering::Relaxed);
        match received? {
            0 => {
                self.latch(Latched::END);
                Ok(Taken::End)
            }
            bytes => Ok(Taken::Bytes(bytes)),
        }
    }

    /// Asks TCP whether the connection has ended. `AGAIN`: it has not.
    fn look_at_tcp(&self, socket: Descriptor, link: Link) -> Result<(), Errno> {
        if self.local().latched.load(Ordering::Relaxed) & Latched::END != 0 {
            return Ok(());
        }
        let looked = sys::with_room(&mut [0], |memory| memory.receive(socket.0, 0, 1, libc::MSG_PEEK));
        match looked {
            Ok(1..) => {
                // The peer says that it goes on by TCP before it does.
                let is_announced = link.incoming().end(link.own().reader.phase.load(Ordering::Relaxed)).is_some();
                if !is_announced {
                    self.refuse_bypass();
                }
                Ok(())
            }
            Ok(0) => {
                self.latch(Latched::END);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Err(Errno::AGAIN),
            Err(error) => {
                self.record_failure(error);
                Ok(())
            }
        }
    }

    /// Ends a stream whose peer wrote to TCP while it uses the ring: a call went past the peer's library, and the order of the bytes is
    /// lost.
    fn refuse_bypass(&self) {
        self.shared().reason.store(Reason::Bypassed as u32, Ordering::Relaxed);
        self.latch(Latched::HUP | Latched::ERROR);
        self.record_failure(Errno::CONNRESET);
    }

    /// Looks for TCP bytes that a call of the peer sent past its library, after the kernel said that there are some.
    pub fn check_bypass(&self, socket: Descriptor) {
        let Some(link) = self.local().link() else { return };
        // A thread that reads looks itself, and changes the phase that the bytes belong to.
        let lock = ThreadLock::take_free(&link.own().reader.lock);
        if lock.is_some() && self.is_off_tcp() {
            // The result is in the latched conditions.
            let _ = self.look_at_tcp(socket, link);
        }
    }

    fn try_write(&self, socket: Descriptor, from: &UserMemory<'_>, offset: usize, flags: i32) -> Result<usize, Errno> {
        let link = self.local().link().ok_or(Errno::NOTCONN)?;
        let own = link.own();
        if self.is_discarded(socket, link)? {
            return Ok(from.bytes() - offset);
        }
        let rings = {
            let _lock = ThreadLock::take(&own.writer.lock)?;
            if !self.choose_ring(link) {
                own.writer.is_sending.store(1, Ordering::Relaxed);
                let sent = from.send(socket.0, offset, flags & libc::MSG_MORE);
                own.writer.tcp_written.fetch_add(sent.unwrap_or(0) as u64, Ordering::Relaxed);
                own.writer.is_sending.store(0, Ordering::Relaxed);
                return sent;
            }
            let mut span = self.space(link).map_err(|_| Errno::CONNRESET)?;
            span.bytes = span.bytes.min(from.bytes() - offset);
            if span.bytes == 0 {
                return Ok(0);
            }
            link.write(link.side(), span, from, offset)?;
            let tail = span.position.wrapping_add(span.bytes as u64);
            own.writer.tail.store(tail, Ordering::Relaxed);
            Self::note_filled(link, tail);
            (span.bytes, link.outgoing().publish(tail))
        };
        if rings.1 {
            self.ring_peer_of(socket, link);
        }
        Ok(rings.0)
    }

    /// Fails if this end was shut or the peer is gone: now and then, and whenever there was no space, the control socket is asked.
    ///
    /// The first write to a closed peer succeeds and goes nowhere, as with TCP, which learns of it by the answer. Returns true for it.
    fn is_discarded(&self, socket: Descriptor, link: Link) -> Result<bool, Errno> {
        let local = self.local();
        if link.own().is_shut.load(Ordering::Relaxed) != 0 {
            return Err(Errno::PIPE);
        }
        let probes = local.writes.fetch_add(1, Ordering::Relaxed);
        let was_full = local.is_full.load(Ordering::Relaxed) != 0 && local.is_full.swap(0, Ordering::Relaxed) != 0;
        let is_silent = local.latched.load(Ordering::Relaxed) & Latched::SILENT != 0;
        // A child that the peer did not count may go on after it.
        let is_closed = self.peer_side(link).is_closed.load(Ordering::Relaxed) != 0;
        let asks = is_closed || was_full || is_silent || probes.is_multiple_of(PROBE_WRITES);
        let is_known = local.latched.load(Ordering::Relaxed) & Latched::DEAD != 0;
        if is_known || asks && Self::is_attached(link) && self.is_peer_gone(socket) {
            self.mark_dead();
            let failed = rustix::net::sockopt::socket_error(socket).ok().and_then(Result::err);
            if let Some(error) = failed {
                local.error.store(error.raw_os_error(), Ordering::Relaxed);
            }
            return match local.error.swap(0, Ordering::Relaxed) {
                0 if !is_known && !was_full => Ok(true),
                0 => Err(Errno::PIPE),
                error => Err(Errno::from_raw_os_error(error)),
            };
        }
        Ok(false)
    }

    fn is_peer_gone(&self, socket: Descriptor) -> bool {
        let Some(control) = self.local().hidden(Hidden::Control) else { return false };
        let nothing = PollFlags::empty();
        let mut polled = [PollFd::new(&control, nothing), PollFd::new(&socket, nothing)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0);
        found && polled.iter().any(|polled| polled.revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Leaves the ring after a write that found no space, if it is time. True: the write goes on.
    fn goes_on_by_tcp(&self) -> bool {
        self.local().link().is_some_and(|link| self.is_stalled(link) && self.leave_full_ring(link))
    }

    /// Shuts the writing side, after the kernel has done so.
    pub fn shut_writing(&self) {
        if let Some(link) = self.local().link() {
            link.own().is_shut.store(1, Ordering::Relaxed);
        }
    }
}

fn is_nonblocking(socket: Descriptor, flags: i32) -> bool {
    flags & libc::MSG_DONTWAIT != 0
        || rustix::fs::fcntl_getfl(socket).map_or(true, |flags| flags.contains(OFlags::NONBLOCK))
}

fn some_or(done: usize, error: Errno) -> Result<usize, Errno> {
    if done > 0 { Ok(done) } else { Err(error) }
}
