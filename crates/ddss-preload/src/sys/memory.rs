//! Memory that the program passes to a call.

use std::ffi::c_void;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ddss_stream::UserMemory;
use libc::{iovec, sockaddr, socklen_t};

/// Runs `act` with one buffer of the program.
///
/// # Safety
///
/// `buffer` points to `bytes` bytes that the call may access.
#[inline]
pub(super) unsafe fn with_buffer<R>(buffer: *const c_void, bytes: usize, act: impl FnOnce(&UserMemory<'_>) -> R) -> R {
    let part = iovec { iov_base: buffer.cast_mut(), iov_len: bytes };
    // SAFETY: the part outlives `act`, and the caller promised the buffer.
    let memory = unsafe { UserMemory::new(&raw const part, 1) };
    act(&memory)
}

/// Describes a list of buffers.
///
/// # Safety
///
/// As for [`UserMemory::new`].
#[inline]
pub(super) unsafe fn list<'a>(parts: *const iovec, count: usize) -> UserMemory<'a> {
    // SAFETY: promised by the caller.
    unsafe { UserMemory::new(parts, count) }
}

/// Copies an Internet address.
///
/// # Safety
///
/// `name` is null or points to `length` bytes.
pub(super) unsafe fn internet_address(name: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if name.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller promised `length` bytes, which hold the family.
    let family = unsafe { name.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET if length as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the length was checked.
            let name = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)), u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 if length as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the length was checked.
            let name = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port)).into())
        }
        _ => None,
    }
}
