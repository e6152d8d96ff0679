//! New processes: `fork` and its relatives.

use std::ffi::{c_int, c_void};

use libc::pid_t;

use crate::sys::process::{begin_child, fork_by};
use crate::sys::real::{self, Start};

/// Replaces libc's `fork`: the child uses the same streams.
#[unsafe(no_mangle)]
pub(in crate::interpose) unsafe extern "C-unwind" fn fork() -> pid_t {
    // SAFETY: the program's call, unchanged.
    fork_by(|| unsafe { real::fork() })
}

/// Replaces libc's `vfork` by `fork`: the child of a `vfork` would change the parent's tables.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn vfork() -> pid_t {
    // SAFETY: as the program called it.
    unsafe { fork() }
}

/// Replaces libc's `_Fork`, which runs no handlers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: the program's call, unchanged.
    fork_by(|| unsafe { real::bare_fork() })
}

/// Function of the program that a child begins with, and its argument.
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

unsafe extern "C" fn begin(beginning: *mut c_void) -> c_int {
    begin_child();
    // SAFETY: the child has a copy of the memory in which its parent placed this.
    let Beginning { start, argument } = unsafe { beginning.cast::<Beginning>().read() };
    // SAFETY: the program's function and its argument.
    unsafe { start(argument) }
}

/// Replaces libc's `clone`. Programs that pass fewer arguments leave the rest undefined.
#[unsafe(no_mangle)]
pub(in crate::interpose) unsafe extern "C-unwind" fn clone(
    start: Start,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    tls: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    if flags & libc::CLONE_VM != 0 {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::clone(start, stack, flags, argument, parent, tls, child) };
    }
    let mut beginning = Beginning { start, argument };
    let place = (&raw mut beginning).cast();
    // SAFETY: the program's arguments, except that the child begins with a function that calls the program's.
    fork_by(|| unsafe { real::clone(begin, stack, flags, place, parent, tls, child) })
}
