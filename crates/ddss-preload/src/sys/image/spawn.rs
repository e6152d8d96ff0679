//! `posix_spawn`: libc itself duplicates descriptors in the child, past this library.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use super::exec::{loads, loads_by_name, refuse_inheritance};
use crate::sys::real::{self, StringList};
use crate::{calls, descriptor_table};

/// Replaces libc's function of this name: the copy may survive `exec` although the original does not.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, copy: c_int) -> c_int {
    if let Some(endpoint) = descriptor_table::stream(fd)
        && !calls::stay_on_tcp(&endpoint, fd)
    {
        endpoint.set_close_on_exec(false);
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::adddup2(actions, fd, copy) }
}

/// Replaces libc's `posix_spawn`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: StringList,
    environment: StringList,
) -> c_int {
    // SAFETY: the program promised the strings.
    if refuse_inheritance(|| unsafe { loads(path, environment) }) {
        return libc::ENOTSUP;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::posix_spawn(child, path, actions, attributes, arguments, environment) }
}

/// Replaces libc's `posix_spawnp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: StringList,
    environment: StringList,
) -> c_int {
    // SAFETY: the program promised the strings.
    if refuse_inheritance(|| unsafe { loads_by_name(name, environment) }) {
        return libc::ENOTSUP;
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::posix_spawnp(child, name, actions, attributes, arguments, environment) }
}
