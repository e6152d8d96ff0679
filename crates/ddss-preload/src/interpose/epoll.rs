//! The calls of `epoll`.

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;

use libc::{epoll_event, sigset_t, timespec};

use crate::epoll::{self, EpollSet};
use crate::sys::{errno, real};

/// Events that one call returns at most. The kernel, too, may return fewer than there is room for.
const EVENTS_MAX: usize = 256;

fn created(set: c_int) -> c_int {
    if set >= 0 {
        epoll::insert(set);
    }
    set
}

/// Replaces libc's `epoll_create`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's argument, unchanged.
    created(unsafe { real::epoll_create(size) })
}

/// Replaces libc's `epoll_create1`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's argument, unchanged.
    created(unsafe { real::epoll_create1(flags) })
}

/// Replaces libc's `epoll_ctl`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    epoll::watch(fd);
    let Some(found) = epoll::set(set) else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::epoll_ctl(set, operation, fd, event) };
    };
    let copy = if event.is_null() || operation == libc::EPOLL_CTL_DEL {
        None
    } else {
        // SAFETY: the program passed an event, or a wrong pointer.
        let Some(copy) = (unsafe { ddss_stream::load(event) }) else {
            errno::set(libc::EFAULT);
            return -1;
        };
        Some(copy)
    };
    match found.control(set, operation, fd, copy) {
        Ok(()) => 0,
        Err(error) => {
            errno::set(error);
            -1
        }
    }
}

/// Waits by the program's call, `native`, and in the library where a stream needs it.
///
/// # Safety
///
/// As for `epoll_pwait`; `native` has filled as many events as it returns.
#[inline(always)]
unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
    native: impl Fn() -> c_int,
) -> c_int {
    let Some(found) = epoll::set(set) else { return native() };
    let Some(ready) = found.wait_native(&native) else {
        // SAFETY: promised by the caller.
        return unsafe { wait_in_library(found, set, events, count, timeout, mask) };
    };
    for place in 0..ready.max(0) as usize {
        // SAFETY: the kernel has just written the event.
        let event = unsafe { events.wrapping_add(place).read_unaligned() };
        if EpollSet::is_streams(&event) {
            // SAFETY: promised by the caller.
            return unsafe { translate(found, ready as usize, set, events, count, timeout, mask) };
        }
    }
    ready
}

/// Translates events of streams that may leave TCP, and waits once more if all of them were the library's.
///
/// # Safety
///
/// As for `epoll_pwait`; the kernel has filled `ready` events.
#[inline(never)]
unsafe fn translate(
    found: &EpollSet,
    ready: usize,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: promised by the caller.
    let event_at = |place| unsafe { events.wrapping_add(place).read_unaligned() };
    // SAFETY: as above; fewer events are written than were read.
    let put = |place, event| unsafe { events.wrapping_add(place).write_unaligned(event) };
    match found.translate(ready, event_at, put) {
        // SAFETY: promised by the caller.
        0 => unsafe { wait_in_library(found, set, events, count, timeout, mask) },
        reported => reported as c_int,
    }
}

/// Replaces libc's `epoll_wait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::epoll_wait(set, events, count, timeout) };
    // SAFETY: as the program called it.
    unsafe { wait(set, events, count, timeout, std::ptr::null(), native) }
}

/// Replaces libc's `epoll_pwait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::epoll_pwait(set, events, count, timeout, mask) };
    // SAFETY: as the program called it.
    unsafe { wait(set, events, count, timeout, mask, native) }
}

/// Waits for events of streams and of other descriptors.
///
/// # Safety
///
/// As for `epoll_pwait`, except that the events may be wrong.
#[inline(never)]
unsafe fn wait_in_library(
    found: &EpollSet,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if count <= 0 || events.is_null() {
        // SAFETY: the kernel refuses these arguments.
        return unsafe { real::epoll_pwait(set, events, count, timeout, mask) };
    }
    let mut room = [const { MaybeUninit::<epoll_event>::uninit() }; EVENTS_MAX];
    let room = &mut room[..EVENTS_MAX.min(count as usize)];
    match found.wait(set, room, timeout, mask) {
        Ok(found) => {
            for (place, event) in room[..found].iter().enumerate() {
                // SAFETY: `wait` wrote the first `found` events.
                let event = unsafe { event.assume_init_read() };
                // SAFETY: the program promised room for `count` events, which are no fewer, or passed a wrong pointer.
                if !unsafe { ddss_stream::store(events.wrapping_add(place), event) } {
                    errno::set(libc::EFAULT);
                    return -1;
                }
            }
            found as c_int
        }
        Err(error) => {
            errno::set(error);
            -1
        }
    }
}

/// Replaces libc's `epoll_pwait2`. Nanoseconds are rounded up to a millisecond.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let timeout = if timeout.is_null() {
        -1
    } else {
        // SAFETY: the program passed a time.
        let timeout = unsafe { timeout.read() };
        let rounded = (timeout.tv_nsec as c_long + 999_999) / 1_000_000;
        timeout.tv_sec.saturating_mul(1000).saturating_add(rounded).min(c_int::MAX.into()) as c_int
    };
    // SAFETY: as the program called it.
    unsafe { epoll_pwait(set, events, count, timeout, mask) }
}
