//! `system` and `popen`: libc starts a shell itself, past this library.

use std::ffi::{c_char, c_int};

use libc::FILE;

use super::exec::before_shell;
use crate::sys::real;

/// Replaces libc's `system`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    if !command.is_null() {
        before_shell();
    }
    // SAFETY: the program's argument, unchanged.
    unsafe { real::system(command) }
}

/// Replaces libc's `popen`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    before_shell();
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::popen(command, mode) }
}
