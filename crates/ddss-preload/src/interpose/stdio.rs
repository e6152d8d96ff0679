//! `fdopen` on a stream: libc's stdio calls the kernel past this library, so that its files get functions of this library.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{FILE, size_t, ssize_t};

use super::{descriptors, io};
use crate::sys::{errno, real};
use crate::{calls, descriptor_table};

/// Files on shared streams that a process can have open.
const FILES: usize = 1024;

struct Open {
    file: AtomicPtr<FILE>,
    /// Descriptor plus one; 0 is free.
    descriptor: AtomicI32,
}

static OPEN: [Open; FILES] =
    [const { Open { file: AtomicPtr::new(std::ptr::null_mut()), descriptor: AtomicI32::new(0) } }; FILES];

/// Functions of a file, in libc's layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

fn descriptor(cookie: *mut c_void) -> c_int {
    OPEN.get(cookie as usize).map_or(-1, |open| open.descriptor.load(Ordering::Relaxed) - 1)
}

unsafe extern "C-unwind" fn read_file(cookie: *mut c_void, to: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: libc passes its own buffer.
    unsafe { io::read(descriptor(cookie), to.cast(), bytes) }
}

unsafe extern "C-unwind" fn write_file(cookie: *mut c_void, from: *const c_char, bytes: size_t) -> ssize_t {
    let mut done = 0;
    while done < bytes {
        // SAFETY: libc passes a buffer of `bytes` bytes.
        let written = unsafe { io::write(descriptor(cookie), from.wrapping_add(done).cast(), bytes - done) };
        if written <= 0 {
            break;
        }
        done += written as usize;
    }
    // A short count is an error to libc, and -1 is none.
    done as ssize_t
}

unsafe extern "C-unwind" fn close_file(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    if let Some(open) = OPEN.get(cookie as usize) {
        open.file.store(std::ptr::null_mut(), Ordering::Relaxed);
        open.descriptor.store(0, Ordering::Release);
    }
    // SAFETY: the file owned the descriptor.
    unsafe { descriptors::close(fd) }
}

/// Replaces libc's `fdopen`. An undecided stream stays on TCP.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let is_shared = descriptor_table::stream(fd).is_some_and(|endpoint| !calls::stay_on_tcp(&endpoint, fd));
    if !is_shared {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::fdopen(fd, mode) };
    }
    let is_claimed =
        |open: &Open| open.descriptor.compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let Some(place) = OPEN.iter().position(is_claimed) else {
        crate::sys::report("ddss-preload: too many files on streams in shared memory\n");
        errno::set(libc::EMFILE);
        return std::ptr::null_mut();
    };
    let functions = Functions { read: read_file, write: write_file, seek: None, close: close_file };
    // SAFETY: the functions have libc's types, the mode is the program's, and the cookie is only a number.
    let file = unsafe { fopencookie(place as *mut c_void, mode, functions) };
    if file.is_null() {
        OPEN[place].descriptor.store(0, Ordering::Release);
    }
    OPEN[place].file.store(file, Ordering::Relaxed);
    file
}

/// Replaces libc's `fileno`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fileno(file: *mut FILE) -> c_int {
    // SAFETY: the program's argument, unchanged.
    let known = unsafe { real::fileno(file) };
    if known >= 0 || file.is_null() {
        return known;
    }
    let found = OPEN.iter().find(|open| open.file.load(Ordering::Relaxed) == file);
    found.map_or(known, |open| open.descriptor.load(Ordering::Relaxed) - 1)
}
