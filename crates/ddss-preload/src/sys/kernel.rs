//! Calls of the kernel that the library makes for the program.

use std::ffi::{c_int, c_long};
use std::time::Duration;

use ddss_stream::Descriptor;
use libc::{epoll_event, nfds_t, pollfd, sigset_t, timespec};

use super::{errno, real};

/// Changes the kernel's set.
pub(crate) fn kernel_control(set: c_int, operation: c_int, fd: c_int, events: u32, token: u64) -> Result<(), i32> {
    let mut event = epoll_event { events, u64: token };
    // SAFETY: the event lives until the call returns.
    match unsafe { real::epoll_ctl(set, operation, fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(errno::get()),
    }
}

/// Waits in the kernel. A timeout of -1 waits without end.
pub(crate) fn kernel_wait(
    set: c_int,
    events: &mut [epoll_event],
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let count = events.len() as c_int;
    let found = if mask.is_null() {
        // SAFETY: the slice has room for `count` events.
        unsafe { real::epoll_wait(set, events.as_mut_ptr(), count, timeout_ms) }
    } else {
        // SAFETY: as above, and the program passed the mask.
        unsafe { real::epoll_pwait(set, events.as_mut_ptr(), count, timeout_ms, mask) }
    };
    if found >= 0 { Ok(found as usize) } else { Err(errno::get()) }
}

/// Waits in the kernel.
pub(crate) fn kernel_poll(list: &mut [pollfd], timeout: Option<Duration>, mask: *const sigset_t) -> Result<usize, i32> {
    let timeout = timeout.map(|left| timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: c_long::from(left.subsec_nanos() as i32),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const timespec);
    // SAFETY: the list is a slice, the time lives until the call returns, the mask is the program's.
    let found = unsafe { real::ppoll(list.as_mut_ptr(), list.len() as nfds_t, timeout, mask) };
    if found >= 0 { Ok(found as usize) } else { Err(errno::get()) }
}

/// Copies bytes that wait in a socket, and waits for the first one as a call of the program with these flags does.
pub(crate) fn kernel_peek(socket: c_int, room: &mut [u8], flags: c_int) -> isize {
    let flags = flags & libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the slice has room for so many bytes.
    unsafe { real::recv(socket, room.as_mut_ptr().cast(), room.len(), flags) }
}

/// Puts a socket of the library in the place of a descriptor of the program, which keeps its `FD_CLOEXEC`.
pub(crate) fn replace_descriptor(new: c_int, place: c_int) {
    let flags = rustix::io::fcntl_getfd(Descriptor(place)).unwrap_or(rustix::io::FdFlags::CLOEXEC);
    let flags = if flags.contains(rustix::io::FdFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the program waits in the call that made the connection; no other call uses the descriptor.
    while unsafe { real::dup3(new, place, flags) } < 0 && [libc::EBUSY, libc::EINTR].contains(&errno::get()) {}
}
