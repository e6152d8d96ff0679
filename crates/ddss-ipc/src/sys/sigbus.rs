//! The end of a process whose files can be reached no more: somebody cut one short, or its disk fails, or is full where it
//! had promised room. The kernel says so at an access to the mapping, with `SIGBUS`, and nothing of what is
//! going on can end as it should. So the process says which file it was, and ends with a code of its own.
//!
//! ```text
//!   FIRST ─► Known { begin, bytes, text } ─► Known ─► .. ─► null        bytes = 0: it is mapped no more
//! ```
//!
//! # Safety
//!
//! The handler may find any thread anywhere, also while it allocates or holds a lock. It only follows the list and makes two
//! system calls. What is in the list is written before it gets there, and stays for as long as the process.

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// A mapped file, and what is to be said if it can be reached no more.
struct Known {
    begin: usize,
    bytes: AtomicUsize,
    text: Box<[u8]>,
    next: AtomicPtr<Known>,
}

static FIRST: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());
/// With which code the process ends; 0: nobody asked for it.
static CODE: AtomicI32 = AtomicI32::new(0);

/// A file that is mapped for as long as this is there.
pub(super) struct Mapped(&'static Known);

impl Mapped {
    /// Nothing, if nobody asked for the words at the end.
    pub(super) fn note(path: &Path, begin: usize, bytes: usize) -> Option<Self> {
        if CODE.load(Ordering::Acquire) == 0 {
            return None;
        }
        let text = format!(
            "ddssd: cannot reach the bytes of {} any more: the file was cut short, or its disk fails or is full \
             (`dmesg` and `df` tell). Mend that and start ddssd again: it goes on, or says what is lost\n",
            path.display()
        );
        let (bytes, text) = (AtomicUsize::new(bytes), text.into_bytes().into());
        // Never freed: the handler may be at it at any time.
        let known: &'static Known = Box::leak(Box::new(Known { begin, bytes, text, next: AtomicPtr::default() }));
        let fresh = std::ptr::from_ref(known).cast_mut();
        let mut first = FIRST.load(Ordering::Acquire);
        loop {
            known.next.store(first, Ordering::Relaxed);
            // pairs with the handler's Acquire: who finds it finds what is in it.
            match FIRST.compare_exchange_weak(first, fresh, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(Self(known)),
                Err(newer) => first = newer,
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.0.bytes.store(0, Ordering::Relaxed);
    }
}

/// From now on a mapped file that can be reached no more ends this process with a sentence on standard error, and with that
/// code. It counts for files that are mapped from now on. Another `SIGBUS` ends it as ever.
pub fn exit_for_lost_files(code: u8) -> std::io::Result<()> {
    CODE.store(code.into(), Ordering::Release);
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = lost;
    // SAFETY: all bits zero is a `sigaction` with no flag and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that `SA_SIGINFO` asks for, and does only what a handler may (see above).
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

extern "C" fn lost(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes what `SA_SIGINFO` promises, for as long as this runs.
    let info = unsafe { &*info };
    // SAFETY: of `SIGBUS` it has an address.
    let address = unsafe { info.si_addr() } as usize;
    let mut next = FIRST.load(Ordering::Acquire);
    // SAFETY: what is in the list is never freed.
    while let Some(known) = unsafe { next.as_ref() } {
        if address.wrapping_sub(known.begin) < known.bytes.load(Ordering::Relaxed) {
            // SAFETY: the text is never freed, and `write` may be called here. If it fails there is nobody to tell.
            let _ = unsafe { libc::write(2, known.text.as_ptr().cast(), known.text.len()) };
            // SAFETY: it may be called here, and runs nothing of this process.
            unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) };
        }
        next = known.next.load(Ordering::Acquire);
    }
    // Nobody's file: whoever is here comes back, and ends as if there were no handler.
    // SAFETY: it may be called here.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    // SAFETY: as above; the signal waits until this handler has returned.
    unsafe { libc::raise(libc::SIGBUS) };
}
