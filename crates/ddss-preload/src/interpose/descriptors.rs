//! Calls on descriptors. Those that a signal handler may make neither allocate nor lock.

use std::ffi::{c_int, c_void};

use ddss_stream::{Descriptor, is_hidden};

use crate::sys::{errno, is_own_process, real};
use crate::{calls, descriptor_table};

/// Commands of `fcntl` that prepare signals about a descriptor.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
/// Asks whether the next byte follows urgent data.
const SIOCATMARK: u64 = 0x8905;

/// Refuses a descriptor that the library hides: the program cannot know it.
fn refuse() -> c_int {
    errno::set(libc::EBADF);
    -1
}

fn fault() -> c_int {
    errno::set(libc::EFAULT);
    -1
}

/// Replaces libc's `close`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_hidden(fd) {
        return refuse();
    }
    calls::before_close(fd);
    // SAFETY: the program's argument, unchanged.
    unsafe { real::close(fd) }
}

/// Replaces libc's `close_range`: the hidden descriptors stay.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    let mut start = first;
    for number in first..=last.min(descriptor_table::len()) {
        let fd = number as c_int;
        if is_hidden(fd) {
            if start < number {
                // SAFETY: a part of the range that the program passed.
                unsafe { real::close_range(start, number - 1, flags) };
            }
            start = number + 1;
        } else if closes {
            calls::before_close(fd);
        } else if let Some(endpoint) = descriptor_table::stream(fd) {
            endpoint.set_close_on_exec(true);
        }
    }
    if start > last {
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::close_range(start, last, flags) }
}

/// Replaces libc's `closefrom`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the range has no other condition than `closefrom`.
    unsafe { close_range(first.max(0) as u32, u32::MAX, 0) };
}

fn copied(original: c_int, copy: c_int, close_on_exec: bool) -> c_int {
    let is_known = descriptor_table::is_known(original) || descriptor_table::is_known(copy);
    if copy >= 0 && copy != original && is_known && is_own_process() {
        descriptor_table::duplicate(original, copy);
        if let Some(endpoint) = descriptor_table::stream(copy).filter(|_| !close_on_exec) {
            endpoint.set_close_on_exec(false);
        }
    }
    copy
}

/// Replaces libc's `dup`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's argument, unchanged.
    copied(fd, unsafe { real::dup(fd) }, false)
}

/// Keeps a stream on TCP that becomes a standard descriptor: stdio calls the kernel past this library.
fn before_copy(fd: c_int, copy: c_int) {
    if (0..=2).contains(&copy)
        && let Some(endpoint) = descriptor_table::stream(fd)
    {
        calls::stay_on_tcp(&endpoint, fd);
    }
    if fd != copy {
        calls::before_close(copy);
    }
}

/// Replaces libc's `dup2`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup2(fd: c_int, copy: c_int) -> c_int {
    if is_hidden(fd) || is_hidden(copy) {
        return refuse();
    }
    if rustix::io::fcntl_getfd(Descriptor(fd)).is_ok() {
        before_copy(fd, copy);
    }
    // SAFETY: the program's arguments, unchanged.
    copied(fd, unsafe { real::dup2(fd, copy) }, false)
}

/// Replaces libc's `dup3`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int {
    if is_hidden(fd) || is_hidden(copy) {
        return refuse();
    }
    if fd != copy && rustix::io::fcntl_getfd(Descriptor(fd)).is_ok() {
        before_copy(fd, copy);
    }
    // SAFETY: the program's arguments, unchanged.
    copied(fd, unsafe { real::dup3(fd, copy, flags) }, flags & libc::O_CLOEXEC != 0)
}

/// Replaces libc's `fcntl`. On 64-bit Linux a variable argument is passed as a fixed one.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let has_asked = command == libc::F_SETFL && argument as c_int & libc::O_ASYNC != 0;
    let is_of_signals = has_asked || [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG].contains(&command);
    if is_of_signals {
        calls::needs_socket(fd);
    }
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if result >= 0 && (is_of_signals || command == libc::F_SETFL) {
        calls::after_signals(fd, has_asked);
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result, command == libc::F_DUPFD_CLOEXEC),
        libc::F_SETFD if result >= 0 => {
            if let Some(endpoint) = descriptor_table::stream(fd) {
                endpoint.set_close_on_exec(argument as c_int & libc::FD_CLOEXEC != 0);
            }
            result
        }
        _ => result,
    }
}

/// Replaces libc's `ioctl`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ioctl(fd: c_int, command: usize, argument: *mut c_void) -> c_int {
    // Programs pass the command as a signed or an unsigned word; 32 bits count.
    let known = u64::from(command as u32);
    if [SIOCATMARK, libc::FIOASYNC].contains(&known) && calls::needs_socket(fd) && known == libc::FIOASYNC {
        // SAFETY: the program's arguments, unchanged.
        let result = unsafe { real::ioctl(fd, command, argument as usize) };
        calls::after_signals(fd, result >= 0);
        return result;
    }
    if let Some(endpoint) = descriptor_table::stream(fd).filter(|endpoint| endpoint.is_shared()) {
        match known {
            libc::FIONREAD if !argument.is_null() => {
                if let Some(bytes) = endpoint.unread(Descriptor(fd)) {
                    // SAFETY: the program passed room for an `int`, or a wrong pointer.
                    let is_stored = unsafe { ddss_stream::store(argument.cast(), bytes as c_int) };
                    return if is_stored { 0 } else { fault() };
                }
            }
            SIOCATMARK if endpoint.has_bytes_before_tcp() => {
                // SAFETY: the program passed room for an `int`, or a wrong pointer.
                let is_stored = unsafe { ddss_stream::store(argument.cast::<c_int>(), 0) };
                return if is_stored { 0 } else { fault() };
            }
            libc::FIOCLEX | libc::FIONCLEX => endpoint.set_close_on_exec(known == libc::FIOCLEX),
            _ => (),
        }
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::ioctl(fd, command, argument as usize) }
}
