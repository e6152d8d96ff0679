//! `sendfile` and `splice` on streams: through a buffer on the stack.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use crate::descriptor_table;
use crate::sys::{errno, real};

/// Bytes that one call moves; programs continue after a short count.
const CHUNK: usize = 64 << 10;

/// Replaces libc's `sendfile`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
    let Some(endpoint) = descriptor_table::stream(to) else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::sendfile(to, from, offset, bytes) };
    };
    // SAFETY: the program's arguments, unchanged.
    let mut native = || unsafe { real::sendfile(to, from, offset, bytes) };
    if let Some(result) = crate::calls::through_kernel(&endpoint, to, ddss_stream::Native::Write, &mut native) {
        return result;
    }
    let mut chunk = [0u8; CHUNK];
    let mut done = 0;
    while done < bytes {
        let wanted = (bytes - done).min(CHUNK);
        let start = if offset.is_null() {
            // SAFETY: asks for the position of the program's file.
            unsafe { libc::lseek(from, 0, libc::SEEK_CUR) }
        } else {
            // SAFETY: the program passed an offset, or a wrong pointer.
            match unsafe { ddss_stream::load(offset) } {
                Some(offset) => offset,
                None => {
                    errno::set(libc::EFAULT);
                    return if done > 0 { done as ssize_t } else { -1 };
                }
            }
        };
        // SAFETY: the buffer has `wanted` bytes.
        let found = unsafe { libc::pread(from, chunk.as_mut_ptr().cast(), wanted, start) };
        if found <= 0 {
            return if done > 0 { done as ssize_t } else { found };
        }
        // SAFETY: the buffer holds `found` bytes; `write` finds the stream again.
        let sent = unsafe { super::io::write(to, chunk.as_ptr().cast::<c_void>(), found as usize) };
        if sent < 0 {
            return if done > 0 { done as ssize_t } else { -1 };
        }
        if offset.is_null() {
            // SAFETY: moves the position of the program's file behind the bytes that were sent.
            unsafe { libc::lseek(from, start + sent as off_t, libc::SEEK_SET) };
        } else {
            // SAFETY: the program passed an offset that the call may change; it was read above.
            unsafe { ddss_stream::store(offset, start + sent as off_t) };
        }
        done += sent as usize;
        if sent < found {
            break;
        }
    }
    done as ssize_t
}

/// Replaces libc's `splice`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    bytes: size_t,
    flags: u32,
) -> ssize_t {
    for fd in [from, to] {
        // A refused `splice` makes programs read and write: bytes that leave a full pipe could not be put back.
        if descriptor_table::stream(fd).is_some_and(|endpoint| !crate::calls::stay_on_tcp(&endpoint, fd)) {
            errno::set(libc::EINVAL);
            return -1;
        }
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::splice(from, from_offset, to, to_offset, bytes, flags) }
}
