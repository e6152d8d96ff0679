//! The program's handlers of signals. The kernel has a handler of this library in their place, which lets a signal wait while its thread
//! holds a lock of the library, and notes whether interrupted calls continue.
//!
//! A signal that waits goes back into the kernel's queue, and the thread blocks every signal until it has released the lock. A handler
//! that a program installs past libc is called by the kernel at once.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use ddss_stream::signals;
use libc::{sighandler_t, siginfo_t};

use super::actions::{Action, FAULTS, MASK_BYTES, SIGNALS, bit, empty, is_handler, run};
use super::{faults, origins};
use crate::sys::kernel::kernel_poll;
use crate::sys::{errno, real};

const ONE_SHOT: c_int = libc::SA_RESETHAND | libc::SA_NODEFER;
/// Value by which `sigset` blocks a signal.
const HOLD: sighandler_t = 2;

/// Signals whose handlers `siginterrupt` set to interrupt calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Mask that the thread gets back when the signals that wait may come.
    static MASK: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Prepares the library before the program's `main`.
pub(crate) fn install() {
    signals::set_hooks(signals::Hooks { deliver, poll: |list, timeout| kernel_poll(list, timeout, std::ptr::null()) });
    faults::install();
}

/// The kernel's handler of every signal but those of faults.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own arguments.
    if FAULTS & bit(signal) == 0 && signals::defer() && unsafe { wait(signal, info, context.cast()) } {
        return;
    }
    // SAFETY: as above.
    unsafe { origins::name_own_descriptor(info) };
    // SAFETY: as above.
    unsafe { run(signal, info, context) }
}

/// Sends the signal to this thread again, and blocks every signal once the kernel's handler has returned. False: the kernel's queue is
/// full.
///
/// # Safety
///
/// The kernel passed the arguments to a handler.
unsafe fn wait(signal: c_int, info: *mut siginfo_t, context: *mut libc::ucontext_t) -> bool {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let (process, thread) = (process.as_raw_nonzero().get() as usize, thread.as_raw_nonzero().get() as usize);
    let error = errno::get();
    // SAFETY: the kernel filled the information, which says by whom and why the signal was sent.
    let sent =
        unsafe { real::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal as usize, info as usize, 0, 0) };
    errno::set(error);
    if sent != 0 {
        return false;
    }
    // SAFETY: the kernel loads the thread's mask from the context when the handler returns.
    let mask = unsafe { &raw mut (*context).uc_sigmask }.cast::<u64>();
    // SAFETY: as above.
    let before = unsafe { mask.read() };
    // A handler that interrupts this function knows only the mask of this function.
    MASK.set(MASK.get() & before);
    // SAFETY: as above.
    unsafe { mask.write(!FAULTS) };
    true
}

/// Lets the signals come that waited.
fn deliver() {
    let mask = MASK.replace(u64::MAX);
    if mask == u64::MAX {
        // The kernel did not queue the signal again: its handler has run, and nothing was blocked.
        return;
    }
    let error = errno::get();
    // SAFETY: the mask lives until the call returns.
    unsafe {
        real::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK as usize,
            (&raw const mask) as usize,
            0,
            MASK_BYTES,
            0,
            0,
        )
    };
    errno::set(error);
}

/// Gives the kernel the library's handler in place of the program's.
fn enter_kernel(signal: c_int, programs: &libc::sigaction) -> c_int {
    let mut action = *programs;
    if is_handler(programs.sa_sigaction) {
        action.sa_sigaction = on_signal as *const () as sighandler_t;
        // The library takes one-shot handlers back itself, and lets a signal interrupt its own handler only if that does not wait.
        action.sa_flags = programs.sa_flags & !ONE_SHOT | libc::SA_SIGINFO;
    }
    // SAFETY: the action lives until the call returns, and the handler has the type that the flags promise.
    unsafe { real::sigaction(signal, &raw const action, std::ptr::null_mut()) }
}

/// Replaces libc's `sigaction`: a program that asks for its action gets what it set.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let mut before = empty();
    // SAFETY: without a new action the call only fills `before`.
    if unsafe { real::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
        return -1;
    }
    let own = [on_signal as *const () as sighandler_t, faults::handler()];
    let action = Action::of(signal);
    if own.contains(&before.sa_sigaction) {
        before = action.get();
    }
    if !new.is_null() {
        // SAFETY: the program passed an action, or a wrong pointer.
        let Some(new) = (unsafe { ddss_stream::load(new) }) else { return wrong_pointer() };
        // A program that found the library's handler by another way means its own.
        if !own.contains(&new.sa_sigaction) {
            action.set(&new);
        }
        let entered =
            if faults::is_handled(signal) { faults::enter_kernel(signal, &new) } else { enter_kernel(signal, &new) };
        if entered != 0 {
            return -1;
        }
    }
    // SAFETY: the program passed room for an action, or a wrong pointer.
    if !old.is_null() && !unsafe { ddss_stream::store(old, before) } {
        return wrong_pointer();
    }
    0
}

fn wrong_pointer() -> c_int {
    errno::set(libc::EFAULT);
    -1
}

/// Sets a handler as the older calls do, which pass no action.
fn set_handler(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    if handler == libc::SIG_ERR {
        errno::set(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let (mut new, mut old) = (empty(), empty());
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both live until the call returns; the program passed the handler.
    match unsafe { sigaction(signal, &raw const new, &raw mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// Replaces libc's `signal`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let is_interrupting =
        (1..=SIGNALS as c_int).contains(&signal) && INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0;
    set_handler(signal, handler, if is_interrupting { 0 } else { libc::SA_RESTART })
}

/// Replaces libc's other name of `signal`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: as the program called it.
    unsafe { signal(number, handler) }
}

/// Replaces libc's other name of `signal`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: as the program called it.
    unsafe { signal(number, handler) }
}

/// Replaces libc's `signal` of System V.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_handler(signal, handler, ONE_SHOT)
}

/// Replaces the name of `signal` that programs get with the definitions of System V.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_handler(signal, handler, ONE_SHOT)
}

/// Blocks a signal or lets it come. Returns true if it was blocked.
fn change_mask(how: c_int, signal: c_int) -> bool {
    let (set, mut before) = (bit(signal), 0u64);
    let (place, old) = ((&raw const set) as usize, (&raw mut before) as usize);
    // SAFETY: both masks live until the call returns.
    unsafe { real::syscall(libc::SYS_rt_sigprocmask, how as usize, place, old, MASK_BYTES, 0, 0) };
    before & set != 0
}

/// Replaces libc's `sigset`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let mut action = empty();
    let (old, how) = if handler == HOLD {
        // SAFETY: without a new action the call only fills `action`.
        let asked = unsafe { sigaction(signal, std::ptr::null(), &raw mut action) };
        (if asked == 0 { action.sa_sigaction } else { libc::SIG_ERR }, libc::SIG_BLOCK)
    } else {
        (set_handler(signal, handler, 0), libc::SIG_UNBLOCK)
    };
    if old != libc::SIG_ERR && change_mask(how, signal) { HOLD } else { old }
}

/// Replaces libc's other name of `sigaction`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the program called it.
    unsafe { sigaction(signal, new, old) }
}

/// Replaces libc's `siginterrupt`, which would set the library's handler alone.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn siginterrupt(signal: c_int, is_interrupting: c_int) -> c_int {
    let mut action = empty();
    // SAFETY: without a new action the call only fills `action`.
    if unsafe { sigaction(signal, std::ptr::null(), &raw mut action) } != 0 {
        return -1;
    }
    if is_interrupting != 0 {
        INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: the action lives until the call returns.
    unsafe { sigaction(signal, &raw const action, std::ptr::null_mut()) }
}
