//! Program images: whether the loader will give one this library.
//!
//! The code runs between `fork` and `exec`, and allocates nothing.

use std::ffi::CStr;
use std::os::fd::AsFd;

use ddss_stream::Descriptor;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Interpreters of scripts that name further scripts, as deep as the kernel follows them.
const SCRIPTS_MAX: u32 = 4;
/// Program headers that are looked at.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES: usize = 56;
const START_BYTES: usize = 1024;
/// Program header with the path of the loader.
const PT_INTERP: u32 = 3;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

/// Returns false if the file is a program that starts without this library: static, for another machine or libc, or with the rights of
/// another user. A file that cannot be opened counts as loading it: `exec` itself will fail.
pub(crate) fn loads_library(folder: impl AsFd, path: &CStr) -> bool {
    look(folder, path, SCRIPTS_MAX)
}

fn look(folder: impl AsFd, path: &CStr, scripts: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::openat(folder, path, flags, Mode::empty()) {
        Ok(file) => is_loading(&file, scripts),
        // The program may be run, but not read: nothing is known of it.
        Err(error) => error != Errno::ACCESS,
    }
}

/// Does the same for an open file.
pub(crate) fn descriptor_loads_library(file: i32) -> bool {
    is_loading(&Descriptor(file), SCRIPTS_MAX)
}

fn is_loading(file: &impl AsFd, scripts: u32) -> bool {
    let Ok(found) = rustix::fs::fstat(file) else { return true };
    let gains_user = found.st_mode & libc::S_ISUID != 0 && found.st_uid != rustix::process::geteuid().as_raw();
    let gains_group = found.st_mode & libc::S_ISGID != 0 && found.st_gid != rustix::process::getegid().as_raw();
    let has_capabilities = rustix::fs::fgetxattr(file, c"security.capability", &mut [0u8; 64][..]).is_ok();
    if gains_user || gains_group || has_capabilities {
        return false;
    }
    let mut start = [0; START_BYTES];
    let bytes = rustix::io::pread(file, &mut start, 0).unwrap_or(0);
    if start.starts_with(b"#!") {
        return interpreter(&mut start[..bytes]).is_none_or(|path| scripts > 0 && look(CWD, path, scripts - 1));
    }
    // Of an unknown format: `exec` fails, and `execvp` starts a shell.
    !start.starts_with(b"\x7fELF") || has_our_loader(file, &start)
}

/// Returns the interpreter that a script names.
fn interpreter(start: &mut [u8]) -> Option<&CStr> {
    let first = start.iter().skip(2).position(|byte| !b" \t".contains(byte))? + 2;
    let length = start[first..].iter().position(|byte| b" \t\n\0".contains(byte))?;
    start[first + length] = 0;
    CStr::from_bytes_until_nul(&start[first..]).ok()
}

fn has_our_loader(file: &impl AsFd, start: &[u8; START_BYTES]) -> bool {
    let half = |at: usize| u16::from_le_bytes([start[at], start[at + 1]]);
    let is_native = start[4] == 2 && start[5] == 1 && half(18) == MACHINE && half(54) as usize == HEADER_BYTES;
    if !is_native {
        return false;
    }
    let offset = long(start, 32);
    let mut headers = [0; HEADERS_MAX * HEADER_BYTES];
    let wanted = (half(56) as usize).min(HEADERS_MAX) * HEADER_BYTES;
    let bytes = rustix::io::pread(file, &mut headers[..wanted], offset).unwrap_or(0);
    let mut headers = headers[..bytes].chunks_exact(HEADER_BYTES);
    let Some(header) = headers.find(|header| header[..4] == PT_INTERP.to_le_bytes()) else { return false };
    let mut loader = [0; 64];
    let bytes = rustix::io::pread(file, &mut loader, long(header, 8)).unwrap_or(0);
    // The loader of another libc cannot load this library.
    cfg!(not(target_env = "gnu")) || loader[..bytes].windows(8).any(|part| part == b"ld-linux")
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}
