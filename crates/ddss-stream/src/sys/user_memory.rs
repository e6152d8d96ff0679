//! Memory of the program, as a list of parts, and the system calls that fill or send it.

use std::marker::PhantomData;
use std::os::fd::RawFd;

use libc::iovec;
use rustix::io::Errno;

use crate::limits::{PARTS_MAX, TCP_PARTS};

/// Parts of the program's memory that one call reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct UserMemory<'a> {
    parts: *const iovec,
    count: usize,
    bytes: usize,
    _program: PhantomData<&'a [u8]>,
}

impl<'a> UserMemory<'a> {
    /// Describes the parts that a program passed to a system call.
    ///
    /// # Safety
    ///
    /// `parts` points to `count` valid entries, and each entry to memory that the call may access, for `'a`.
    pub unsafe fn new(parts: *const iovec, count: usize) -> Self {
        let mut memory = Self { parts, count: count.min(PARTS_MAX), bytes: 0, _program: PhantomData };
        memory.bytes = (0..memory.count).fold(0usize, |sum, index| sum.saturating_add(memory.part(index).iov_len));
        memory
    }

    /// Returns the number of bytes in all parts.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn part(&self, index: usize) -> iovec {
        debug_assert!(index < self.count);
        // SAFETY: `new` was promised `count` entries, so that the address lies inside the list.
        let part = unsafe { self.parts.add(index) };
        // SAFETY: as above; the entries are valid for `'a`.
        unsafe { *part }
    }

    /// Calls `act` for each contiguous part of `bytes` bytes from `offset` on: bytes before it, address, length.
    #[inline]
    pub(crate) fn each_part(&self, offset: usize, bytes: usize, mut act: impl FnMut(usize, *mut u8, usize)) {
        let (mut skip, mut done) = (offset, 0);
        for index in 0..self.count {
            if done == bytes {
                return;
            }
            let part = self.part(index);
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            let length = (part.iov_len - skip).min(bytes - done);
            act(done, part.iov_base.cast::<u8>().wrapping_add(skip), length);
            done += length;
            skip = 0;
        }
    }

    /// Copies the list, cut to `bytes` bytes from `offset` on, for one system call.
    fn cut(&self, offset: usize, bytes: usize) -> ([iovec; TCP_PARTS], usize) {
        let mut list = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; TCP_PARTS];
        let mut count = 0;
        self.each_part(offset, bytes, |_, part, length| {
            if count < TCP_PARTS {
                list[count] = iovec { iov_base: part.cast(), iov_len: length };
                count += 1;
            }
        });
        (list, count)
    }

    /// Receives from a TCP socket without waiting, at most `bytes` bytes.
    pub(crate) fn receive(&self, socket: RawFd, offset: usize, bytes: usize, flags: i32) -> Result<usize, Errno> {
        let (mut list, count) = self.cut(offset, bytes);
        message_call(libc::SYS_recvmsg, socket, &mut list[..count], flags | libc::MSG_DONTWAIT)
    }

    /// Sends to a TCP socket without waiting.
    pub(crate) fn send(&self, socket: RawFd, offset: usize, flags: i32) -> Result<usize, Errno> {
        let (mut list, count) = self.cut(offset, self.bytes.saturating_sub(offset));
        message_call(libc::SYS_sendmsg, socket, &mut list[..count], flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }
}

/// Runs `act` with a description of bytes that are read.
pub(crate) fn with_bytes<R>(bytes: &[u8], act: impl FnOnce(&UserMemory<'_>) -> R) -> R {
    let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: part and slice outlive `act`; the callers hand the description to calls that only read from it.
    let memory = unsafe { UserMemory::new(&raw const part, 1) };
    act(&memory)
}

/// Runs `act` with a description of bytes that are filled.
pub(crate) fn with_room<R>(room: &mut [u8], act: impl FnOnce(&UserMemory<'_>) -> R) -> R {
    let part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: part and slice outlive `act`, and the slice is borrowed for that time.
    let memory = unsafe { UserMemory::new(&raw const part, 1) };
    act(&memory)
}

/// Receives from the kernel as `recv` does, waiting if the socket waits. Negative: `errno` is set.
pub(crate) fn kernel_receive(socket: RawFd, room: &mut [u8]) -> isize {
    // SAFETY: the room is a slice of this length. The call by number passes no library.
    unsafe { libc::syscall(libc::SYS_recvfrom, socket, room.as_mut_ptr(), room.len(), 0, 0, 0) as isize }
}

/// Sends through the kernel as `send` does, without the signal of a broken pipe. Negative: `errno` is set.
pub(crate) fn kernel_send(socket: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: the slice has this length. The call by number passes no library.
    unsafe { libc::syscall(libc::SYS_sendto, socket, bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL, 0, 0) as isize }
}

fn message_call(number: libc::c_long, socket: RawFd, parts: &mut [iovec], flags: i32) -> Result<usize, Errno> {
    // SAFETY: all zero is a valid message: no name, no parts, no control data. It has private padding with musl.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the message lives until the call returns and names `parts.len()` parts of the program's memory.
    let result = unsafe { libc::syscall(number, socket, &raw const message, flags) };
    if result >= 0 { Ok(result as usize) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
