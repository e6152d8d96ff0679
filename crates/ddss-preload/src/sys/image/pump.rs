//! A pump: a process that copies bytes between a stream and a Unix socket, for a program image without this library.
//!
//! ```text
//!  peer == stream ==> pump -- Unix socket --> image       a killed pump closes both, a killed image ends the pump
//! ```

use std::ffi::c_int;

use ddss_stream::{Descriptor, Endpoint};
use libc::pollfd;
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::process;
use crate::sys::{descriptors, errno, io, real, sockets};
use crate::{descriptor_table, polling};

/// Bytes that one direction holds.
const BUFFER_BYTES: usize = 16 << 10;
const SIGNALS: c_int = 64;

/// Gives every inheritable descriptor of a stream a Unix socket instead, and starts the pump. False: the system has no process or
/// descriptor for it.
pub(super) fn replace(stream: c_int, endpoint: &Endpoint) -> bool {
    let Some(outer) = start(stream) else { return false };
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
pub(super) fn start(stream: c_int) -> Option<c_int> {
    let ends = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
    let [outer, inner] = [ends.0, ends.1].map(std::os::fd::IntoRawFd::into_raw_fd);
    // SAFETY: between `fork` and its end the child calls what a signal handler may call, and this library.
    let child = unsafe { process::fork() };
    if child == 0 {
        // The pump must not be a child of the image, which waits for its own children only.
        // SAFETY: as above.
        let pump = unsafe { process::fork() };
        if pump == 0 {
            run(stream, inner);
        }
        // The process between was counted, and closes nothing.
        Endpoint::after_failed_fork();
        if pump > 0 {
            // Says that the pump runs. A program that ignores SIGCHLD never sees the status of a process.
            let _ = rustix::fs::fcntl_setfl(Descriptor(outer), OFlags::NONBLOCK);
        }
        // SAFETY: ends this process without the program's exit handlers.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: this function's own descriptor.
    unsafe { real::close(inner) };
    if child > 0 {
        let mut status = 0;
        // SAFETY: waits for the process between, which ends at once.
        while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 && errno::get() == libc::EINTR {}
        let is_running = rustix::fs::fcntl_getfl(Descriptor(outer)).is_ok_and(|set| set.contains(OFlags::NONBLOCK));
        if is_running && rustix::fs::fcntl_setfl(Descriptor(outer), OFlags::empty()).is_ok() {
            return Some(outer);
        }
    }
    // SAFETY: as above.
    unsafe { real::close(outer) };
    None
}

/// Pumps until both directions have ended, and ends the process.
fn run(stream: c_int, socket: c_int) -> ! {
    for signal in 1..=SIGNALS {
        let action =
            if [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT].contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: the program's handlers belong to the image that has gone.
        unsafe { libc::signal(signal, action) };
    }
    let (low, high) = (stream.min(socket) as u32, stream.max(socket) as u32);
    for (first, last) in [(0, low.wrapping_sub(1)), (low + 1, high - 1), (high + 1, u32::MAX)] {
        if first <= last && last.wrapping_add(1) != first {
            // SAFETY: the process between needs none of the program's other descriptors.
            unsafe { descriptors::close_range(first, last, 0) };
        }
    }
    let _ = rustix::process::setsid();
    let mut ways = [Way::new(stream, socket), Way::new(socket, stream)];
    while ways.iter().any(|way| !way.is_done) {
        let mut list = [stream, socket].map(|fd| pollfd { fd, events: 0, revents: 0 });
        for way in ways.iter().filter(|way| !way.is_done) {
            let (fd, events) = if way.is_empty() { (way.from, libc::POLLIN) } else { (way.to, libc::POLLOUT) };
            list[usize::from(fd == socket)].events |= events;
        }
        let polled = polling::poll(&mut list, None, std::ptr::null());
        let is_broken = ways.iter_mut().any(|way| !way.is_done && way.advance().is_none());
        if is_broken || polled.is_err_and(|error| error != libc::EINTR) {
            break;
        }
    }
    // SAFETY: ends this process without the program's exit handlers.
    unsafe { libc::_exit(0) }
}

/// One direction.
struct Way {
    from: c_int,
    to: c_int,
    buffer: [u8; BUFFER_BYTES],
    start: usize,
    end: usize,
    is_done: bool,
}

impl Way {
    fn new(from: c_int, to: c_int) -> Self {
        Self { from, to, buffer: [0; BUFFER_BYTES], start: 0, end: 0, is_done: false }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Moves what can be moved without waiting. `None`: the connection is broken.
    fn advance(&mut self) -> Option<()> {
        if self.is_empty() {
            // SAFETY: the buffer has this length.
            let found =
                unsafe { io::recv(self.from, self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_DONTWAIT) };
            match found {
                0 => {
                    self.is_done = true;
                    // SAFETY: a call without memory.
                    unsafe { sockets::shutdown(self.to, libc::SHUT_WR) };
                    return Some(());
                }
                found if found < 0 => return is_transient().then_some(()),
                found => (self.start, self.end) = (0, found as usize),
            }
        }
        let rest = &self.buffer[self.start..self.end];
        // SAFETY: the rest of the buffer has this length.
        let sent =
            unsafe { io::send(self.to, rest.as_ptr().cast(), rest.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return is_transient().then_some(());
        }
        self.start += sent as usize;
        Some(())
    }
}

fn is_transient() -> bool {
    [libc::EAGAIN, libc::EINTR].contains(&errno::get())
}
