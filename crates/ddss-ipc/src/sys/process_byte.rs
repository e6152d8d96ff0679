//! A byte that the kernel sets to zero in each child of this process.
//!
//! `fork` gives a child the rings of its parent and none of its threads. Both would count for themselves in the same slots.
//! `MADV_WIPEONFORK` holds for each way to copy a process, and a load tells the child from its parent. Some sandboxes and emulators
//! refuse it: there a handler of `fork` clears the bytes, which such a copy by `clone` does not call.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

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
pub struct ProcessByte(NonNull<AtomicU8>, Cleared);

/// Way in which the byte is cleared in a child.
#[derive(Clone, Copy, Debug)]
enum Cleared {
    ByKernel,
    /// The byte is a [`ListedByte`], which is never freed.
    ByHandler,
}

/// A byte that [`clear_listed`] clears.
#[repr(C)]
struct ListedByte {
    byte: AtomicU8,
    next: *mut ListedByte,
}

/// The list of all of them.
static LISTED: AtomicPtr<ListedByte> = AtomicPtr::new(std::ptr::null_mut());

/// Clears all listed bytes. `fork` calls it in the child, where no other thread runs.
extern "C" fn clear_listed() {
    let mut next = LISTED.load(Ordering::Acquire);
    // SAFETY: a listed byte is never freed, and `next` does not change after it is listed.
    while let Some(listed) = unsafe { next.as_ref() } {
        listed.byte.store(ProcessByte::INHERITED, Ordering::Relaxed);
        next = listed.next;
    }
}

impl ListedByte {
    /// Returns a byte that the handler clears.
    fn create() -> std::io::Result<NonNull<AtomicU8>> {
        static REGISTERED: OnceLock<i32> = OnceLock::new();
        // SAFETY: the handler only stores to memory that is never freed, and takes no lock.
        let failure = *REGISTERED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(clear_listed)) });
        if failure != 0 {
            return Err(std::io::Error::from_raw_os_error(failure));
        }
        let listed = Box::leak(Box::new(Self { byte: AtomicU8::new(0), next: LISTED.load(Ordering::Relaxed) }));
        let byte = NonNull::from(&listed.byte);
        while let Err(other) = LISTED.compare_exchange(listed.next, listed, Ordering::Release, Ordering::Relaxed) {
            listed.next = other;
        }
        Ok(byte)
    }
}

impl ProcessByte {
    /// Value in a child.
    pub const INHERITED: u8 = 0;
    /// Length of the mapping; the kernel rounds it up to a page.
    const BYTES: usize = 1;

    /// Creates a byte with a value other than [`INHERITED`](Self::INHERITED).
    pub fn new(value: u8) -> std::io::Result<Self> {
        Self::with_advice(value, Advice::LinuxWipeOnFork)
    }

    fn with_advice(value: u8, advice: Advice) -> std::io::Result<Self> {
        assert_ne!(value, Self::INHERITED, "a child is told from its parent by this value");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), Self::BYTES, access, MapFlags::PRIVATE) }?;
        let mapped =
            Self(NonNull::new(page.cast()).expect("the kernel maps no memory at address zero"), Cleared::ByKernel);
        // SAFETY: the mapping that was just made. Only a child loses its bytes.
        let byte = match unsafe { madvise(page, Self::BYTES, advice) } {
            Ok(()) => mapped,
            Err(_) => Self(ListedByte::create()?, Cleared::ByHandler),
        };
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
        // SAFETY: the byte is mapped, zeroed, until `drop` unmaps it, or listed. An atomic byte is always aligned.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ProcessByte {
    fn drop(&mut self) {
        if let Cleared::ByKernel = self.1 {
            // SAFETY: the mapping of `with_advice`, to which no reference is left.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), Self::BYTES) };
        }
    }
}

// SAFETY: the mapping belongs to the process, and the byte is an atomic.
unsafe impl Send for ProcessByte {}
// SAFETY: as above.
unsafe impl Sync for ProcessByte {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};

    #[test]
    fn child_is_told_from_its_parent_where_the_kernel_does_not_wipe() {
        // If this broke, a child in such a sandbox would work on the rings of its parent.
        let advice = [Advice::LinuxWipeOnFork, Advice::LinuxRemove];
        let bytes = advice.map(|advice| ProcessByte::with_advice(7, advice).unwrap());
        assert!(matches!((bytes[0].1, bytes[1].1), (Cleared::ByKernel, Cleared::ByHandler)));
        // SAFETY: the child only loads bytes.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wrong = bytes.iter().filter(|byte| !byte.is_inherited()).count();
            // SAFETY: the child has nothing to clean up.
            unsafe { libc::_exit(wrong as i32) };
        }
        let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0), "so many bytes of the child");
        assert_eq!(bytes.map(|byte| byte.load(Ordering::Relaxed)), [7; 2]);
    }
}
