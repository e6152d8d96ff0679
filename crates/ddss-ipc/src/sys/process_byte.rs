//! A byte that the kernel sets to zero in each child of this process.
//!
//! `fork` gives a child the rings of its parent and none of its threads. Both would count for themselves in the same slots.
//! `MADV_WIPEONFORK` holds for each way to copy a process, and a load tells the child from its parent. A kernel without it (before
//! 4.14) leaves the byte as it was.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A byte that is zero in each child of the process that created it.
///
/// ```
/// use ddss_ipc::lock_free::ProcessByte;
/// use std::sync::atomic::Ordering;
///
/// let mine = ProcessByte::new(7)?;
/// assert_eq!(mine.load(Ordering::Relaxed), 7);
/// assert!(!mine.is_inherited(), "this process has created it");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ProcessByte(NonNull<AtomicU8>);

impl ProcessByte {
    /// Value in a child.
    pub const INHERITED: u8 = 0;
    /// Length of the mapping; the kernel rounds it up to a page.
    const BYTES: usize = 1;

    /// Creates a byte with a value other than [`INHERITED`](Self::INHERITED).
    pub fn new(value: u8) -> std::io::Result<Self> {
        assert_ne!(value, Self::INHERITED, "a child is told from its parent by this value");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), Self::BYTES, access, MapFlags::PRIVATE) }?;
        // SAFETY: the mapping that was just made. Only a child loses its bytes.
        let _ = unsafe { madvise(page, Self::BYTES, Advice::LinuxWipeOnFork) };
        let byte = Self(NonNull::new(page.cast()).expect("the kernel maps no memory at address zero"));
        byte.store(value, Ordering::Relaxed);
        Ok(byte)
    }

    /// Returns true in a child of the process that created the byte.
    pub fn is_inherited(&self) -> bool {
        self.load(Ordering::Relaxed) == Self::INHERITED
    }
}

impl Deref for ProcessByte {
    type Target = AtomicU8;

    #[inline(always)]
    fn deref(&self) -> &AtomicU8 {
        // SAFETY: `new` has mapped the byte, zeroed, and `drop` unmaps it. An atomic byte is always aligned.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ProcessByte {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, to which no reference is left.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

// SAFETY: the mapping belongs to the process, and the byte is an atomic.
unsafe impl Send for ProcessByte {}
// SAFETY: as above.
unsafe impl Sync for ProcessByte {}
