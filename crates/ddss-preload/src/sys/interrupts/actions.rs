//! The actions that the program set for its signals. The kernel has those of the library.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use ddss_stream::signals;
use libc::{sighandler_t, siginfo_t, sigset_t};

use crate::sys::real;

/// Signals of the kernel.
pub(super) const SIGNALS: usize = 64;
/// Bytes of the kernel's mask.
pub(super) const MASK_BYTES: usize = size_of::<u64>();

/// Returns the bit of a signal in the kernel's mask.
pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Signals that a fault raises: blocked, they would end the program.
pub(super) const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);

/// The action that the program set for one signal.
pub(super) struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static ACTIONS: [Action; SIGNALS + 1] = [const { Action::new() }; SIGNALS + 1];

impl Action {
    const fn new() -> Self {
        Self { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0), mask: AtomicU64::new(0) }
    }

    /// Returns the action of a signal that the kernel has.
    pub(super) fn of(signal: c_int) -> &'static Self {
        &ACTIONS[signal as usize % ACTIONS.len()]
    }

    /// Returns the action as the program set it.
    pub(super) fn get(&self) -> libc::sigaction {
        let mut action = empty();
        action.sa_sigaction = self.handler.load(Ordering::Acquire);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        *mask_of(&mut action.sa_mask) = self.mask.load(Ordering::Relaxed);
        action
    }

    pub(super) fn set(&self, action: &libc::sigaction) {
        let mut copy = *action;
        self.mask.store(*mask_of(&mut copy.sa_mask), Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    pub(super) fn handler(&self) -> sighandler_t {
        self.handler.load(Ordering::Acquire)
    }
}

/// Returns the kernel's mask, which is the first word of libc's.
fn mask_of(set: &mut sigset_t) -> &mut u64 {
    const { assert!(size_of::<sigset_t>() >= MASK_BYTES && align_of::<sigset_t>() >= align_of::<u64>()) };
    // SAFETY: the set is borrowed, at least as large, and every content is a number.
    unsafe { &mut *std::ptr::from_mut(set).cast() }
}

pub(super) fn empty() -> libc::sigaction {
    // SAFETY: zero bytes are a valid action: the default one.
    unsafe { std::mem::zeroed() }
}

/// Returns true for the address of a handler, as opposed to the two words for none.
pub(super) fn is_handler(handler: sighandler_t) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// Carries out the program's action.
///
/// # Safety
///
/// The kernel passed the arguments to a handler.
pub(super) unsafe fn run(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let action = Action::of(signal);
    let (handler, flags) = (action.handler(), action.flags.load(Ordering::Relaxed));
    if handler == libc::SIG_IGN {
        return;
    }
    if handler == libc::SIG_DFL {
        // The program took its handler back while the signal came.
        // SAFETY: the default action is no code.
        unsafe { real::sigaction(signal, &raw const DEFAULT_ACTION.0, std::ptr::null_mut()) };
        // SAFETY: the signal is blocked until this handler returns.
        unsafe { libc::raise(signal) };
        return;
    }
    signals::note_handler(flags & libc::SA_RESTART != 0);
    if flags & libc::SA_RESETHAND != 0 {
        action.set(&DEFAULT_ACTION.0);
        // The handler of faults stays the library's.
        if ![libc::SIGSEGV, libc::SIGBUS].contains(&signal) {
            // SAFETY: the default action is no code.
            unsafe { real::sigaction(signal, &raw const DEFAULT_ACTION.0, std::ptr::null_mut()) };
        }
    }
    if flags & libc::SA_NODEFER != 0 && action.mask.load(Ordering::Relaxed) & bit(signal) == 0 {
        let own = bit(signal);
        let (how, own) = (libc::SIG_UNBLOCK as usize, (&raw const own) as usize);
        // SAFETY: the mask lives until the call returns.
        unsafe { real::syscall(libc::SYS_rt_sigprocmask, how, own, 0, MASK_BYTES, 0, 0) };
    }
    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: the program passed the address as that of a handler; one with fewer arguments ignores the rest.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: the kernel's own arguments.
    unsafe { handler(signal, info, context) };
}

pub(super) struct Constant(pub(super) libc::sigaction);

// SAFETY: it is never changed; its null pointer is none that a thread owns.
unsafe impl Sync for Constant {}

// SAFETY: zero bytes are a valid action: the default one.
pub(super) static DEFAULT_ACTION: Constant = Constant(unsafe { std::mem::zeroed() });
