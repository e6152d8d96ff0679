//! Memory that the program passes to a call.

use std::ffi::{c_int, c_void};
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
pub(crate) unsafe fn with_buffer(
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
pub(crate) unsafe fn with_list(
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

/// Returns true for a name that dissolves a connection.
///
/// # Safety
///
/// As for [`internet_address`].
pub(crate) unsafe fn has_no_family(name: *const sockaddr, length: socklen_t) -> bool {
    // SAFETY: promised by the caller.
    (length as usize) >= size_of::<libc::sa_family_t>()
        && unsafe { ddss_stream::load(name.cast::<libc::sa_family_t>()) } == Some(libc::AF_UNSPEC as libc::sa_family_t)
}

/// Copies an Internet address.
///
/// # Safety
///
/// `name` is null, wrong, or points to `length` bytes.
pub(crate) unsafe fn internet_address(name: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
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

/// Copies an option's value to the program, as `getsockopt` does.
///
/// # Safety
///
/// `length` points to a length and `value` to as many bytes, or they are wrong.
pub(crate) unsafe fn put_option(value: *mut c_void, length: *mut socklen_t, answer: c_int) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { put(value.cast(), length, &answer.to_ne_bytes(), size_of::<c_int>() as socklen_t) }
}

/// Copies an Internet address to the program, as `getsockname` does.
///
/// # Safety
///
/// `length` points to a length and `name` to as many bytes, or they are wrong.
pub(crate) unsafe fn put_internet_address(name: *mut sockaddr, length: *mut socklen_t, address: SocketAddr) -> c_int {
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let whole = match address {
        SocketAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            size_of::<libc::sockaddr_in6>()
        }
    };
    // SAFETY: promised by the caller.
    unsafe { put(name.cast(), length, &bytes[..whole], whole as socklen_t) }
}

/// Copies as many bytes as the program has room for, and stores `whole` as their length.
///
/// # Safety
///
/// As for [`put_option`].
unsafe fn put(to: *mut u8, length: *mut socklen_t, bytes: &[u8], whole: socklen_t) -> c_int {
    // SAFETY: promised by the caller, here and below.
    let is_done = unsafe { ddss_stream::load(length) }.is_some_and(|room| {
        let mut parts = bytes.iter().take(room as usize).enumerate();
        // SAFETY: the byte lies inside the program's room.
        parts.all(|(at, byte)| unsafe { ddss_stream::store(to.wrapping_add(at), *byte) })
            // SAFETY: as above.
            && unsafe { ddss_stream::store(length, whole) }
    });
    if is_done {
        return 0;
    }
    super::errno::set(libc::EFAULT);
    -1
}
