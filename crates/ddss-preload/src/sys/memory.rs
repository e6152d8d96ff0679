//! Memory that the program passes to a call.

use std::ffi::c_void;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ddss_stream::UserMemory;
use libc::{iovec, sockaddr, socklen_t};

/// Runs `act` with one buffer of the program. `native`: the kernel answers a pointer that no program can have.
///
/// # Safety
///
/// `buffer` points to `bytes` bytes that the call may access, or is wrong.
#[inline]
pub(super) unsafe fn with_buffer(
    buffer: *const c_void,
    bytes: usize,
    native: impl Fn() -> isize,
    act: impl FnOnce(&UserMemory<'_>) -> isize,
) -> isize {
    // SAFETY: promised by the caller.
    match unsafe { UserMemory::one(buffer.cast(), bytes) } {
        Ok(memory) => act(&memory),
        Err(_) => native(),
    }
}

/// Runs `act` with a list of buffers. `native`: the kernel answers a list that it refuses.
///
/// # Safety
///
/// `parts` points to `count` entries, or is wrong, and so are the entries.
#[inline]
pub(super) unsafe fn with_list(
    parts: *const iovec,
    count: usize,
    native: impl Fn() -> isize,
    act: impl FnOnce(&UserMemory<'_>) -> isize,
) -> isize {
    // SAFETY: promised by the caller.
    match unsafe { UserMemory::list(parts, count) } {
        Ok(memory) => act(&memory),
        Err(_) => native(),
    }
}

/// Copies an Internet address.
///
/// # Safety
///
/// `name` is null, wrong, or points to `length` bytes.
pub(super) unsafe fn internet_address(name: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if name.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller promised `length` bytes, which hold the family, or a wrong pointer, here and below.
    let family = unsafe { ddss_stream::load(name.cast::<libc::sa_family_t>()) }?;
    match i32::from(family) {
        libc::AF_INET if length as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the length was checked.
            let name = unsafe { ddss_stream::load(name.cast::<libc::sockaddr_in>()) }?;
            Some((Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)), u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 if length as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the length was checked.
            let name = unsafe { ddss_stream::load(name.cast::<libc::sockaddr_in6>()) }?;
            Some((Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port)).into())
        }
        _ => None,
    }
}
