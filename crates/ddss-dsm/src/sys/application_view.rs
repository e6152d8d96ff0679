//! Second mapping of the cache frames, for access without calls: the processor reports each use of a closed page.
//!
//! The service thread uses the first mapping, so that it never waits for itself.

use super::memory_file::MemoryFile;
use ddss_dsm_core::Access;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Address of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewAddress {
    /// The kernel chooses it.
    Any,
    /// This one, at which nothing else is.
    Fixed(usize),
}

/// Mapping of the cache frames whose pages are closed unless the engine has opened them.
#[derive(Debug)]
pub(crate) struct ApplicationView {
    base: *mut c_void,
    bytes: usize,
    page_bytes: usize,
    /// A file without a byte: its pages raise `SIGBUS`.
    nothing: OwnedFd,
    /// True once pages were closed that the engine has open.
    has_closed_more: AtomicBool,
}

// SAFETY: the mapping belongs to the value, and its calls change only permissions, which the kernel orders.
unsafe impl Send for ApplicationView {}
// SAFETY: as above.
unsafe impl Sync for ApplicationView {}

impl ApplicationView {
    /// Maps a range of the file, closed. A child of `fork` does not get it.
    pub(crate) fn map(file: &MemoryFile, range: Range<u64>, page_bytes: u64, address: ViewAddress) -> io::Result<Self> {
        if rustix::param::page_size() as u64 != page_bytes {
            return Err(io::Error::other(format!("access by page faults needs system pages of {page_bytes} bytes")));
        }
        let nothing = memfd_create("ddss-dsm-nothing", MemfdFlags::CLOEXEC)?;
        let (mut flags, length) = (MapFlags::SHARED | MapFlags::NORESERVE, (range.end - range.start) as usize);
        let wanted = match address {
            ViewAddress::Any => ptr::null_mut(),
            ViewAddress::Fixed(address) => {
                flags |= MapFlags::FIXED_NOREPLACE;
                ptr::without_provenance_mut(address)
            }
        };
        // SAFETY: the kernel chooses an address that nothing else uses, or fails.
        let base = unsafe { mmap(wanted, length, ProtFlags::empty(), flags, file.descriptor(), range.start) };
        let in_use = || io::Error::other(format!("another mapping is at address {wanted:p}, which the pages need"));
        let base = base.map_err(|error| if error == Errno::EXIST { in_use() } else { error.into() })?;
        let has_closed_more = AtomicBool::new(false);
        let view = Self { base, bytes: length, page_bytes: page_bytes as usize, nothing, has_closed_more };
        // A kernel before Linux 4.17 takes the address for a hint.
        if !wanted.is_null() && base != wanted {
            return Err(in_use());
        }
        // SAFETY: the range is this mapping, and the advice changes no byte of this process.
        unsafe { madvise(base, length, Advice::LinuxDontFork) }?;
        Ok(view)
    }

    /// Returns the address of the first frame.
    pub(crate) fn base(&self) -> *mut c_void {
        self.base
    }

    /// Returns the bytes of all frames.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of a frame.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Sets how a page may be used.
    ///
    /// # Panics
    /// The page is outside, or the kernel has no room for a single mapping.
    pub(crate) fn protect(&self, page: u32, access: Access) {
        let at = self.page(page);
        if self.set(at, self.page_bytes, access).is_err() {
            // Too many stretches of different permissions. Closed pages are one, and the next use of an open page opens it again.
            self.has_closed_more.store(true, Ordering::Relaxed);
            let set =
                self.set(self.base, self.bytes, Access::None).and_then(|()| self.set(at, self.page_bytes, access));
            set.expect("the kernel has room for a mapping of the pages that are open");
        }
    }

    /// Opens a page again that the engine has open, if [`protect`](Self::protect) may have closed it.
    pub(crate) fn reopen(&self, page: u32, access: Access) {
        if self.has_closed_more.load(Ordering::Relaxed) {
            self.protect(page, access);
        }
    }

    /// Lets each use of a page raise `SIGBUS`. Its bytes are lost to this mapping.
    pub(crate) fn lose(&self, page: u32) {
        if self.map_nothing(self.page(page), self.page_bytes).is_err() {
            self.lose_all();
        }
    }

    /// Lets each use of any page raise `SIGBUS`.
    pub(crate) fn lose_all(&self) {
        // One mapping in the place of another one: the kernel needs no room for it.
        let _ = self.map_nothing(self.base, self.bytes);
    }

    fn map_nothing(&self, at: *mut c_void, bytes: usize) -> rustix::io::Result<()> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range is a part of this mapping, whose users expect faults there.
        unsafe { mmap(at, bytes, protection, flags, self.nothing.as_fd(), 0) }.map(drop)
    }

    fn set(&self, at: *mut c_void, bytes: usize, access: Access) -> rustix::io::Result<()> {
        let flags = match access {
            Access::None => MprotectFlags::empty(),
            Access::Read => MprotectFlags::READ,
            Access::Write => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: the range is a part of this mapping, and its users expect faults there.
        unsafe { mprotect(at, bytes, flags) }
    }

    fn page(&self, page: u32) -> *mut c_void {
        let offset = page as usize * self.page_bytes;
        assert!(offset < self.bytes, "page {page} is in the space");
        self.base.wrapping_byte_add(offset)
    }
}

impl Drop for ApplicationView {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and what points into it borrows the frames that have it.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_permissions_than_the_kernel_has_room_for_close_pages_and_open_them_again() {
        // If this broke, a program that writes every other page of 512 MiB would end.
        const PAGES: u32 = 140_000;
        let bytes = 4096 * u64::from(PAGES);
        let mut file = MemoryFile::create("test", bytes).unwrap();
        let view = ApplicationView::map(&file, 0..bytes, 4096, ViewAddress::Any).unwrap();
        file.write(0, &[7]);
        for page in (0..PAGES).step_by(2) {
            view.protect(page, Access::Write);
        }
        assert!(view.has_closed_more.load(Ordering::Relaxed), "raise PAGES above twice vm.max_map_count");
        // The first page was closed on the way.
        view.reopen(0, Access::Read);
        // SAFETY: the page is mapped and open, and no one writes it.
        assert_eq!(unsafe { view.base.cast::<u8>().read() }, 7);
    }

    // If this broke, pointers into a region would name other bytes on other ranks, or memory of the program would be replaced.
    #[test]
    fn pages_are_mapped_at_the_address_that_is_asked_for_unless_it_is_in_use() {
        let (file, address) = (MemoryFile::create("test", 8192).unwrap(), ViewAddress::Fixed(0x3000_0000_0000));
        let map = || ApplicationView::map(&file, 4096..8192, 4096, address);
        let view = map().unwrap();
        assert_eq!(view.base() as usize, 0x3000_0000_0000);
        let said = map().unwrap_err().to_string();
        assert_eq!(said, "another mapping is at address 0x300000000000, which the pages need");
        drop(view);
        assert!(map().is_ok());
    }
}
