//! Calls that begin, end and configure a connection.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use crate::calls::Preparation;
use crate::sys::{errno, memory, real};
use crate::{calls, descriptor_table, wire};

/// Replaces libc's `connect`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn connect(fd: c_int, name: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let native = || unsafe { real::connect(fd, name, length) };
    // SAFETY: the program promised a name of this length.
    let destination = unsafe { memory::internet_address(name, length) };
    // SAFETY: as above.
    if destination.is_none() && descriptor_table::is_known(fd) && unsafe { memory::has_no_family(name, length) } {
        return calls::disconnect(fd, native);
    }
    let Some(destination) = destination.filter(|_| !descriptor_table::is_known(fd)) else { return native() };
    let preparation = calls::before_connect(fd, destination);
    if preparation == Preparation::Wire {
        return wire::connect(fd, native);
    }
    if wire::names(fd).is_some() {
        errno::set(libc::EISCONN);
        return -1;
    }
    let result = native();
    if preparation == Preparation::SameNode && result < 0 {
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
pub(super) unsafe extern "C-unwind" fn accept(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    accepted(unsafe { real::accept(fd, name, length) })
}

/// Replaces libc's `accept4`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    name: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    accepted(unsafe { real::accept4(fd, name, length, flags) })
}

/// Replaces libc's `shutdown`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
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
pub(super) unsafe extern "C-unwind" fn setsockopt(
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
    if level == libc::SOL_SOCKET && option == libc::SO_OOBINLINE {
        calls::needs_socket(fd);
    }
    if level == libc::SOL_SOCKET && option == libc::SO_RCVLOWAT {
        // SAFETY: the program's arguments, unchanged.
        let result = unsafe { real::setsockopt(fd, level, option, value, length) };
        if result == 0 && calls::takes_low_water(fd) {
            let lowest: c_int = 1;
            let place = (&raw const lowest).cast();
            // SAFETY: the value lives until the call returns.
            unsafe { real::setsockopt(fd, level, option, place, size_of::<c_int>() as socklen_t) };
        }
        return result;
    }
    let is_send_buffer = level == libc::SOL_SOCKET && [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE].contains(&option);
    if is_send_buffer && wire::names(fd).is_some() {
        // The pump needs the size that the library chose.
        return 0;
    }
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real::setsockopt(fd, level, option, value, length) };
    // Settings of TCP and of its packets are the pump's.
    if result < 0 && is_internet(level) && wire::names(fd).is_some() {
        return 0;
    }
    result
}

fn is_internet(level: c_int) -> bool {
    [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level)
}

/// Replaces libc's `getsockopt`: a socket of the pump answers as the TCP socket that it stands for.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real::getsockopt(fd, level, option, value, length) };
    let mark = if level == libc::SOL_SOCKET && option == libc::SO_RCVLOWAT { calls::low_water(fd) } else { None };
    if let Some(mark) = mark.filter(|_| result == 0) {
        // SAFETY: the program passed room for an `int` and its length, or wrong pointers.
        return unsafe { memory::put_option(value, length, mark as c_int) };
    }
    let is_kind = level == libc::SOL_SOCKET && [libc::SO_DOMAIN, libc::SO_PROTOCOL].contains(&option);
    let is_switch = level == libc::IPPROTO_TCP && option == libc::TCP_NODELAY;
    if !(is_kind && result == 0 || is_switch && result < 0) {
        return result;
    }
    let Some(names) = wire::names(fd) else { return result };
    let answer: c_int = match option {
        _ if is_switch => 1,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        _ if names.own.is_ipv4() => libc::AF_INET,
        _ => libc::AF_INET6,
    };
    // SAFETY: the program passed room for an `int` and its length, or wrong pointers.
    unsafe { memory::put_option(value, length, answer) }
}

/// Replaces libc's `getsockname`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getsockname(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match wire::names(fd) {
        // SAFETY: the program passed room of this length, or wrong pointers.
        Some(names) => unsafe { memory::put_internet_address(name, length, names.own) },
        // SAFETY: the program's arguments, unchanged.
        None => unsafe { real::getsockname(fd, name, length) },
    }
}

/// Replaces libc's `getpeername`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getpeername(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match wire::names(fd) {
        // SAFETY: as above.
        Some(names) => unsafe { memory::put_internet_address(name, length, names.peer) },
        // SAFETY: the program's arguments, unchanged.
        None => unsafe { real::getpeername(fd, name, length) },
    }
}
