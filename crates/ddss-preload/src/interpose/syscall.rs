//! Calls that a program makes by their numbers, and libc's other names of its functions: node.js closes by number.

use std::ffi::{c_int, c_long, c_void};

use ddss_stream::is_hidden;
use libc::{FILE, fd_set, iovec, nfds_t, off_t, pid_t, pollfd, sockaddr, socklen_t, ssize_t, timeval};

use super::{descriptors, epoll, image, io, polling, sockets, stdio, transfers};
use crate::sys::process::fork_by;
use crate::sys::real::Start;
use crate::sys::{errno, real};
use crate::{descriptor_table, io_uring};

/// Arguments of a call. Those beyond the call's own are undefined.
#[derive(Clone, Copy)]
struct Arguments([usize; 6]);

impl Arguments {
    fn int(self, place: usize) -> c_int {
        self.0[place] as c_int
    }

    fn pointer<T>(self, place: usize) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0[place])
    }
}

/// Replaces libc's `syscall`. Programs that pass fewer arguments leave the rest undefined, for libc as for this function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let arguments = Arguments([a, b, c, d, e, f]);
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::syscall(number, a, b, c, d, e, f) };
    let first = arguments.int(0);
    let is_known = descriptor_table::is_known(first) || is_hidden(first);
    // SAFETY: as the program called it.
    if let Some(result) = is_known.then(|| unsafe { on_descriptor(number, arguments) }).flatten() {
        return result;
    }
    // SAFETY: as above.
    if let Some(result) = unsafe { on_any(number, arguments) } {
        return result;
    }
    match number {
        libc::SYS_io_uring_setup if !io_uring::before_setup() => {
            errno::set(libc::EPERM);
            -1
        }
        // SAFETY: the program passed the flags of a process in the first argument, or the place of them.
        libc::SYS_clone | libc::SYS_clone3 if !unsafe { shares_memory(number, arguments) } => fork_by(native),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => fork_by(native),
        _ => native(),
    }
}

/// Returns true if the call makes a thread, or a process that uses the memory of this one.
///
/// # Safety
///
/// The arguments are those of `clone` or `clone3`.
unsafe fn shares_memory(number: c_long, arguments: Arguments) -> bool {
    let flags = match number {
        // SAFETY: promised by the caller; the flags of `clone3` are the first word of its structure.
        libc::SYS_clone3 => unsafe { ddss_stream::load(arguments.pointer::<u64>(0)) },
        _ => None,
    };
    flags.unwrap_or(arguments.0[0] as u64) & libc::CLONE_VM as u64 != 0
}

macro_rules! call {
    ($function:path, $($argument:expr),*) => {
        // SAFETY: the program passed the arguments of the call with this number.
        Some(unsafe { $function($($argument),*) } as c_long)
    };
}

/// Carries out a call whose first argument is a descriptor that the library knows.
///
/// # Safety
///
/// As for the call.
unsafe fn on_descriptor(number: c_long, all: Arguments) -> Option<c_long> {
    let (fd, bytes, flags) = (all.int(0), all.0[2], all.int(3));
    match number {
        libc::SYS_close => call!(descriptors::close, fd),
        libc::SYS_dup => call!(descriptors::dup, fd),
        libc::SYS_fcntl => call!(descriptors::fcntl, fd, all.int(1), all.0[2]),
        libc::SYS_ioctl => call!(descriptors::ioctl, fd, all.0[1], all.pointer(2)),
        libc::SYS_read => call!(io::read, fd, all.pointer(1), bytes),
        libc::SYS_write => call!(io::write, fd, all.pointer(1), bytes),
        libc::SYS_readv => call!(io::readv, fd, all.pointer(1), all.int(2)),
        libc::SYS_writev => call!(io::writev, fd, all.pointer(1), all.int(2)),
        libc::SYS_preadv2 => call!(io::preadv2, fd, all.pointer(1), all.int(2), all.0[3] as off_t, all.int(5)),
        libc::SYS_pwritev2 => call!(io::pwritev2, fd, all.pointer(1), all.int(2), all.0[3] as off_t, all.int(5)),
        libc::SYS_recvfrom => call!(io::recvfrom, fd, all.pointer(1), bytes, flags, all.pointer(4), all.pointer(5)),
        libc::SYS_recvmsg => call!(io::recvmsg, fd, all.pointer(1), all.int(2)),
        libc::SYS_recvmmsg => call!(io::recvmmsg, fd, all.pointer(1), bytes as u32, flags, all.pointer(4)),
        libc::SYS_shutdown => call!(sockets::shutdown, fd, all.int(1)),
        libc::SYS_sendfile => call!(transfers::sendfile, fd, all.int(1), all.pointer(2), all.0[3]),
        libc::SYS_epoll_ctl => call!(epoll::epoll_ctl, fd, all.int(1), all.int(2), all.pointer(3)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => call!(epoll::epoll_wait, fd, all.pointer(1), all.int(2), all.int(3)),
        libc::SYS_epoll_pwait => call!(epoll::epoll_pwait, fd, all.pointer(1), all.int(2), all.int(3), all.pointer(4)),
        libc::SYS_epoll_pwait2 => {
            call!(epoll::epoll_pwait2, fd, all.pointer(1), all.int(2), all.pointer(3), all.pointer(4))
        }
        _ => None,
    }
}

/// Carries out a call that may name a stream elsewhere than in its first argument, or makes a descriptor.
///
/// # Safety
///
/// As for the call.
unsafe fn on_any(number: c_long, all: Arguments) -> Option<c_long> {
    let (fd, length) = (all.int(0), all.int(4) as socklen_t);
    match number {
        libc::SYS_close_range => call!(descriptors::close_range, all.0[0] as u32, all.0[1] as u32, all.int(2)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => call!(descriptors::dup2, fd, all.int(1)),
        libc::SYS_dup3 => call!(descriptors::dup3, fd, all.int(1), all.int(2)),
        libc::SYS_connect => call!(sockets::connect, fd, all.pointer(1), all.0[2] as socklen_t),
        libc::SYS_accept => call!(sockets::accept, fd, all.pointer(1), all.pointer(2)),
        libc::SYS_accept4 => call!(sockets::accept4, fd, all.pointer(1), all.pointer(2), all.int(3)),
        libc::SYS_setsockopt => call!(sockets::setsockopt, fd, all.int(1), all.int(2), all.pointer(3), length),
        libc::SYS_getsockopt => call!(sockets::getsockopt, fd, all.int(1), all.int(2), all.pointer(3), all.pointer(4)),
        libc::SYS_getsockname => call!(sockets::getsockname, fd, all.pointer(1), all.pointer(2)),
        libc::SYS_getpeername => call!(sockets::getpeername, fd, all.pointer(1), all.pointer(2)),
        libc::SYS_sendto => {
            let length = all.int(5) as socklen_t;
            call!(io::sendto, fd, all.pointer(1), all.0[2], all.int(3), all.pointer(4), length)
        }
        libc::SYS_sendmsg => call!(io::sendmsg, fd, all.pointer(1), all.int(2)),
        libc::SYS_sendmmsg => call!(io::sendmmsg, fd, all.pointer(1), all.0[2] as u32, all.int(3)),
        libc::SYS_splice => {
            let (from_offset, to_offset, bytes) = (all.pointer(1), all.pointer(3), all.0[4]);
            call!(transfers::splice, fd, from_offset, all.int(2), to_offset, bytes, all.0[5] as u32)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create => call!(epoll::epoll_create, fd),
        libc::SYS_epoll_create1 => call!(epoll::epoll_create1, fd),
        libc::SYS_execve => call!(image::execve, all.pointer(0), all.pointer(1), all.pointer(2)),
        libc::SYS_execveat => {
            call!(image::execveat, fd, all.pointer(1), all.pointer(2), all.pointer(3), all.int(4))
        }
        // SAFETY: promised by the caller.
        _ if descriptor_table::has_streams() => unsafe { on_lists(number, all) },
        _ => None,
    }
}

/// Carries out a call that waits for descriptors of a list.
///
/// # Safety
///
/// As for the call.
unsafe fn on_lists(number: c_long, all: Arguments) -> Option<c_long> {
    let (count, sets) = (all.int(0), [all.pointer(1), all.pointer(2), all.pointer(3)]);
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => call!(polling::poll, all.pointer(0), all.0[1] as nfds_t, all.int(2)),
        libc::SYS_ppoll => call!(polling::ppoll, all.pointer(0), all.0[1] as nfds_t, all.pointer(2), all.pointer(3)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => call!(polling::select, count, sets[0], sets[1], sets[2], all.pointer(4)),
        libc::SYS_pselect6 => {
            let place = all.pointer::<usize>(5);
            // SAFETY: the last argument is null, or points to the address of the mask, or is wrong.
            let mask = if place.is_null() { None } else { unsafe { ddss_stream::load(place) } };
            let mask = std::ptr::with_exposed_provenance(mask.unwrap_or(0));
            call!(polling::pselect, count, sets[0], sets[1], sets[2], all.pointer(4), mask)
        }
        _ => None,
    }
}

macro_rules! other_names {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $function:path;)*) => {$(
        /// Replaces libc's other name of a function.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: as the program called it.
            unsafe { $function($($argument),*) }
        }
    )*};
}

other_names! {
    fn __read(fd: c_int, to: *mut c_void, bytes: usize) -> ssize_t = io::read;
    fn __write(fd: c_int, from: *const c_void, bytes: usize) -> ssize_t = io::write;
    fn __send(fd: c_int, from: *const c_void, bytes: usize, flags: c_int) -> ssize_t = io::send;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = io::preadv2;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = io::pwritev2;
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: usize) -> ssize_t = transfers::sendfile;
    fn __close(fd: c_int) -> c_int = descriptors::close;
    fn __dup2(fd: c_int, copy: c_int) -> c_int = descriptors::dup2;
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = descriptors::fcntl;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = descriptors::fcntl;
    fn __connect(fd: c_int, name: *const sockaddr, length: socklen_t) -> c_int = sockets::connect;
    fn __poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = polling::poll;
    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = polling::select;
    fn __fork() -> pid_t = image::fork;
    fn __vfork() -> pid_t = image::fork;
    fn __clone(start: Start, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut pid_t, tls: *mut c_void, child: *mut pid_t) -> c_int = image::clone;
    fn fileno_unlocked(file: *mut FILE) -> c_int = stdio::fileno;
}
