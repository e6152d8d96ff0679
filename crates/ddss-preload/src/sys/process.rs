//! The process that owns this copy of the library, and the count of its children.
//!
//! The processes of a stream are counted before a child exists. A page that the kernel wipes in each child names the process: a child that
//! was made past the library finds it empty and counts itself; one that borrows its parent's memory finds another number.

use std::cell::Cell;
use std::ffi::c_long;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use ddss_stream::Endpoint;

use super::{raw_calls, real};

const PAGE_BYTES: usize = 4096;
/// Kind of comparison of `kcmp`: tables of descriptors.
const KCMP_FILES: usize = 2;

static OWNER: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// True while the child that this thread makes is counted already.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Makes the page with the number of this process. Without it every process counts as the owner of its memory.
pub(crate) fn name_owner() {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, -1, 0) };
    // SAFETY: the mapping that was just made.
    if page == libc::MAP_FAILED || unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        return;
    }
    let owner = page.cast::<AtomicI32>();
    // SAFETY: the page is mapped for good and begins with this number.
    unsafe { &*owner }.store(own_number(), Ordering::Relaxed);
    OWNER.store(owner, Ordering::Release);
}

fn own_number() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Returns false in a process that borrows its parent's memory and has descriptors of its own, as the child of a raw `vfork` does: its
/// closes say nothing about the parent's descriptors.
pub(crate) fn is_own_process() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    if owner.is_null() {
        return true;
    }
    // SAFETY: the page is never unmapped.
    let (owner, own) = (unsafe { &*owner }, own_number());
    match owner.load(Ordering::Relaxed) {
        0 => take_over(owner, own),
        named if named != own => return shares_descriptors(named, own),
        _ => (),
    }
    true
}

/// Makes a child the owner of its copy of the memory, and counts it unless its parent did.
fn take_over(owner: &AtomicI32, own: i32) {
    if owner.swap(own, Ordering::AcqRel) == 0 && !IS_COUNTED.get() {
        Endpoint::count_child();
    }
    ddss_stream::forget_thread();
}

fn shares_descriptors(one: i32, other: i32) -> bool {
    // SAFETY: the call compares two processes and reads no memory.
    unsafe { real::syscall(libc::SYS_kcmp, one as usize, other as usize, KCMP_FILES, 0, 0, 0) == 0 }
}

/// Runs before each `fork` of libc, also those inside `daemon` and `forkpty`.
pub(crate) unsafe extern "C" fn before_fork() {
    raw_calls::look_before_fork();
    if !IS_COUNTED.replace(true) {
        Endpoint::before_fork();
    }
}

pub(crate) unsafe extern "C" fn in_parent() {
    end_count();
}

/// Lets threads begin streams again after the `fork` that this thread counted.
fn end_count() {
    if IS_COUNTED.replace(false) {
        Endpoint::after_fork();
    }
}

pub(crate) unsafe extern "C" fn in_child() {
    begin_child();
}

/// Begins a child whose parent counted it.
pub(crate) fn begin_child() {
    is_own_process();
    // Without a page that tells a child from its parent, nothing was forgotten yet.
    ddss_stream::forget_thread();
    IS_COUNTED.set(false);
}

/// Makes a process by a call that returns twice, and counts it before.
pub(crate) fn fork_by<T: Into<c_long> + Copy>(fork: impl FnOnce() -> T) -> T {
    if !IS_COUNTED.replace(true) {
        Endpoint::before_fork();
    }
    let child = fork();
    match child.into() {
        0 => begin_child(),
        process => {
            if process == -1 {
                Endpoint::after_failed_fork();
            }
            end_count();
        }
    }
    child
}

/// Sends the signal of a write without reader to this thread.
pub(crate) fn raise_broken_pipe() {
    // SAFETY: raises a signal that the kernel would raise here as well.
    unsafe { libc::raise(libc::SIGPIPE) };
}
