//! `system`, `popen` and `wordexp`: libc starts a shell itself, past this library.

use std::ffi::{c_char, c_int, c_void};

use ddss_stream::ImageStart;
use libc::FILE;

use super::exec::before_shell;
use crate::sys::real;

/// Flag of `wordexp` that forbids commands.
const NO_COMMANDS: c_int = 1 << 2;

/// Replaces libc's `system`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    if !command.is_null() {
        before_shell();
    }
    let _start = ImageStart::begin();
    // SAFETY: the program's argument, unchanged.
    unsafe { real::system(command) }
}

/// Replaces libc's `popen`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    before_shell();
    let _start = ImageStart::begin();
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::popen(command, mode) }
}

/// Replaces libc's `wordexp`, which starts a shell for each command in the words.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn wordexp(words: *const c_char, expanded: *mut c_void, flags: c_int) -> c_int {
    if flags & NO_COMMANDS == 0 {
        before_shell();
    }
    let _start = ImageStart::begin();
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::wordexp(words, expanded, flags) }
}
