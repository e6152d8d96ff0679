//! Handler of `SIGSEGV`: lets the service thread open a page of a space, and hands all other faults to the action before it.
//!
//! It is installed once and stays. All signals are blocked while it runs: their handlers may have room on the same small stack for one
//! only.

use super::fault_table::{Treatment, treat};
use ddss_dsm_core::Access;
use libc::{c_int, c_void, sigaction, siginfo_t};
use std::io;
use std::mem;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Action before the handler.
static EARLIER: OnceLock<Action> = OnceLock::new();
static INSTALLATION: Mutex<()> = Mutex::new(());

/// Said when a child of `fork` uses a page.
const CHILD_MESSAGE: &[u8] =
    b"ddss-dsm: a child of fork uses a page of a space, and has none: use the space in the process that joined it\n";

struct Action(sigaction);

// SAFETY: the addresses in an action are those of functions.
unsafe impl Send for Action {}
// SAFETY: as above.
unsafe impl Sync for Action {}

/// Installs the handler, unless it is there.
pub(crate) fn install() -> io::Result<()> {
    let _one = INSTALLATION.lock().unwrap_or_else(PoisonError::into_inner);
    if EARLIER.get().is_some() {
        return Ok(());
    }
    let mut earlier = empty_action();
    // SAFETY: without a new action the call only fills `earlier`.
    check(unsafe { sigaction(libc::SIGSEGV, ptr::null(), &raw mut earlier) })?;
    // Before the handler can run.
    let _ = EARLIER.set(Action(earlier));
    let mut ours = empty_action();
    ours.sa_sigaction = on_fault as *const () as libc::sighandler_t;
    // Rust reports an overflow of the stack on a stack of its own.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the set belongs to this function.
    unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
    // SAFETY: the action lives until the call returns, and the handler has the type that the flags promise.
    check(unsafe { sigaction(libc::SIGSEGV, &raw const ours, ptr::null_mut()) })
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the call returns the address of a number of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the number lives as long as the thread.
    let errno = unsafe { &mut *errno };
    let before = *errno;
    // SAFETY: the kernel passes information to a handler with `SA_SIGINFO`.
    let information = unsafe { &*info };
    let is_fault = information.si_code > 0;
    // SAFETY: a fault has an address.
    let address = if is_fault { unsafe { information.si_addr() } } else { ptr::null_mut() };
    match if is_fault { treat(address as usize, access(context)) } else { Treatment::NotOurs } {
        Treatment::Answered => {}
        Treatment::NotOurs => call_earlier(signal, info, context, is_fault),
        Treatment::Child => {
            // SAFETY: the message is static.
            unsafe { libc::write(libc::STDERR_FILENO, CHILD_MESSAGE.as_ptr().cast(), CHILD_MESSAGE.len()) };
            call_earlier(signal, info, context, is_fault);
        }
    }
    *errno = before;
}

/// Returns how the thread uses the page, if the processor says it.
#[cfg(target_arch = "x86_64")]
fn access(context: *mut c_void) -> Option<Access> {
    /// Bit of the processor's error code.
    const IS_WRITE: i64 = 2;
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes the context of the interrupted thread to a handler with `SA_SIGINFO`.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    Some(if registers[libc::REG_ERR as usize] & IS_WRITE != 0 { Access::Write } else { Access::Read })
}

#[cfg(not(target_arch = "x86_64"))]
fn access(_context: *mut c_void) -> Option<Access> {
    None
}

/// Does what would have been done without this handler.
fn call_earlier(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_fault: bool) {
    let Some(Action(earlier)) = EARLIER.get() else { return };
    match earlier.sa_sigaction {
        // The kernel ignores no fault.
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = empty_action();
            // SAFETY: the action lives until the call returns.
            unsafe { sigaction(signal, &raw const default, ptr::null_mut()) };
            if !is_fault {
                // It is delivered behind this handler. A fault happens again.
                // SAFETY: the call takes no memory.
                unsafe { libc::raise(signal) };
            }
        }
        handler if earlier.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program has promised a handler of this type by the flag.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: as above, without the flag.
            let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Returns the default action.
fn empty_action() -> sigaction {
    // SAFETY: zero is a value of each field: the default action, no flag, an empty set.
    unsafe { mem::zeroed() }
}

fn check(returned: c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{ApplicationView, FaultTable, MemoryFile, ViewAddress};
    use ddss_group::Wake;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};
    use std::sync::Arc;

    const ROLE: &str = "DDSS_TEST_ROLE";
    /// Status of a process whose own handler has ended it.
    const HANDLED: c_int = 7;

    extern "C" fn on_earlier(_signal: c_int) {
        // SAFETY: the call takes no memory, and does not return.
        unsafe { libc::_exit(HANDLED) };
    }

    /// Reads an address at which nothing is.
    fn read_elsewhere() {
        // SAFETY: none: the fault is what the test looks at.
        unsafe { ptr::without_provenance::<u8>(4096).read_volatile() };
    }

    fn overflow(depth: u64) -> u64 {
        let deeper = if std::hint::black_box(depth) == u64::MAX { 0 } else { overflow(depth + 1) };
        std::hint::black_box([depth; 512])[0] + deeper
    }

    /// Plays a role, which ends the process.
    fn play(role: &str) {
        if role == "earlier" {
            let mut earlier = empty_action();
            earlier.sa_sigaction = on_earlier as *const () as libc::sighandler_t;
            // SAFETY: the action lives until the call returns, and the handler has the type that the flags promise.
            unsafe { sigaction(libc::SIGSEGV, &raw const earlier, ptr::null_mut()) };
        }
        install().unwrap();
        let view =
            ApplicationView::map(&MemoryFile::create("test", 4096).unwrap(), 0..4096, 4096, ViewAddress::Any).unwrap();
        let _table = FaultTable::take(&view, Arc::new(Wake::new().unwrap())).unwrap();
        match role {
            "overflow" => drop(std::hint::black_box(overflow(0))),
            "fork" => {
                // SAFETY: the child calls only what a signal handler may call.
                if unsafe { libc::fork() } == 0 {
                    // SAFETY: none: the fault is what the test looks at.
                    unsafe { view.base().cast::<u8>().read_volatile() };
                }
                let mut status = 0;
                // SAFETY: the status belongs to this function.
                unsafe { libc::wait(&raw mut status) };
                // SAFETY: the call takes no memory, and does not return.
                unsafe { libc::_exit(libc::WTERMSIG(status)) };
            }
            "lost" => {
                view.lose(0);
                // SAFETY: none: the fault is what the test looks at.
                unsafe { view.base().cast::<u8>().read_volatile() };
            }
            _ => read_elsewhere(),
        }
    }

    // If this failed, a wrong pointer would hang the program, or a program's crash handler would be lost.
    #[test]
    fn faults_of_others_end_as_without_the_handler() {
        if let Ok(role) = std::env::var(ROLE) {
            play(&role);
            return;
        }
        let test = "sys::fault_signal::tests::faults_of_others_end_as_without_the_handler";
        let end_of = |role: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let Output { status, stderr, .. } =
                command.args(["--exact", test, "--nocapture"]).env(ROLE, role).output().unwrap();
            (status.signal(), status.code(), String::from_utf8(stderr).unwrap())
        };
        assert_eq!(end_of("elsewhere").0, Some(libc::SIGSEGV));
        assert_eq!(end_of("earlier").1, Some(HANDLED));
        assert_eq!(end_of("lost").0, Some(libc::SIGBUS));
        let (signal, _, said) = end_of("overflow");
        assert_eq!((signal, said.contains("has overflowed its stack")), (Some(libc::SIGABRT), true), "{said}");
        let (_, code, said) = end_of("fork");
        assert_eq!(code, Some(libc::SIGSEGV), "{said}");
        assert!(said.starts_with(std::str::from_utf8(CHILD_MESSAGE).unwrap()), "{said}");
    }
}
