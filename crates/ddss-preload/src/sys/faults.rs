//! Faults in copies from and to the program's memory: a wrong pointer is `EFAULT`, as it is in the kernel.
//!
//! The library has a handler of SIGSEGV and SIGBUS. It continues a copy behind its fault, and hands every other signal to the program's
//! own action, which this module records: the program sees the actions that it set. A program that sets them past libc gets a signal
//! in place of `EFAULT`, and one that blocks them ends.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::{sighandler_t, siginfo_t, sigset_t};

use super::{errno, real};

/// The action that the program set for one signal.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl Action {
    const fn new() -> Self {
        Self { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0), mask: AtomicU64::new(0) }
    }

    fn get(&self) -> libc::sigaction {
        let mut action = empty();
        action.sa_sigaction = self.handler.load(Ordering::Acquire);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        // SAFETY: the kernel's mask is the first word of libc's.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(self.mask.load(Ordering::Relaxed)) };
        action
    }

    fn set(&self, action: &libc::sigaction) {
        // SAFETY: as above.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        self.mask.store(mask, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }
}

static SEGMENT: Action = Action::new();
static BUS: Action = Action::new();
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

fn recorded(signal: c_int) -> Option<&'static Action> {
    match signal {
        libc::SIGSEGV => Some(&SEGMENT),
        libc::SIGBUS => Some(&BUS),
        _ => None,
    }
}

fn empty() -> libc::sigaction {
    // SAFETY: zero bytes are a valid action: the default one.
    unsafe { std::mem::zeroed() }
}

/// Installs the handler before the program's `main`.
pub(crate) fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let mut found = empty();
        // SAFETY: without a new action the call only fills `found`.
        let asked = unsafe { real::sigaction(signal, std::ptr::null(), &raw mut found) };
        if let Some(action) = recorded(signal).filter(|_| asked == 0) {
            action.set(&found);
            enter_kernel(signal, &found);
        }
    }
    IS_INSTALLED.store(true, Ordering::Release);
}

/// Sets the library's handler with the program's mask and flags.
fn enter_kernel(signal: c_int, programs: &libc::sigaction) -> c_int {
    let is_handled = programs.sa_sigaction != libc::SIG_DFL && programs.sa_sigaction != libc::SIG_IGN;
    let flags = if is_handled { programs.sa_flags & !libc::SA_RESETHAND } else { libc::SA_RESTART };
    let mut action = *programs;
    action.sa_sigaction = on_fault as *const () as sighandler_t;
    action.sa_flags = flags | libc::SA_SIGINFO;
    // SAFETY: the action lives until the call returns, and the handler has the type that the flags promise.
    unsafe { real::sigaction(signal, &raw const action, std::ptr::null_mut()) }
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both to a handler with `SA_SIGINFO`.
    let is_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: as above.
    if is_fault && unsafe { resume(context.cast()) } {
        return;
    }
    let Some(action) = recorded(signal) else { return };
    let handler = action.handler.load(Ordering::Acquire);
    if handler == libc::SIG_IGN && !is_fault {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A fault is repeated after the return, and ends the program as it would have without the library.
        // SAFETY: the default action is no code.
        unsafe { real::sigaction(signal, &raw const DEFAULT_ACTION.0, std::ptr::null_mut()) };
        if !is_fault {
            // SAFETY: the signal is blocked until this handler returns.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    if action.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND != 0 {
        action.set(&DEFAULT_ACTION.0);
    }
    type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: the program passed the address as that of a handler; one with fewer arguments ignores the rest.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: the kernel's own arguments.
    unsafe { handler(signal, info, context) }
}

struct Constant(libc::sigaction);

// SAFETY: it is never changed; its null pointer is none that a thread owns.
unsafe impl Sync for Constant {}

// SAFETY: zero bytes are a valid action: the default one.
static DEFAULT_ACTION: Constant = Constant(unsafe { std::mem::zeroed() });

/// Continues a copy behind its fault. False: the fault is not one of a copy.
///
/// # Safety
///
/// The kernel passed the context to a handler.
unsafe fn resume(context: *mut libc::ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; the kernel loads the registers from it when the handler returns.
    let place = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let place = unsafe { &raw mut (*context).uc_mcontext.pc };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        // SAFETY: as above.
        let address = unsafe { place.read() };
        let Some(next) = ddss_stream::resume_address(address as usize) else { return false };
        // SAFETY: as above.
        unsafe { place.write(next as _) };
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        false
    }
}

/// Replaces libc's `sigaction`: a program that asks for its action gets what it set.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(action) = recorded(signal).filter(|_| IS_INSTALLED.load(Ordering::Acquire)) else {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { real::sigaction(signal, new, old) };
    };
    let before = action.get();
    if !new.is_null() {
        // SAFETY: the program passed an action, or a wrong pointer.
        let Some(new) = (unsafe { ddss_stream::load(new) }) else { return wrong_pointer() };
        action.set(&new);
        enter_kernel(signal, &new);
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

/// Sets a handler as the older calls do, which pass no action. `None`: the signal is not the library's.
fn set_handler(signal: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    recorded(signal).filter(|_| IS_INSTALLED.load(Ordering::Acquire))?;
    let (mut new, mut old) = (empty(), empty());
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both live until the call returns; the program passed the handler.
    unsafe { sigaction(signal, &raw const new, &raw mut old) };
    Some(old.sa_sigaction)
}

const ONE_SHOT: c_int = libc::SA_RESETHAND | libc::SA_NODEFER;

/// Replaces libc's `signal`.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's arguments, unchanged.
    set_handler(signal, handler, libc::SA_RESTART).unwrap_or_else(|| unsafe { real::signal(signal, handler) })
}

/// Replaces libc's other name of `signal`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's arguments, unchanged.
    set_handler(signal, handler, libc::SA_RESTART).unwrap_or_else(|| unsafe { real::signal(signal, handler) })
}

/// Replaces libc's `signal` of System V.
#[unsafe(no_mangle)]
unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's arguments, unchanged.
    set_handler(signal, handler, ONE_SHOT).unwrap_or_else(|| unsafe { real::sysv_signal(signal, handler) })
}

/// Replaces the name of `signal` that programs get with the definitions of System V.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: as the program called it.
    unsafe { sysv_signal(signal, handler) }
}

const _: () = assert!(size_of::<sigset_t>() >= size_of::<u64>());
