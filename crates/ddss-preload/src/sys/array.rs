//! A growable array without an allocator: a signal handler may have interrupted the allocator. No crate's small vectors do without one.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

const PAGE: usize = 4096;

/// Up to `N` values in place, more of them in pages of their own.
pub(crate) struct Array<T, const N: usize> {
    here: [MaybeUninit<T>; N],
    /// Null while the values fit in place.
    pages: *mut T,
    bytes: usize,
    len: usize,
}

// SAFETY: the array owns its pages.
unsafe impl<T: Send, const N: usize> Send for Array<T, N> {}

impl<T, const N: usize> Array<T, N> {
    pub(crate) const fn new() -> Self {
        Self { here: [const { MaybeUninit::uninit() }; N], pages: std::ptr::null_mut(), bytes: 0, len: 0 }
    }

    fn base(&self) -> *const T {
        if self.pages.is_null() { self.here.as_ptr().cast() } else { self.pages }
    }

    fn base_mut(&mut self) -> *mut T {
        if self.pages.is_null() { self.here.as_mut_ptr().cast() } else { self.pages }
    }

    fn capacity(&self) -> usize {
        if self.pages.is_null() { N } else { self.bytes / size_of::<T>() }
    }

    /// Makes room for `count` values in all. The error number is the kernel's.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), i32> {
        if count <= self.capacity() {
            return Ok(());
        }
        let bytes = (count * size_of::<T>()).max(self.bytes * 2).next_multiple_of(PAGE);
        self.grow(bytes).map_err(Errno::raw_os_error)
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> Result<(), Errno> {
        let pages = if self.pages.is_null() {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
            let pages = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
            // SAFETY: `len` values are valid in place, and the pages have room for more.
            unsafe { std::ptr::copy_nonoverlapping(self.base(), pages.cast(), self.len) };
            pages
        } else {
            // SAFETY: the array owns these pages; nobody borrows them.
            unsafe { rustix::mm::mremap(self.pages.cast(), self.bytes, bytes, MremapFlags::MAYMOVE) }?
        };
        (self.pages, self.bytes) = (pages.cast(), bytes);
        Ok(())
    }

    /// Adds a value. The error number is the kernel's.
    pub(crate) fn push(&mut self, value: T) -> Result<(), i32> {
        self.reserve(self.len + 1)?;
        let place = self.base_mut().wrapping_add(self.len);
        // SAFETY: there is room for one more value.
        unsafe { place.write(value) };
        self.len += 1;
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        let values: *mut [T] = &mut **self;
        self.len = 0;
        // SAFETY: these values were valid, and the length no longer counts them.
        unsafe { std::ptr::drop_in_place(values) };
    }
}

impl<T: Copy, const N: usize> Array<T, N> {
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Keeps the values for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(T) -> bool) {
        let mut kept = 0;
        for place in 0..self.len {
            let value = self[place];
            if keep(value) {
                self[kept] = value;
                kept += 1;
            }
        }
        self.len = kept;
    }
}

impl<T, const N: usize> Deref for Array<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `push` wrote the first `len` values.
        unsafe { std::slice::from_raw_parts(self.base(), self.len) }
    }
}

impl<T, const N: usize> DerefMut for Array<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (base, len) = (self.base_mut(), self.len);
        // SAFETY: as above, and the array is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(base, len) }
    }
}

impl<T, const N: usize> Drop for Array<T, N> {
    fn drop(&mut self) {
        self.clear();
        if !self.pages.is_null() {
            // SAFETY: the array owns these pages; nobody borrows them.
            let _ = unsafe { rustix::mm::munmap(self.pages.cast(), self.bytes) };
        }
    }
}
