//! Memory of the program, as a list of parts, and the system calls that fill or send it.

use std::ffi::{c_long, c_void};
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::iovec;
use rustix::io::Errno;

use super::guarded_copy;
use crate::limits::{PARTS_MAX, TCP_PARTS};

/// Parts of the program's memory that one call reads or writes. Nothing is believed of them: a wrong pointer is `FAULT`.
#[derive(Clone, Copy, Debug)]
pub struct UserMemory<'a> {
    parts: Parts,
    bytes: usize,
    _program: PhantomData<&'a [u8]>,
}

#[derive(Clone, Copy, Debug)]
enum Parts {
    One(iovec),
    List(*const iovec, usize),
}

impl<'a> UserMemory<'a> {
    /// Describes one buffer. `FAULT`: no program can have it.
    ///
    /// # Safety
    ///
    /// `base` points to `bytes` bytes that the call may access, for `'a`, or to memory that raises a fault.
    #[inline]
    pub unsafe fn one(base: *const u8, bytes: usize) -> Result<Self, Errno> {
        let part = checked(iovec { iov_base: base.cast_mut().cast(), iov_len: bytes })?;
        Ok(Self { parts: Parts::One(part), bytes, _program: PhantomData })
    }

    /// Describes the parts that a program passed to a system call. The error is that of the kernel for the same list.
    ///
    /// # Safety
    ///
    /// `parts` points to `count` entries, and each entry to memory that the call may access, for `'a`, or one of them to memory that
    /// raises a fault.
    pub unsafe fn list(parts: *const iovec, count: usize) -> Result<Self, Errno> {
        if count > PARTS_MAX {
            return Err(Errno::INVAL);
        }
        let mut memory = Self { parts: Parts::List(parts, count), bytes: 0, _program: PhantomData };
        for index in 0..count {
            let sum = memory.bytes.checked_add(memory.part(index)?.iov_len);
            memory.bytes = sum.filter(|sum| isize::try_from(*sum).is_ok()).ok_or(Errno::INVAL)?;
        }
        Ok(memory)
    }

    /// Returns the number of bytes in all parts.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn count(&self) -> usize {
        match self.parts {
            Parts::One(_) => 1,
            Parts::List(_, count) => count,
        }
    }

    /// Copies an entry. The program may change its list meanwhile: each copy is checked for itself.
    #[inline]
    fn part(&self, index: usize) -> Result<iovec, Errno> {
        match self.parts {
            Parts::One(part) => Ok(part),
            Parts::List(parts, _) => {
                // SAFETY: `list` was promised the entries, or a fault, for `'a`; all bytes are a valid entry.
                let part = unsafe { guarded_copy::load(parts.wrapping_add(index)) };
                part.ok_or(Errno::FAULT).and_then(checked)
            }
        }
    }

    /// Calls `act` for each contiguous part of `bytes` bytes from `offset` on: bytes before it, address, length.
    #[inline]
    pub(crate) fn each_part(
        &self,
        offset: usize,
        bytes: usize,
        mut act: impl FnMut(usize, *mut u8, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (mut skip, mut done) = (offset, 0);
        for index in 0..self.count() {
            if done == bytes {
                return Ok(());
            }
            let part = self.part(index)?;
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            let length = (part.iov_len - skip).min(bytes - done);
            act(done, part.iov_base.cast::<u8>().wrapping_add(skip), length)?;
            done += length;
            skip = 0;
        }
        // A list that became shorter meanwhile.
        if done == bytes { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// Passes the list, cut to `bytes` bytes from `offset` on, to one system call: a call that stops before the last part would tell the
    /// program that nothing is left.
    fn call(
        &self,
        offset: usize,
        bytes: usize,
        call: impl FnOnce(&mut [iovec]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if self.count() <= TCP_PARTS {
            self.call_with::<TCP_PARTS>(offset, bytes, call)
        } else {
            self.call_with::<PARTS_MAX>(offset, bytes, call)
        }
    }

    #[inline(never)]
    fn call_with<const PARTS: usize>(
        &self,
        offset: usize,
        bytes: usize,
        call: impl FnOnce(&mut [iovec]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut list = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
        let mut count = 0;
        self.each_part(offset, bytes, |_, part, length| {
            list[count] = iovec { iov_base: part.cast(), iov_len: length };
            count += 1;
            Ok(())
        })?;
        call(&mut list[..count])
    }

    /// Receives from a TCP socket without waiting, at most `bytes` bytes.
    pub(crate) fn receive(&self, socket: RawFd, offset: usize, bytes: usize, flags: i32) -> Result<usize, Errno> {
        self.call(offset, bytes, |parts| message_call(libc::SYS_recvmsg, socket, parts, flags | libc::MSG_DONTWAIT))
    }

    /// Sends to a TCP socket without waiting.
    pub(crate) fn send(&self, socket: RawFd, offset: usize, flags: i32) -> Result<usize, Errno> {
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let bytes = self.bytes.saturating_sub(offset);
        self.call(offset, bytes, |parts| message_call(libc::SYS_sendmsg, socket, parts, flags))
    }
}

/// Refuses what the kernel refuses without a look at the memory: its own half of the addresses.
#[inline]
fn checked(part: iovec) -> Result<iovec, Errno> {
    let end = (part.iov_base as usize).checked_add(part.iov_len);
    let is_possible = part.iov_len == 0 || end.is_some_and(|end| isize::try_from(end).is_ok());
    if is_possible { Ok(part) } else { Err(Errno::FAULT) }
}

/// Runs `act` with a description of bytes that are read.
pub(crate) fn with_bytes<R>(bytes: &[u8], act: impl FnOnce(&UserMemory<'_>) -> R) -> R {
    let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // The slice outlives `act`; the callers hand the description to calls that only read from it.
    act(&UserMemory { parts: Parts::One(part), bytes: bytes.len(), _program: PhantomData })
}

/// Runs `act` with a description of bytes that are filled.
pub(crate) fn with_room<R>(room: &mut [u8], act: impl FnOnce(&UserMemory<'_>) -> R) -> R {
    let part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    act(&UserMemory { parts: Parts::One(part), bytes: room.len(), _program: PhantomData })
}

/// Receives from the kernel as `recv` does, waiting if the socket waits. Negative: `errno` is set.
pub(crate) fn kernel_receive(socket: RawFd, room: &mut [u8]) -> isize {
    // SAFETY: the room is a slice of this length.
    unsafe { kernel_call(libc::SYS_recvfrom, socket, room.as_mut_ptr() as usize, room.len(), 0) }
}

/// Sends through the kernel as `send` does, without the signal of a broken pipe. Negative: `errno` is set.
pub(crate) fn kernel_send(socket: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: the slice has this length.
    unsafe { kernel_call(libc::SYS_sendto, socket, bytes.as_ptr() as usize, bytes.len(), libc::MSG_NOSIGNAL) }
}

fn message_call(number: c_long, socket: RawFd, parts: &mut [iovec], flags: i32) -> Result<usize, Errno> {
    // SAFETY: all zero is a valid message: no name, no parts, no control data. It has private padding with musl.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the message lives until the call returns and names `parts.len()` parts of the program's memory.
    let result = unsafe { kernel_call(number, socket, &raw const message as usize, flags as usize, 0) };
    if result >= 0 { Ok(result as usize) } else { Err(last_errno()) }
}

/// Calls the kernel by libc's own `syscall`. The preload library has a function of this name, which must not meet itself.
///
/// # Safety
///
/// As for the call with this number. Arguments behind the last one are zero.
pub(super) unsafe fn kernel_call(number: c_long, socket: RawFd, second: usize, third: usize, fourth: i32) -> isize {
    type Call = unsafe extern "C" fn(c_long, ...) -> c_long;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: the name is a C string; the call finds the symbol behind this object.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
        if next.is_null() {
            // A static program.
            next = libc::syscall as *mut c_void;
        }
        NEXT.store(next, Ordering::Relaxed);
    }
    // SAFETY: the symbol of this name has this signature in every libc.
    let call = unsafe { std::mem::transmute::<*mut c_void, Call>(next) };
    // SAFETY: promised by the caller.
    unsafe { call(number, socket, second, third, fourth, 0usize, 0usize) as isize }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
