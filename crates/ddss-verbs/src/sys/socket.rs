//! Gathered sends and scattered receives on mapped memory, which safe wrappers cannot express.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::mapping::Mapping;

/// Maximum number of parts of one gathered send.
const PARTS_MAX: usize = 80;

/// Source of bytes for a gathered send.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Bytes(&'a [u8]),
    Memory { mapping: &'a Mapping, offset: usize, bytes: usize },
}

/// Sends as much as the socket accepts, without blocking and without a signal. `more`: the last packet may wait for
/// the next send.
pub(crate) fn send_parts<'a>(
    fd: BorrowedFd<'_>,
    parts: impl Iterator<Item = Part<'a>>,
    more: bool,
) -> io::Result<usize> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    let mut count = 0;
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = match part {
            Part::Bytes(bytes) => libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() },
            Part::Memory { mapping, offset, bytes } => {
                libc::iovec { iov_base: mapping.span(offset, bytes).cast(), iov_len: bytes }
            }
        };
        count += 1;
    }
    // SAFETY: all zero is a valid msghdr: no address, no control data, no parts.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = count as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the parts borrow their bytes and mappings for `'a`, which outlives the call; `span` checked the bounds;
    // the kernel only reads them.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into a range of mapped memory first and into `rest` after it, without blocking.
pub(crate) fn receive_into(
    fd: BorrowedFd<'_>,
    mapping: &Mapping,
    offset: usize,
    bytes: usize,
    rest: &mut [u8],
) -> io::Result<usize> {
    let mut vectors = [
        libc::iovec { iov_base: mapping.span(offset, bytes).cast(), iov_len: bytes },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    // SAFETY: all zero is a valid msghdr: no address, no control data, no parts.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    // SAFETY: `span` checked that the range is inside the mapping, which is borrowed; `rest` is borrowed exclusively.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Sets the number of received bytes below which the socket is not readable for epoll and packets are acknowledged on
/// arrival.
pub(crate) fn set_low_water(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads an int, and `value` lives for the whole call.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
