//! `posix_spawn`: libc itself duplicates descriptors in the child, past this library.

use std::ffi::{c_char, c_int, c_void};

use ddss_stream::Endpoint;
use libc::pid_t;

use super::exec::{inherited_by_spawn, loads, loads_by_name, refuse_inheritance};
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

/// Starts an image and counts it among the processes of the streams that it inherits. It counts before the start: the program may
/// close its own descriptors as soon as the call returns.
fn spawn_counted(start: impl FnOnce() -> c_int) -> c_int {
    // Descriptors that share a stream count it once each; one count too many only means that the kernel alone tells the end.
    let inherited: Vec<Endpoint> = inherited_by_spawn().collect();
    inherited.iter().for_each(Endpoint::count_process);
    let result = start();
    if result != 0 {
        inherited.iter().for_each(Endpoint::uncount_process);
    }
    result
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
    spawn_counted(|| unsafe { real::posix_spawn(child, path, actions, attributes, arguments, environment) })
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
    spawn_counted(|| unsafe { real::posix_spawnp(child, name, actions, attributes, arguments, environment) })
}
