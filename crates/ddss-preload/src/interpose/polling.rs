//! `poll` and `select`.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::sys::{Array, errno, real};
use crate::{descriptor_table, epoll, polling};

fn answer(found: Result<usize, i32>) -> c_int {
    match found {
        Ok(found) => found as c_int,
        Err(error) => {
            errno::set(error);
            -1
        }
    }
}

/// Returns true if the program ever had a stream or a set of them.
fn may_concern() -> bool {
    descriptor_table::has_streams() || epoll::is_used()
}

/// Describes the program's list if the library has a part in the answer. `None`: the kernel has to answer, for a wrong pointer too.
///
/// # Safety
///
/// `list` points to `count` entries, or is wrong.
unsafe fn entries<'a>(list: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let mut is_concerned = false;
    for place in 0..if may_concern() { count as usize } else { 0 } {
        // SAFETY: promised by the caller.
        let entry = unsafe { ddss_stream::load(list.wrapping_add(place)) }?;
        is_concerned |= descriptor_table::stream(entry.fd).is_some();
        epoll::watch(entry.fd);
    }
    // SAFETY: all entries could be read.
    is_concerned.then(|| unsafe { std::slice::from_raw_parts_mut(list, count as usize) })
}

/// Replaces libc's `poll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program passed a list, or a wrong pointer.
    let Some(entries) = (unsafe { entries(list, count) }) else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::poll(list, count, timeout) };
    };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    answer(polling::poll(entries, timeout, std::ptr::null()))
}

/// Replaces the checked form of `poll`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    assert!(count as usize * size_of::<pollfd>() <= room, "poll beyond a list");
    // SAFETY: as the program called it.
    unsafe { poll(list, count, timeout) }
}

/// Copies a value that the program may leave out. `None`: the pointer is wrong.
///
/// # Safety
///
/// `place` is null, or points to a `T`, or is wrong; every content is a valid `T`.
unsafe fn optional<T: Copy>(place: *const T) -> Option<Option<T>> {
    if place.is_null() {
        return Some(None);
    }
    // SAFETY: promised by the caller.
    unsafe { ddss_stream::load(place) }.map(Some)
}

fn duration(time: timespec) -> Duration {
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Replaces libc's `ppoll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program passed a list, or a wrong pointer.
    let entries = unsafe { entries(list, count) };
    // SAFETY: the program passed a time or null, or a wrong pointer.
    let time = unsafe { optional(timeout) };
    let (Some(entries), Some(time)) = (entries, time) else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::ppoll(list, count, timeout, mask) };
    };
    let timeout = time.map(duration);
    answer(polling::poll(entries, timeout, mask))
}

/// Replaces the checked form of `ppoll`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    assert!(count as usize * size_of::<pollfd>() <= room, "ppoll beyond a list");
    // SAFETY: as the program called it.
    unsafe { ppoll(list, count, timeout, mask) }
}

/// Descriptors of a `select` for which no memory is needed.
const SELECTED: usize = 64;

/// A set of descriptors of `select`.
#[derive(Clone, Copy)]
struct Set(*mut fd_set);

impl Set {
    fn contains(self, fd: c_int) -> bool {
        let byte = self.0.cast_const().cast::<u8>().wrapping_add(fd as usize / 8);
        // SAFETY: the program passed a set, or null, or a wrong pointer, which the kernel will answer.
        !self.0.is_null() && unsafe { ddss_stream::load(byte) }.is_some_and(|byte| byte >> (fd % 8) & 1 != 0)
    }

    fn put(self, fd: c_int, is_in: bool) -> usize {
        let byte = self.0.cast::<u8>().wrapping_add(fd as usize / 8);
        if self.0.is_null() {
            return usize::from(is_in);
        }
        // A program that watches more descriptors than `FD_SETSIZE` has larger sets.
        // SAFETY: the program passed a set of which this byte was read.
        let before = unsafe { ddss_stream::load(byte) };
        if let Some(before) = before {
            let bit = 1 << (fd % 8);
            // SAFETY: as above.
            unsafe { ddss_stream::store(byte, if is_in { before | bit } else { before & !bit }) };
        }
        usize::from(is_in)
    }
}

const EVENTS: [(i16, i16); 3] = [
    (libc::POLLIN | libc::POLLRDHUP, libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// Carries out a `select` as a `poll`. `None`: no stream is in the sets.
fn select_streams(count: c_int, sets: [Set; 3], timeout: Option<Duration>, mask: *const sigset_t) -> Option<c_int> {
    if !may_concern() {
        return None;
    }
    let mut list = Array::<pollfd, SELECTED>::new();
    for fd in 0..count.clamp(0, descriptor_table::len() as c_int) {
        let wanted = sets.iter().zip(EVENTS).filter(|(set, _)| set.contains(fd));
        let events = wanted.fold(0, |events, (_, (wanted, _))| events | wanted);
        if events != 0 {
            list.push(pollfd { fd, events, revents: 0 }).ok()?;
            epoll::watch(fd);
        }
    }
    if !polling::concerns(&list) {
        return None;
    }
    Some(answer(poll_selected(&mut list, sets, timeout, mask)))
}

/// Polls until a descriptor is ready for the sets that contain it. `poll` also reports the end of others.
fn poll_selected(
    list: &mut [pollfd],
    sets: [Set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut left = timeout;
    loop {
        let ready = polling::poll(list, left, mask)?;
        if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(libc::EBADF);
        }
        let is_found = |entry: &pollfd| {
            let mut found = sets.iter().zip(EVENTS);
            entry.fd >= 0 && found.any(|(set, (_, found))| set.contains(entry.fd) && entry.revents & found != 0)
        };
        if ready == 0 || list.iter().any(is_found) {
            break;
        }
        // `poll` skips the negative numbers.
        list.iter_mut().filter(|entry| entry.revents != 0).for_each(|entry| entry.fd = !entry.fd);
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    }
    Ok(list.iter().fold(0, |sum, entry| {
        let fd = if entry.fd < 0 { !entry.fd } else { entry.fd };
        let one = |(set, (_, found)): (&Set, (i16, i16))| {
            set.put(fd, set.contains(fd) && entry.fd >= 0 && entry.revents & found != 0)
        };
        sum + sets.iter().zip(EVENTS).map(one).sum::<usize>()
    }))
}

/// Replaces libc's `select`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let micros =
        |time: timeval| Duration::new(time.tv_sec.max(0) as u64, (time.tv_usec.clamp(0, 999_999) * 1000) as u32);
    // SAFETY: the program passed a time or null, or a wrong pointer.
    let time = unsafe { optional(timeout.cast_const()) }.map(|time| time.map(micros));
    match time.and_then(|time| select_streams(count, [Set(read), Set(write), Set(except)], time, std::ptr::null())) {
        Some(found) => found,
        // SAFETY: the program's arguments, unchanged.
        None => unsafe { real::select(count, read, write, except, timeout) },
    }
}

/// Replaces libc's `pselect`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program passed a time or null, or a wrong pointer.
    let time = unsafe { optional(timeout) }.map(|time| time.map(duration));
    match time.and_then(|time| select_streams(count, [Set(read), Set(write), Set(except)], time, mask)) {
        Some(found) => found,
        // SAFETY: the program's arguments, unchanged.
        None => unsafe { real::pselect(count, read, write, except, timeout, mask) },
    }
}
