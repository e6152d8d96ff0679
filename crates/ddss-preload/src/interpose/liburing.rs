//! Functions of liburing that create a ring: they enter the kernel themselves.

use std::ffi::{c_int, c_void};

use crate::io_uring;
use crate::sys::real;

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init(entries: u32, ring: *mut c_void, flags: u32) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_queue_init(entries, ring, flags) }
}

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init_params(
    entries: u32,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_queue_init_params(entries, ring, parameters) }
}

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init_mem(
    entries: u32,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    bytes: usize,
) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_queue_init_mem(entries, ring, parameters, memory, bytes) }
}

/// Replaces liburing's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_setup(entries: u32, parameters: *mut c_void) -> c_int {
    if !io_uring::before_setup() {
        return -libc::EPERM;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::io_uring_setup(entries, parameters) }
}
