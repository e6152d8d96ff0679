//! Start of the library, and new processes.
//!
//! The processes of a stream are counted before a child exists. A page that the kernel wipes in each child names the process: a child that
//! was made past the library finds it empty and counts itself; one that borrows its parent's memory finds another number.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use ddss_stream::Endpoint;
use libc::pid_t;

use crate::sys::bypass;
use crate::sys::real::{self, Start};

const PAGE_BYTES: usize = 4096;
/// Kind of comparison of `kcmp`: tables of descriptors.
const KCMP_FILES: usize = 2;

static OWNER: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// True while the child that this thread makes is counted already.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs before the program's `main`.
extern "C" fn start() {
    name_owner();
    bypass::start();
    // Functions after a fork run in this order, and those before it in the opposite one. So the child is counted first; and the count
    // has ended when the signals come that waited for the locks: their handlers may fork.
    // SAFETY: the functions stay loaded as long as the program.
    unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
    crate::sys::install_fork_functions();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
    crate::startup::start();
}

// SAFETY: the section holds functions without arguments, which the loader calls once.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

/// Makes the page with the number of this process. Without it every process counts as the owner of its memory.
fn name_owner() {
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
unsafe extern "C" fn before_fork() {
    bypass::look_before_fork();
    if !IS_COUNTED.replace(true) {
        Endpoint::before_fork();
    }
}

unsafe extern "C" fn in_parent() {
    end_count();
}

/// Lets threads begin streams again after the `fork` that this thread counted.
fn end_count() {
    if IS_COUNTED.replace(false) {
        Endpoint::after_fork();
    }
}

unsafe extern "C" fn in_child() {
    begin_child();
}

/// Begins a child whose parent counted it.
fn begin_child() {
    is_own_process();
    // Without a page that tells a child from its parent, nothing was forgotten yet.
    ddss_stream::forget_thread();
    IS_COUNTED.set(false);
}

/// Makes a process by a call that returns twice, and counts it before.
pub(in crate::sys) fn fork_by<T: Into<c_long> + Copy>(fork: impl FnOnce() -> T) -> T {
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

/// Replaces libc's `fork`: the child uses the same streams.
#[unsafe(no_mangle)]
pub(in crate::sys) unsafe extern "C-unwind" fn fork() -> pid_t {
    // SAFETY: the program's call, unchanged.
    fork_by(|| unsafe { real::fork() })
}

/// Replaces libc's `vfork` by `fork`: the child of a `vfork` would change the parent's tables.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn vfork() -> pid_t {
    // SAFETY: as the program called it.
    unsafe { fork() }
}

/// Replaces libc's `_Fork`, which runs no handlers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: the program's call, unchanged.
    fork_by(|| unsafe { real::bare_fork() })
}

/// Function of the program that a child begins with, and its argument.
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

unsafe extern "C" fn begin(beginning: *mut c_void) -> c_int {
    begin_child();
    // SAFETY: the child has a copy of the memory in which its parent placed this.
    let Beginning { start, argument } = unsafe { beginning.cast::<Beginning>().read() };
    // SAFETY: the program's function and its argument.
    unsafe { start(argument) }
}

/// Replaces libc's `clone`. Programs that pass fewer arguments leave the rest undefined.
#[unsafe(no_mangle)]
pub(in crate::sys) unsafe extern "C-unwind" fn clone(
    start: Start,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    tls: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    if flags & libc::CLONE_VM != 0 {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::clone(start, stack, flags, argument, parent, tls, child) };
    }
    let mut beginning = Beginning { start, argument };
    let place = (&raw mut beginning).cast();
    // SAFETY: the program's arguments, except that the child begins with a function that calls the program's.
    fork_by(|| unsafe { real::clone(begin, stack, flags, place, parent, tls, child) })
}

/// Sends the signal of a write without reader to this thread.
pub(crate) fn raise_broken_pipe() {
    // SAFETY: raises a signal that the kernel would raise here as well.
    unsafe { libc::raise(libc::SIGPIPE) };
}
