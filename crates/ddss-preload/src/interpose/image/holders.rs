//! Processes that have a socket open, as the kernel lists them. Allocates nothing: a child of a program with threads looks.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use ddss_stream::Descriptor;
use rustix::fs::{Mode, OFlags, RawDir};

const ROOM: usize = 2048;
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns true if another process has the socket open, among those that this one may inspect.
pub(super) fn has_other(socket: c_int) -> bool {
    let Ok(found) = rustix::fs::fstat(Descriptor(socket)) else { return false };
    let own = rustix::process::getpid().as_raw_nonzero().get() as u64;
    let Ok(processes) = rustix::fs::open(c"/proc", FLAGS, Mode::empty()) else { return false };
    any_entry(&processes, |name| {
        number(name.to_bytes()).is_some_and(|process| process != own) && has(&processes, name, found.st_ino)
    })
}

fn has(processes: impl AsFd, process: &CStr, inode: u64) -> bool {
    let Ok(process) = rustix::fs::openat(processes, process, FLAGS, Mode::empty()) else { return false };
    let Ok(descriptors) = rustix::fs::openat(&process, c"fd", FLAGS, Mode::empty()) else { return false };
    any_entry(&descriptors, |name| {
        let mut room = [MaybeUninit::uninit(); 64];
        let link = rustix::fs::readlinkat_raw(&descriptors, name, &mut room[..]).map_or(&[][..], |(link, _)| link);
        let inside = link.strip_prefix(b"socket:[").and_then(|rest| rest.strip_suffix(b"]"));
        inside.and_then(number) == Some(inode)
    })
}

fn any_entry(folder: impl AsFd, mut is_wanted: impl FnMut(&CStr) -> bool) -> bool {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut entries = RawDir::new(folder, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        if is_wanted(entry.file_name()) {
            return true;
        }
    }
    false
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
