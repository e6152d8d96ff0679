//! `exec` with streams in shared memory: an image without this library gets a Unix socket, which a pump connects with the stream.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::AsFd;

use ddss_stream::{Descriptor, Endpoint};
use rustix::fs::{Access, AtFlags, CWD};

use super::pump;
use crate::sys::real::{self, StringList};
use crate::{descriptor_table, image};

/// Strings of an environment that are looked at.
const STRINGS_MAX: usize = 65_536;
/// Bytes of a path.
const PATH_BYTES: usize = 4096;
const VARIABLE: &[u8] = b"LD_PRELOAD=";
const LIBRARY: &[u8] = b"ddss_preload";

unsafe extern "C" {
    static environ: StringList;
}

/// Returns true if the environment names this library.
///
/// # Safety
///
/// The list is null, or consists of C strings and ends with null.
pub(super) unsafe fn names_library(environment: StringList) -> bool {
    if environment.is_null() {
        return false;
    }
    for index in 0..STRINGS_MAX {
        // SAFETY: the list ends with null, and the loop has not met it yet.
        let string = unsafe { environment.wrapping_add(index).read() };
        if string.is_null() {
            return false;
        }
        // SAFETY: promised by the caller.
        let text = unsafe { CStr::from_ptr(string) }.to_bytes();
        if text.starts_with(VARIABLE) {
            return text.windows(LIBRARY.len()).any(|part| part == LIBRARY);
        }
    }
    false
}

/// Returns the environment of this process.
pub(super) fn own_environment() -> StringList {
    // SAFETY: libc's variable, which a program may only change while no other thread reads it.
    unsafe { environ }
}

/// Returns true if a descriptor of the stream survives `exec`, and makes its hidden descriptors do the same.
fn is_inherited(endpoint: &Endpoint) -> bool {
    let is_found = descriptor_table::streams()
        .any(|(fd, other)| other.index() == endpoint.index() && descriptor_table::survives_exec(fd));
    if is_found {
        endpoint.set_close_on_exec(false);
    }
    is_found
}

/// Prepares the streams that a new image inherits. `is_loading`: `None` for an image that cannot be started.
///
/// libc's stdio reads and writes past the library: so a standard output is TCP from now on, and a standard input a Unix socket.
fn before_exec(is_loading: impl FnOnce() -> Option<bool>) {
    let mut inherited = descriptor_table::streams().filter(|(_, endpoint)| endpoint.is_shared());
    if !inherited.any(|(_, endpoint)| is_inherited(&endpoint)) {
        return;
    }
    let Some(is_loading) = is_loading() else { return };
    for (fd, endpoint) in descriptor_table::streams().filter(|(_, endpoint)| endpoint.is_shared()) {
        let is_native = is_loading && endpoint.is_memory_inherited() && !is_standard(&endpoint);
        if !is_inherited(&endpoint) || is_native || is_only_written(&endpoint) && endpoint.leave_ring() {
            continue;
        }
        if !pump::replace(fd, &endpoint, is_standard(&endpoint)) {
            report_refused();
            close_stream(fd);
        }
    }
}

/// Gives this image Unix sockets in the place of the streams that it inherited: its requests go past this library.
pub(crate) fn leave_streams_to_pumps() {
    for (fd, endpoint) in descriptor_table::streams().filter(|(_, endpoint)| endpoint.is_shared()) {
        if !pump::replace(fd, &endpoint, true) {
            close_stream(fd);
        }
    }
}

/// Returns true if the stream is nothing but standard output of the new image. By TCP its bytes keep their order with those of this
/// program.
fn is_only_written(endpoint: &Endpoint) -> bool {
    let of_stream = descriptor_table::streams().filter(|(_, other)| other.index() == endpoint.index());
    of_stream.filter(|(fd, _)| descriptor_table::survives_exec(*fd)).all(|(fd, _)| is_output(fd))
}

pub(super) fn is_output(fd: c_int) -> bool {
    [libc::STDOUT_FILENO, libc::STDERR_FILENO].contains(&fd)
}

/// Returns true if a standard descriptor of the new image is one of the stream.
fn is_standard(endpoint: &Endpoint) -> bool {
    let mut streams = descriptor_table::streams().take_while(|(fd, _)| *fd <= libc::STDERR_FILENO);
    streams.any(|(fd, other)| other.index() == endpoint.index() && descriptor_table::survives_exec(fd))
}

/// Closes a stream that the new image could only spoil: its peer sees the end, and no byte is lost unseen.
fn close_stream(fd: c_int) {
    crate::calls::before_close(fd);
    // SAFETY: the number of the program's descriptor.
    unsafe { real::close(fd) };
}

/// Looks at a program by its path. `None`: it cannot be started.
///
/// # Safety
///
/// `path` is null or a C string, and the environment is as for [`names_library`].
pub(super) unsafe fn loads(path: *const c_char, environment: StringList) -> Option<bool> {
    // SAFETY: promised by the caller.
    unsafe { loads_from(CWD, path, environment) }
}

/// Looks at a program by its path from a folder.
///
/// # Safety
///
/// As for [`loads`].
unsafe fn loads_from(folder: impl AsFd, path: *const c_char, environment: StringList) -> Option<bool> {
    // SAFETY: promised by the caller.
    let path = if path.is_null() { return None } else { unsafe { CStr::from_ptr(path) } };
    rustix::fs::accessat(&folder, path, Access::EXEC_OK, AtFlags::empty()).ok()?;
    // SAFETY: promised by the caller.
    Some(unsafe { names_library(environment) } && image::loads_library(folder, path))
}

/// Looks at a program by its name, as `execvp` finds it.
///
/// # Safety
///
/// As for [`loads`].
pub(super) unsafe fn loads_by_name(name: *const c_char, environment: StringList) -> Option<bool> {
    // SAFETY: promised by the caller.
    let text = if name.is_null() { return None } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    if text.contains(&b'/') {
        // SAFETY: promised by the caller.
        return unsafe { loads(name, environment) };
    }
    // SAFETY: the name is a C string; the value is the program's own.
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: a value of the environment is a C string.
    let folders = if folders.is_null() { &b"/bin:/usr/bin"[..] } else { unsafe { CStr::from_ptr(folders) }.to_bytes() };
    for folder in folders.split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { &b"."[..] } else { folder };
        let mut path = [0; PATH_BYTES];
        let length = folder.len() + 1 + text.len();
        if length >= PATH_BYTES {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..length].copy_from_slice(text);
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { continue };
        // SAFETY: promised by the caller; the path is a C string.
        let is_loading = unsafe { loads(path.as_ptr(), environment) };
        if is_loading.is_some() {
            return is_loading;
        }
    }
    None
}

/// Prepares the shell that libc is about to start past this library.
///
/// Its standard streams become Unix sockets, also in this process: both read the same bytes. Other streams it takes over, and counts itself.
pub(super) fn before_shell() {
    let shared = descriptor_table::streams().filter(|(_, endpoint)| endpoint.is_shared());
    for (fd, endpoint) in shared.filter(|(_, endpoint)| is_standard(endpoint)) {
        if !pump::replace(fd, &endpoint, true) {
            report_refused();
            close_stream(fd);
        }
    }
}

fn report_refused() {
    crate::sys::report("ddss-preload: a stream in shared memory cannot be given to a program without the library\n");
}

/// Replaces libc's `execve`.
#[unsafe(no_mangle)]
pub(in crate::interpose) unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: StringList,
    environment: StringList,
) -> c_int {
    // SAFETY: the program promised the strings.
    before_exec(|| unsafe { loads(path, environment) });
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::execve(path, arguments, environment) }
}

/// Replaces libc's `execv`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: StringList) -> c_int {
    // SAFETY: the program promised the strings.
    before_exec(|| unsafe { loads(path, own_environment()) });
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::execv(path, arguments) }
}

/// Replaces libc's `execvp`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn execvp(name: *const c_char, arguments: StringList) -> c_int {
    // SAFETY: the program promised the strings.
    before_exec(|| unsafe { loads_by_name(name, own_environment()) });
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::execvp(name, arguments) }
}

/// Replaces libc's `execvpe`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvpe(name: *const c_char, arguments: StringList, environment: StringList) -> c_int {
    // SAFETY: the program promised the strings.
    before_exec(|| unsafe { loads_by_name(name, environment) });
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::execvpe(name, arguments, environment) }
}

/// Replaces libc's `fexecve`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: StringList, environment: StringList) -> c_int {
    // SAFETY: the program promised the strings.
    before_exec(|| Some(unsafe { names_library(environment) } && image::descriptor_loads_library(fd)));
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::fexecve(fd, arguments, environment) }
}

/// Replaces libc's `execveat`.
#[unsafe(no_mangle)]
pub(in crate::interpose) unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: StringList,
    environment: StringList,
    flags: c_int,
) -> c_int {
    before_exec(|| {
        // SAFETY: the program promised the string, or a wrong pointer.
        let start = unsafe { ddss_stream::load(path) }?;
        if start == 0 && flags & libc::AT_EMPTY_PATH != 0 {
            // SAFETY: the program promised the strings.
            return Some(unsafe { names_library(environment) } && image::descriptor_loads_library(folder));
        }
        if folder == libc::AT_FDCWD || start == b'/' as c_char {
            // SAFETY: as above.
            return unsafe { loads(path, environment) };
        }
        if folder < 0 {
            return None;
        }
        // SAFETY: as above.
        unsafe { loads_from(Descriptor(folder), path, environment) }
    });
    let [path, arguments, environment] = [path.addr(), arguments.addr(), environment.addr()];
    // By number: older versions of libc do not have it.
    // SAFETY: the program's arguments, unchanged.
    let result =
        unsafe { real::syscall(libc::SYS_execveat, folder as usize, path, arguments, environment, flags as usize, 0) };
    result as c_int
}
