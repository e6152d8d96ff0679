//! Calls that begin, end and configure a connection.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use super::{errno, memory, real};
use crate::{calls, descriptor_table};

/// Replaces libc's `connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, name: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::connect(fd, name, length) };
    // SAFETY: the program promised a name of this length.
    let destination = unsafe { memory::internet_address(name, length) };
    let Some(destination) = destination.filter(|_| !descriptor_table::is_known(fd)) else { return native() };
    let is_prepared = calls::before_connect(fd, destination);
    let result = native();
    if is_prepared && result < 0 {
        let error = errno::get();
        if ![libc::EINPROGRESS, libc::EINTR, libc::EALREADY].contains(&error) {
            descriptor_table::remove(fd);
            errno::set(error);
        }
    }
    result
}

fn accepted(socket: c_int) -> c_int {
    if socket >= 0 {
        let error = errno::get();
        descriptor_table::remove(socket);
        calls::after_accept(socket);
        errno::set(error);
    }
    socket
}

/// Replaces libc's `accept`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    accepted(unsafe { real::accept(fd, name, length) })
}

/// Replaces libc's `accept4`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, name: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    accepted(unsafe { real::accept4(fd, name, length, flags) })
}

/// Replaces libc's `shutdown`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let endpoint = descriptor_table::stream(fd);
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real::shutdown(fd, how) };
    if let Some(endpoint) = endpoint.filter(|_| result == 0) {
        calls::shutdown(&endpoint, fd, how);
    }
    result
}

/// Replaces libc's `setsockopt`: zero copy needs the kernel's stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let is_kernels = level == libc::SOL_SOCKET && option == libc::SO_ZEROCOPY
        || level == libc::IPPROTO_TCP && option == libc::TCP_ULP;
    if is_kernels && descriptor_table::stream(fd).is_some_and(|endpoint| !calls::stay_on_tcp(&endpoint, fd)) {
        errno::set(libc::EOPNOTSUPP);
        return -1;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::setsockopt(fd, level, option, value, length) }
}
