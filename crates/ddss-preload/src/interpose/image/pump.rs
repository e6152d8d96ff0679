//! A pump: a process that copies bytes between a stream and a Unix socket, for a program image without this library.
//!
//! Images also inherit streams that they do not know. Unless the stream is a standard descriptor, a pump takes no byte of the peer while
//! other processes have it.
//!
//! ```text
//!  peer == stream ==> pump -- Unix socket --> image
//! ```
//!
//! A killed pump resets both: one byte stays unread in its end of the Unix socket, and the stream counts it until it has written all.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ddss_stream::pump::LocalEnd;
use ddss_stream::{Descriptor, Endpoint};
use libc::pollfd;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::OFlags;

use super::{fork, holders};
use crate::interpose::{descriptors, io, sockets};
use crate::sys::{errno, real};
use crate::{descriptor_table, polling};

/// Bytes that one direction holds.
const BUFFER_BYTES: usize = 16 << 10;
/// Time between two looks at the number of processes that have the stream.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// Longest time between two looks at the descriptors of all processes.
const LOOK_MAX: Duration = Duration::from_secs(10);
const SIGNALS: c_int = 64;
/// Changes of the Unix socket.
const CHANGES: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Gives every inheritable descriptor of a stream a Unix socket instead, and starts the pump. False: the system has no process or
/// descriptor for it.
pub(super) fn replace(stream: c_int, endpoint: &Endpoint, is_standard: bool) -> bool {
    let Some(outer) = start(stream, is_standard) else { return false };
    let copies = descriptor_table::streams().filter(|(_, other)| other.index() == endpoint.index());
    for (copy, _) in copies.filter(|(copy, _)| descriptor_table::survives_exec(*copy)) {
        let flags = rustix::fs::fcntl_getfl(Descriptor(copy)).unwrap_or(OFlags::empty());
        let _ = rustix::fs::fcntl_setfl(Descriptor(outer), flags);
        crate::calls::before_close(copy);
        // SAFETY: replaces a descriptor of the program by one of the same kind.
        unsafe { real::dup2(outer, copy) };
    }
    // SAFETY: this function's own descriptor.
    unsafe { real::close(outer) };
    true
}

/// Starts the pump of a stream. Returns the socket that takes the stream's place in an image. The caller closes it.
pub(super) fn start(stream: c_int, is_standard: bool) -> Option<c_int> {
    let (outer, local) = LocalEnd::pair().ok()?;
    let changes = epoll::create(CreateFlags::CLOEXEC).ok()?;
    epoll::add(&changes, &local, EventData::new_u64(0), CHANGES).ok()?;
    let endpoint = descriptor_table::stream(stream)?;
    endpoint.begin_pump();
    // SAFETY: between `fork` and its end the child calls what a signal handler may call, and this library.
    let child = unsafe { fork() };
    if child == 0 {
        // The pump must not be a child of the image, which waits for its own children only.
        // SAFETY: as above.
        let pump = unsafe { fork() };
        if pump == 0 {
            let others = Others { is_alone: is_standard, pause: LOOK_MIN, look_at: Instant::now() };
            Pump { stream, endpoint, local, changes, ways: [Way::EMPTY; 2], others }.run();
        }
        // The process between was counted, and closes nothing.
        Endpoint::after_failed_fork();
        if pump > 0 {
            // Says that the pump runs. A program that ignores SIGCHLD never sees the status of a process.
            let _ = rustix::fs::fcntl_setfl(&outer, OFlags::NONBLOCK);
        }
        // SAFETY: ends this process without the program's exit handlers.
        unsafe { libc::_exit(0) };
    }
    drop(local);
    if child > 0 {
        let mut status = 0;
        // SAFETY: waits for the process between, which ends at once.
        while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 && errno::get() == libc::EINTR {}
        let is_running = rustix::fs::fcntl_getfl(&outer).is_ok_and(|set| set.contains(OFlags::NONBLOCK));
        if is_running && rustix::fs::fcntl_setfl(&outer, OFlags::empty()).is_ok() {
            return Some(outer.into_raw_fd());
        }
    }
    endpoint.end_pump();
    None
}

/// A running pump.
struct Pump {
    stream: c_int,
    endpoint: Endpoint,
    local: LocalEnd,
    /// A set with the Unix socket, which always has an unread byte: only changes are news.
    changes: OwnedFd,
    /// To the program, and to the peer.
    ways: [Way; 2],
    others: Others,
}

/// Knowledge about other processes that have the stream.
struct Others {
    /// True once the bytes of the peer are for the image.
    is_alone: bool,
    pause: Duration,
    look_at: Instant,
}

impl Others {
    fn look(&mut self, endpoint: &Endpoint, stream: c_int) -> bool {
        self.is_alone |= endpoint.is_last_process();
        if !self.is_alone && Instant::now() >= self.look_at {
            // A process that ended without a close is still counted.
            self.is_alone = !holders::has_other(stream);
            self.pause = (self.pause * 2).min(LOOK_MAX);
            self.look_at = Instant::now() + self.pause;
        }
        self.is_alone
    }
}

/// A way that cannot go on: the connection is broken.
struct Broken;

impl Pump {
    /// Pumps until both directions have ended, and ends the process.
    fn run(mut self) -> ! {
        for signal in 1..=SIGNALS {
            let action = if [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT].contains(&signal) {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            // SAFETY: the program's handlers belong to the image that has gone.
            unsafe { libc::signal(signal, action) };
        }
        self.close_others();
        let _ = rustix::process::setsid();
        if self.carry().is_ok() {
            drop(self.endpoint);
            self.local.close_in_order();
            // Another process may go on with the stream: the close of the last one is its end.
            // SAFETY: this process's own descriptor.
            unsafe { descriptors::close(self.stream) };
        }
        // SAFETY: ends this process without the program's exit handlers.
        unsafe { libc::_exit(0) }
    }

    /// Closes the program's other descriptors.
    fn close_others(&self) {
        let mut kept =
            [self.stream, self.local.as_fd().as_raw_fd(), self.changes.as_raw_fd()].map(c_int::cast_unsigned);
        kept.sort_unstable();
        let mut first = 0;
        for number in kept {
            if first < number {
                // SAFETY: the pump needs none of the program's other descriptors.
                unsafe { descriptors::close_range(first, number - 1, 0) };
            }
            first = number + 1;
        }
        // SAFETY: as above.
        unsafe { descriptors::close_range(first, u32::MAX, 0) };
    }

    /// Moves bytes until the stream has ended in order.
    fn carry(&mut self) -> Result<(), Broken> {
        let mut is_hung = false;
        loop {
            let is_alone = self.others.look(&self.endpoint, self.stream);
            let has_moved = (is_alone && self.advance_to_program()?) | self.advance_to_peer()?;
            let [to_program, to_peer] = &self.ways;
            if to_peer.is_done && (to_program.is_done || self.local.is_closed()) {
                return Ok(());
            }
            if has_moved {
                continue;
            }
            let reads = if is_alone && to_program.is_empty() && !to_program.is_done { libc::POLLIN } else { 0 };
            let events = reads | if to_peer.is_empty() { 0 } else { libc::POLLOUT };
            // A peer that is gone is always reported.
            let stream = if is_hung && events == 0 { -1 } else { self.stream };
            let changes = pollfd { fd: self.changes.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut list = [pollfd { fd: stream, events, revents: 0 }, changes];
            let timeout = if is_alone { None } else { Some(LOOK_MIN) };
            let polled = polling::poll(&mut list, timeout, std::ptr::null());
            if polled.is_err_and(|error| error != libc::EINTR) {
                return Err(Broken);
            }
            is_hung |= list[0].revents & (libc::POLLHUP | libc::POLLERR) != 0;
            self.note_changes();
        }
    }

    fn note_changes(&mut self) {
        let mut event = [std::mem::MaybeUninit::<Event>::uninit()];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Ok((events, _)) = epoll::wait(&self.changes, &mut event, Some(&now)) {
            events.iter().for_each(|event| self.local.note(event.flags));
        }
    }

    /// Moves what the peer wrote. Returns true if something moved.
    fn advance_to_program(&mut self) -> Result<bool, Broken> {
        let way = &mut self.ways[0];
        if way.is_done {
            return Ok(false);
        }
        if way.is_empty() {
            // SAFETY: the buffer has this length.
            let found =
                unsafe { io::recv(self.stream, way.buffer.as_mut_ptr().cast(), BUFFER_BYTES, libc::MSG_DONTWAIT) };
            match found {
                0 => {
                    way.is_done = true;
                    self.local.shutdown_write();
                    return Ok(true);
                }
                found if found < 0 => return if is_transient() { Ok(false) } else { Err(Broken) },
                found => (way.start, way.end) = (0, found as usize),
            }
        }
        let sent = self.local.write(&way.buffer[way.start..way.end]).map_err(|_| Broken)?;
        way.start += sent.unwrap_or(0);
        Ok(sent.is_some())
    }

    /// Moves what the program wrote. Returns true if something moved.
    fn advance_to_peer(&mut self) -> Result<bool, Broken> {
        let way = &mut self.ways[1];
        if way.is_done {
            return Ok(false);
        }
        if way.is_empty() {
            match self.local.read(&mut way.buffer).map_err(|_| Broken)? {
                None => return Ok(false),
                Some(0) => {
                    way.is_done = true;
                    self.endpoint.end_pump();
                    if !self.local.is_closed() {
                        // SAFETY: a call without memory.
                        unsafe { sockets::shutdown(self.stream, libc::SHUT_WR) };
                    }
                    return Ok(true);
                }
                Some(found) => (way.start, way.end) = (0, found),
            }
        }
        let rest = &way.buffer[way.start..way.end];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the rest of the buffer has this length.
        let sent = unsafe { io::send(self.stream, rest.as_ptr().cast(), rest.len(), flags) };
        if sent < 0 {
            return if is_transient() { Ok(false) } else { Err(Broken) };
        }
        way.start += sent as usize;
        Ok(true)
    }
}

/// One direction.
struct Way {
    buffer: [u8; BUFFER_BYTES],
    start: usize,
    end: usize,
    is_done: bool,
}

impl Way {
    const EMPTY: Self = Self { buffer: [0; BUFFER_BYTES], start: 0, end: 0, is_done: false };

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

fn is_transient() -> bool {
    [libc::EAGAIN, libc::EINTR].contains(&errno::get())
}
