//! Reads and writes. A descriptor that is no stream costs one look at the table: programs that stay on TCP pay for nothing else.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use ddss_stream::{Endpoint, UserMemory};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rustix::io::Errno;

use crate::sys::{errno, memory, real};
use crate::{calls, descriptor_table, wire};

interpose! {
    fn read(fd: c_int, to: *mut c_void, bytes: size_t) => |endpoint, native| {
        memory::with_buffer(to, bytes, native, |memory| calls::read(&endpoint, fd, memory, 0, native))
    };
    fn write(fd: c_int, from: *const c_void, bytes: size_t) => |endpoint, native| {
        memory::with_buffer(from, bytes, native, |memory| calls::write(&endpoint, fd, memory, 0, native))
    };
    fn readv(fd: c_int, parts: *const iovec, count: c_int) => |endpoint, native| {
        on_list(calls::read, (&endpoint, fd), parts, count, 0, native)
    };
    fn writev(fd: c_int, parts: *const iovec, count: c_int) => |endpoint, native| {
        on_list(calls::write, (&endpoint, fd), parts, count, 0, native)
    };
    // Without an offset it reads a stream as `readv` does.
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) => |endpoint, native| {
        if offset != -1 { native() } else { on_list(calls::read, (&endpoint, fd), parts, count, message_flags(flags), native) }
    };
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) => |endpoint, native| {
        if offset != -1 { native() } else { on_list(calls::write, (&endpoint, fd), parts, count, message_flags(flags), native) }
    };
    fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) => |endpoint, native| {
        memory::with_buffer(to, bytes, native, |memory| calls::read(&endpoint, fd, memory, flags, native))
    };
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) unless wire::is_urgent(fd, flags)
        => |endpoint, native| {
            memory::with_buffer(from, bytes, native, |memory| calls::write(&endpoint, fd, memory, flags, native))
        };
}

/// Replaces the checked form of `read`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    assert!(bytes <= room, "read beyond a buffer");
    // SAFETY: as the program called it.
    unsafe { read(fd, to, bytes) }
}

/// Carries out a read or a write on a list of the program's parts; `native` is the same call of the kernel.
///
/// # Safety
///
/// `parts` points to `count` entries, or is wrong.
unsafe fn on_list<N: Fn() -> ssize_t + Copy>(
    act: impl FnOnce(&Endpoint, c_int, &UserMemory<'_>, c_int, N) -> ssize_t,
    (endpoint, fd): (&Endpoint, c_int),
    parts: *const iovec,
    count: c_int,
    flags: c_int,
    native: N,
) -> ssize_t {
    if count <= 0 {
        return native();
    }
    // SAFETY: promised by the caller.
    unsafe { memory::with_list(parts, count as usize, native, |memory| act(endpoint, fd, memory, flags, native)) }
}

/// Returns the flags of `recv` and `send` for those of `preadv2` and `pwritev2`.
fn message_flags(flags: c_int) -> c_int {
    if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 }
}

/// Replaces the checked form of `recv`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    assert!(bytes <= room, "recv beyond a buffer");
    // SAFETY: as the program called it.
    unsafe { recv(fd, to, bytes, flags) }
}

/// Replaces libc's `recvfrom`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
    name: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::recvfrom(fd, to, bytes, flags, name, length) };
    let Some(endpoint) = descriptor_table::stream(fd) else {
        if name.is_null() || wire::names(fd).is_none() {
            return native();
        }
        // A TCP socket reports no name.
        // SAFETY: the program passed a length to fill, or a wrong pointer.
        unsafe { ddss_stream::store(length, 0) };
        // SAFETY: the program's arguments, without the name.
        return unsafe { real::recvfrom(fd, to, bytes, flags, std::ptr::null_mut(), std::ptr::null_mut()) };
    };
    // SAFETY: the program passed a length to fill, or a wrong pointer; a TCP socket reports no name.
    if !length.is_null() && endpoint.is_shared() && !unsafe { ddss_stream::store(length, 0) } {
        errno::set(libc::EFAULT);
        return -1;
    }
    // SAFETY: the program promised the buffer.
    unsafe { memory::with_buffer(to, bytes, native, |memory| calls::read(&endpoint, fd, memory, flags, native)) }
}

/// Replaces the checked form of `recvfrom`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    name: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    assert!(bytes <= room, "recvfrom beyond a buffer");
    // SAFETY: as the program called it.
    unsafe { recvfrom(fd, to, bytes, flags, name, length) }
}

/// Replaces libc's `sendto`. The kernel ignores the name of a connected TCP socket, and so does the library.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    name: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::sendto(fd, from, bytes, flags, name, length) };
    let Some(endpoint) = descriptor_table::stream(fd) else {
        if wire::is_urgent(fd, flags) {
            return -1;
        }
        if name.is_null() || wire::names(fd).is_none() {
            return native();
        }
        // SAFETY: the program's arguments, without the name, which a connected TCP socket ignores.
        return unsafe { real::sendto(fd, from, bytes, flags, std::ptr::null(), 0) };
    };
    // SAFETY: the program promised the buffer.
    unsafe { memory::with_buffer(from, bytes, native, |memory| calls::write(&endpoint, fd, memory, flags, native)) }
}

/// Replaces libc's `recvmsg`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::recvmsg(fd, message, flags) };
    let Some(endpoint) = descriptor_table::stream(fd) else { return native() };
    // SAFETY: the program passed a message, or a wrong pointer.
    let Some(header) = (unsafe { ddss_stream::load(message) }) else { return native() };
    let is_shared = endpoint.is_shared();
    let act = |memory: &UserMemory<'_>| calls::read(&endpoint, fd, memory, flags, native);
    // SAFETY: the program promised its list.
    let result = unsafe { memory::with_list(header.msg_iov, header.msg_iovlen, native, act) };
    if is_shared && result >= 0 {
        // A stream has neither names nor control messages.
        let header = msghdr { msg_namelen: 0, msg_controllen: 0, msg_flags: 0, ..header };
        // SAFETY: the program passed a message that the call may fill, or a wrong pointer.
        if !unsafe { ddss_stream::store(message, header) } {
            errno::set(libc::EFAULT);
            return -1;
        }
    }
    result
}

/// Replaces libc's `sendmsg`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: the program passed a message, or a wrong pointer.
    let Some(header) = (unsafe { ddss_stream::load(message) }) else { return native() };
    let Some(endpoint) = descriptor_table::stream(fd) else {
        // SAFETY: the program promised the control buffer of its message.
        if header.msg_controllen > 0 && unsafe { has_shared_stream(&header) } {
            crate::sys::report("ddss-preload: a stream in shared memory cannot be sent to another process\n");
            errno::set(libc::EINVAL);
            return -1;
        }
        return if wire::is_urgent(fd, flags) { -1 } else { native() };
    };
    let act = |memory: &UserMemory<'_>| calls::write(&endpoint, fd, memory, flags, native);
    // SAFETY: the program promised its list.
    unsafe { memory::with_list(header.msg_iov, header.msg_iovlen, native, act) }
}

/// Looks for descriptors that the message hands to another process. Undecided streams among them stay on TCP.
///
/// # Safety
///
/// The header names a control buffer, or a wrong pointer.
#[allow(clippy::unnecessary_cast, reason = "musl has other types")]
unsafe fn has_shared_stream(header: &msghdr) -> bool {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let (control, end) = (header.msg_control.cast::<u8>(), header.msg_controllen as usize);
    let (mut at, mut is_found) = (0, false);
    while end.saturating_sub(at) >= HEAD {
        // SAFETY: the header lies inside the control buffer.
        let Some(found) = (unsafe { ddss_stream::load(control.wrapping_add(at).cast::<libc::cmsghdr>()) }) else {
            break;
        };
        let bytes = found.cmsg_len as usize;
        if bytes < HEAD || bytes > end - at {
            break;
        }
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
            for place in (at + HEAD..at + bytes).step_by(size_of::<c_int>()) {
                // SAFETY: the kernel reads the same part of the control buffer.
                let fd = unsafe { ddss_stream::load(control.wrapping_add(place).cast::<c_int>()) }.unwrap_or(-1);
                is_found |= descriptor_table::stream(fd).is_some_and(|endpoint| !calls::stay_on_tcp(&endpoint, fd));
            }
        }
        at += bytes.next_multiple_of(size_of::<usize>());
    }
    is_found
}

/// Returns true if one of the messages may hand descriptors to another process.
///
/// # Safety
///
/// `messages` points to `count` messages, or is wrong.
unsafe fn have_control_messages(messages: *mut mmsghdr, count: u32) -> bool {
    (0..count.min(libc::UIO_MAXIOV as u32)).any(|index| {
        let message = messages.wrapping_add(index as usize).cast::<msghdr>();
        // SAFETY: promised by the caller; the header is the first field.
        unsafe { ddss_stream::load(message) }.is_some_and(|header| header.msg_controllen > 0)
    })
}

/// Returns the place of a message's length. Its header is the first field.
fn length_of(message: *mut mmsghdr) -> *mut u32 {
    message.wrapping_byte_add(std::mem::offset_of!(mmsghdr, msg_len)).cast()
}

/// Replaces libc's `sendmmsg`: one message after the other on a stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int {
    // SAFETY: the program promised `count` messages.
    if descriptor_table::stream(fd).is_none() && !unsafe { have_control_messages(messages, count) } {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    // SAFETY: the program promised `count` messages.
    each_message(messages, count, |message| (unsafe { sendmsg(fd, message, flags) }, false))
}

/// Carries out one call for each message, up to one that says that it is the last, and stores the lengths. Returns the number of messages
/// before a failure, whose error counts only if it is that of the first message.
fn each_message(messages: *mut mmsghdr, count: u32, mut call: impl FnMut(*mut msghdr) -> (ssize_t, bool)) -> c_int {
    let count = count.min(libc::UIO_MAXIOV as u32);
    for index in 0..count {
        let message = messages.wrapping_add(index as usize);
        let (mut moved, is_last) = call(message.cast());
        // SAFETY: the program promised `count` messages, or passed a wrong pointer.
        if moved >= 0 && !unsafe { ddss_stream::store(length_of(message), moved as u32) } {
            errno::set(libc::EFAULT);
            moved = -1;
        }
        match moved {
            ..0 if index == 0 => return -1,
            ..0 => return index as c_int,
            _ if is_last => return index as c_int + 1,
            _ => (),
        }
    }
    count as c_int
}

/// Replaces libc's `recvmmsg`: one message after the other on a stream. As the kernel does, it looks at the timeout behind each message.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the program passed a timeout, or a wrong pointer.
    let read_timeout = || unsafe { ddss_stream::load(timeout) }.and_then(duration);
    let limit = if timeout.is_null() { None } else { read_timeout() };
    let endpoint = descriptor_table::stream(fd).filter(|_| count > 0 && (limit.is_some() || timeout.is_null()));
    let Some(endpoint) = endpoint else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    };
    let mut has_received = false;
    let (start, mut flags_now) = (Instant::now(), flags & !libc::MSG_WAITFORONE);
    each_message(messages, count, |message| {
        // SAFETY: the program promised `count` messages.
        let received = unsafe { recvmsg(fd, message, flags_now) };
        if received < 0 && has_received && !matches!(errno::get(), libc::EAGAIN | libc::EINTR | libc::EFAULT) {
            // This call reports the messages before, the next one the failure.
            endpoint.record_failure(Errno::from_raw_os_error(errno::get()));
        }
        has_received = true;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        if let Some(left) = left.filter(|_| received >= 0) {
            let left = timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            // SAFETY: as above; the kernel changes the timeout, too.
            unsafe { ddss_stream::store(timeout, left) };
        }
        (received, left.is_some_and(|left| left.is_zero()))
    })
}

fn duration(time: timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanoseconds))
}
