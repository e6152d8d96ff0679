//! Calls that create a ring of io_uring: by number, and by liburing, which enters the kernel itself.

use std::ffi::{c_int, c_long, c_void};

use super::{errno, real};
use crate::io_uring;

/// Replaces libc's `syscall`. Programs that pass fewer arguments leave the rest undefined, for libc as for this function.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if number == libc::SYS_io_uring_setup && !io_uring::before_setup() {
        errno::set(libc::EPERM);
        return -1;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_init(entries: u32, ring: *mut c_void, flags: u32) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_queue_init(entries, ring, flags) }
}

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_init_params(entries: u32, ring: *mut c_void, parameters: *mut c_void) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_queue_init_params(entries, ring, parameters) }
}
