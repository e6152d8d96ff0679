//! Exit of a process that loses a mapped file: the file was truncated, or its disk failed or is full.
//!
//! The kernel reports this at an access to the mapping, with `SIGBUS`, and no operation in progress can complete. So
//! the process names the file on standard error and exits with a code of its own.
//!
//! ```text
//!   FIRST_RECORD ─► FileRecord { begin, bytes, text } ─► FileRecord ─► .. ─► null        bytes = 0: unmapped
//! ```
//!
//! # Safety
//!
//! The handler may interrupt any thread anywhere, also while it allocates or holds a lock. It only follows the list and
//! makes two system calls. A record is complete before it enters the list, and is never freed.

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// A mapped file, and the message for its loss.
struct FileRecord {
    begin: usize,
    bytes: AtomicUsize,
    text: Box<[u8]>,
    next: AtomicPtr<FileRecord>,
}

static FIRST_RECORD: AtomicPtr<FileRecord> = AtomicPtr::new(std::ptr::null_mut());
/// Exit code of the process; 0: not requested.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Registration of a mapped file, until it is dropped.
pub(super) struct MappedFile(&'static FileRecord);

impl MappedFile {
    /// Registers a mapped file. Returns `None` if no exit was requested.
    pub(super) fn register(path: &Path, begin: usize, bytes: usize) -> Option<Self> {
        if EXIT_CODE.load(Ordering::Acquire) == 0 {
            return None;
        }
        let text = format!(
            "ddssd: cannot access the mapped file {}: it was truncated, or its disk failed or is full \
             (see `dmesg` and `df`); repair that and start ddssd again, which reports what is lost\n",
            path.display()
        );
        let (bytes, text) = (AtomicUsize::new(bytes), text.into_bytes().into());
        // Never freed: the handler may read it at any time.
        let record: &'static FileRecord =
            Box::leak(Box::new(FileRecord { begin, bytes, text, next: AtomicPtr::default() }));
        let fresh = std::ptr::from_ref(record).cast_mut();
        let mut first = FIRST_RECORD.load(Ordering::Acquire);
        loop {
            record.next.store(first, Ordering::Relaxed);
            // Pairs with the Acquire of the handler, which then sees the content of the record.
            match FIRST_RECORD.compare_exchange_weak(first, fresh, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(Self(record)),
                Err(newer) => first = newer,
            }
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.0.bytes.store(0, Ordering::Relaxed);
    }
}

/// Installs the handler that ends this process when a mapped file is lost.
pub(super) fn exit_on_lost_file(code: u8) -> std::io::Result<()> {
    EXIT_CODE.store(code.into(), Ordering::Release);
    let handler = SigHandler::SigAction(handle_sigbus);
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: the handler is async-signal-safe (see above).
    unsafe { sigaction(Signal::SIGBUS, &action) }?;
    Ok(())
}

extern "C" fn handle_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` with `SA_SIGINFO`, for the duration of the handler.
    let info = unsafe { &*info };
    // SAFETY: `SIGBUS` comes with an address.
    let address = unsafe { info.si_addr() } as usize;
    let mut next = FIRST_RECORD.load(Ordering::Acquire);
    // SAFETY: records are never freed.
    while let Some(record) = unsafe { next.as_ref() } {
        if address.wrapping_sub(record.begin) < record.bytes.load(Ordering::Relaxed) {
            // SAFETY: the text is never freed, and `write` is async-signal-safe. If it fails, there is no other output.
            let _ = unsafe { libc::write(2, record.text.as_ptr().cast(), record.text.len()) };
            // SAFETY: `_exit` is async-signal-safe and runs no code of this process.
            unsafe { libc::_exit(EXIT_CODE.load(Ordering::Relaxed)) };
        }
        next = record.next.load(Ordering::Acquire);
    }
    // Not a registered file: restore the default action, which ends the process. SAFETY: `signal` is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    // SAFETY: as above; the signal waits until this handler has returned.
    unsafe { libc::raise(libc::SIGBUS) };
}
