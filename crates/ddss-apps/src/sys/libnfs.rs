//! One file on an NFS server, through libnfs.
//!
//! The library is opened at run time and never closed. A context and the files opened in it belong to one thread at a
//! time, which `&mut self` ensures.
//!
//! The library has blocking calls, and calls with a callback. The callbacks allow several reads in flight.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Error;

/// Major version of the protocol. Version 4 of libnfs 4.0 cannot write more than 4 KiB at once.
const PROTOCOL: c_int = 3;
const OPEN_READ_WRITE: c_int = 2;
const MODE: c_int = 0o644;
/// Timeout of a reply.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Maximum number of reads in flight.
pub(crate) const WINDOW: usize = 64;

macro_rules! table {
    ($($field:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        struct Library {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Library {
            fn open() -> Result<Library, String> {
                // Its 13th interface; later ones have other arguments for reads and writes.
                const NAME: &str = "libnfs.so.13";
                // SAFETY: libnfs runs nothing when it is loaded.
                let library = unsafe { libloading::Library::new(NAME) };
                // Never closed: the functions are called until the process ends.
                let library = ManuallyDrop::new(library.map_err(|_| format!("{NAME} is not installed"))?);
                $(
                    // SAFETY: the symbol is a function of this name in a library whose header (`nfsc/libnfs.h`, version
                    // 4) promises this type.
                    let found = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $answer)?>(stringify!($field))
                    };
                    let $field = *found.map_err(|_| format!("libnfs has no {}", stringify!($field)))?;
                )*
                Ok(Library { $($field),* })
            }
        }
    };
}

table! {
    nfs_init_context: fn() -> *mut c_void;
    nfs_destroy_context: fn(*mut c_void);
    nfs_set_version: fn(*mut c_void, c_int) -> c_int;
    nfs_set_timeout: fn(*mut c_void, c_int);
    nfs_get_error: fn(*mut c_void) -> *const c_char;
    nfs_mount: fn(*mut c_void, *const c_char, *const c_char) -> c_int;
    nfs_open: fn(*mut c_void, *const c_char, c_int, *mut *mut c_void) -> c_int;
    nfs_creat: fn(*mut c_void, *const c_char, c_int, *mut *mut c_void) -> c_int;
    nfs_close: fn(*mut c_void, *mut c_void) -> c_int;
    nfs_pread: fn(*mut c_void, *mut c_void, u64, u64, *mut c_void) -> c_int;
    nfs_pwrite: fn(*mut c_void, *mut c_void, u64, u64, *const c_void) -> c_int;
    nfs_pread_async: fn(*mut c_void, *mut c_void, u64, u64, OnAnswer, *mut c_void) -> c_int;
    nfs_get_fd: fn(*mut c_void) -> c_int;
    nfs_which_events: fn(*mut c_void) -> c_int;
    nfs_service: fn(*mut c_void, c_int) -> c_int;
}

/// Arguments: status, context, data, and the pointer that was passed with the call.
type OnAnswer = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, *mut c_void);

/// A read in flight.
struct Pending {
    /// Destination of the bytes; null if no caller waits for them any more.
    into: Cell<*mut u8>,
    room: Cell<usize>,
    /// Number of bytes read, or an errno.
    answer: Cell<Option<c_int>>,
}

impl Pending {
    fn of_nobody() -> Pending {
        Pending { into: Cell::new(std::ptr::null_mut()), room: Cell::new(0), answer: Cell::new(None) }
    }

    fn set(&self, into: &mut [u8]) {
        self.into.set(into.as_mut_ptr());
        self.room.set(into.len());
        self.answer.set(None);
    }
}

/// Takes the bytes of a read.
unsafe extern "C" fn take_answer(status: c_int, _: *mut c_void, data: *mut c_void, pending: *mut c_void) {
    // SAFETY: it was given with the call: one of `NfsFile::pending`, which live as long as the context and its calls. Only
    // this thread, which called libnfs, has references to it.
    let pending = unsafe { &*pending.cast::<Pending>() };
    let Ok(bytes) = usize::try_from(status) else { return pending.answer.set(Some(status)) };
    let into = pending.into.get();
    if bytes > pending.room.get() || data.is_null() {
        return pending.answer.set(Some(-libc::EPROTO));
    }
    if !into.is_null() {
        // SAFETY: `data` is as many bytes as the status says, and `into` has room for them: the caller waits for the
        // answer, or has set it to null.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), into, bytes) };
    }
    pending.answer.set(Some(status));
}

impl Library {
    fn get() -> Result<&'static Library, Error> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let library = LIBRARY.get_or_init(Library::open).as_ref();
        library.map_err(|why| Error::Missing { what: "libnfs", why: why.clone() })
    }
}

/// An open file on an NFS server, with its own connection.
pub(crate) struct NfsFile {
    library: &'static Library,
    context: NonNull<c_void>,
    /// Null until the file is open.
    file: *mut c_void,
    /// Libnfs has their addresses while reads are in flight.
    pending: Rc<[Pending; WINDOW]>,
    /// Reads were left in flight: this connection is not used any more.
    broken: bool,
}

// SAFETY: a context is tied to no thread, and this value is the only one that has it and what is in `pending`: calls take
// `&mut self`.
unsafe impl Send for NfsFile {}

impl std::fmt::Debug for NfsFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("NfsFile").finish_non_exhaustive()
    }
}

impl NfsFile {
    /// Connects, and opens the file; creates it if it does not exist.
    pub(crate) fn open(host: &str, export: &str, path: &str) -> Result<NfsFile, Error> {
        let library = Library::get()?;
        // SAFETY: it takes nothing, and gives a context or null.
        let context = unsafe { (library.nfs_init_context)() };
        let context = NonNull::new(context).ok_or(Error::Missing { what: "libnfs", why: "no context".to_owned() })?;
        let pending = Rc::new(std::array::from_fn(|_| Pending::of_nobody()));
        let mut file = NfsFile { library, context, file: std::ptr::null_mut(), pending, broken: false };
        file.mount(host, export)?;
        file.open_or_create(path)?;
        Ok(file)
    }

    fn mount(&mut self, host: &str, export: &str) -> Result<(), Error> {
        let (server, path) = (c_string(host)?, c_string(export)?);
        // SAFETY: the context is alive until this value is dropped.
        let answer = unsafe { (self.library.nfs_set_version)(self.context.as_ptr(), PROTOCOL) };
        self.outcome(answer, "choosing a protocol of libnfs")?;
        // SAFETY: as above; the number is milliseconds.
        unsafe { (self.library.nfs_set_timeout)(self.context.as_ptr(), ANSWER_MAX.as_millis() as c_int) };
        // SAFETY: as above, and both names are C strings that live through the call.
        let answer = unsafe { (self.library.nfs_mount)(self.context.as_ptr(), server.as_ptr(), path.as_ptr()) };
        self.outcome(answer, &format!("mounting {export} of {host}")).map(drop)
    }

    fn open_or_create(&mut self, path: &str) -> Result<(), Error> {
        let name = c_string(path)?;
        let (context, file) = (self.context.as_ptr(), &raw mut self.file);
        // SAFETY: the context is alive, the name a C string, and the place for the handle this value's own.
        let opened = unsafe { (self.library.nfs_open)(context, name.as_ptr(), OPEN_READ_WRITE, file) };
        if opened == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        let created = unsafe { (self.library.nfs_creat)(context, name.as_ptr(), MODE, file) };
        self.outcome(created, &format!("creating {path}")).map(drop)
    }

    /// Reads bytes into `into`, up to the end of the file.
    pub(crate) fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let (context, count, to) = (self.context.as_ptr(), into.len() as u64, into.as_mut_ptr().cast());
        // SAFETY: the context is alive and the file open in it; libnfs writes at most `count` bytes, which `into` has, and
        // the call returns when it no longer does.
        let answer = unsafe { (self.library.nfs_pread)(context, self.file, offset, count, to) };
        self.outcome(answer, &format!("reading {count} bytes at {offset}"))
    }

    /// Reads at several offsets together, and runs `meanwhile` while the answers are in flight. Bytes behind the end of
    /// the file are zero.
    ///
    /// # Panics
    ///
    /// With more than [`WINDOW`] reads, or another number of places for them.
    pub(crate) fn read_many<const BYTES: usize>(
        &mut self,
        offsets: impl ExactSizeIterator<Item = u64>,
        into: &mut [[u8; BYTES]],
        meanwhile: impl FnOnce(),
    ) -> Result<(), Error> {
        let pending = Rc::clone(&self.pending);
        let pending = &pending[..offsets.len()];
        assert!(pending.len() == into.len(), "a place for each read");
        if self.broken {
            return Err(Error::Protocol { server: "the nfs server", answer: "nothing, an earlier time".to_owned() });
        }
        let asked = self.ask_many(offsets, pending, into);
        meanwhile();
        let read = asked.and_then(|()| self.wait_for(pending));
        if read.is_err() {
            // No caller waits for later answers.
            self.broken = true;
            pending.iter().for_each(|pending| pending.into.set(std::ptr::null_mut()));
            return read;
        }
        for (pending, into) in pending.iter().zip(into) {
            let answer = pending.answer.get().expect("it was waited for");
            let bytes = self.outcome(answer, &format!("reading {BYTES} bytes"))?;
            into[bytes..].fill(0);
        }
        Ok(())
    }

    fn ask_many<const BYTES: usize>(
        &mut self,
        offsets: impl Iterator<Item = u64>,
        pending: &[Pending],
        into: &mut [[u8; BYTES]],
    ) -> Result<(), Error> {
        let (context, bytes) = (self.context.as_ptr(), BYTES as u64);
        for (pending, into) in pending.iter().zip(into) {
            pending.set(into);
        }
        for (pending, offset) in pending.iter().zip(offsets) {
            let to = std::ptr::from_ref(pending).cast_mut().cast();
            // SAFETY: the context is alive and the file open in it; the function has the type that the header asks for,
            // and its arguments live until the context is destroyed.
            let asked = unsafe { (self.library.nfs_pread_async)(context, self.file, offset, bytes, take_answer, to) };
            self.outcome(asked, &format!("asking for {bytes} bytes at {offset}"))?;
        }
        // All requests are in one queue; this sends as much as the socket accepts.
        self.serve(libc::POLLOUT.into())
    }

    /// Serves the connection until those reads are over.
    fn wait_for(&mut self, pending: &[Pending]) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::system("waiting for the nfs server")(error);
        let deadline = Instant::now() + ANSWER_MAX;
        while pending.iter().any(|pending| pending.answer.get().is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            // SAFETY: the context is alive.
            let events = unsafe { (self.library.nfs_which_events)(self.context.as_ptr()) };
            // SAFETY: as above.
            let socket = unsafe { (self.library.nfs_get_fd)(self.context.as_ptr()) };
            if socket < 0 {
                return Err(failed(std::io::ErrorKind::NotConnected.into()));
            }
            // SAFETY: the context keeps its socket open; nothing else is called until the poll is over.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            let mut sockets = [PollFd::new(&socket, PollFlags::from_bits_truncate(events as _))];
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut sockets, Some(&left)) {
                Ok(0) => return Err(failed(std::io::ErrorKind::TimedOut.into())),
                Ok(_) => self.serve(sockets[0].revents().bits().into())?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(())
    }

    /// Lets libnfs send and receive.
    fn serve(&mut self, events: c_int) -> Result<(), Error> {
        // SAFETY: the context is alive. It calls `take_answer` for reads that are over, whose `pending` live.
        let answer = unsafe { (self.library.nfs_service)(self.context.as_ptr(), events) };
        self.outcome(answer, "serving the connection").map(drop)
    }

    /// Writes bytes; returns how many were written.
    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Error> {
        let (context, count, from) = (self.context.as_ptr(), bytes.len() as u64, bytes.as_ptr().cast());
        // SAFETY: as for reading; libnfs reads the `count` bytes of `bytes` until the call returns.
        let answer = unsafe { (self.library.nfs_pwrite)(context, self.file, offset, count, from) };
        self.outcome(answer, &format!("writing {count} bytes at {offset}"))
    }

    /// Converts an answer: a negative one is an errno, for which the context has a text.
    fn outcome(&self, answer: c_int, what: &str) -> Result<usize, Error> {
        if let Ok(done) = usize::try_from(answer) {
            return Ok(done);
        }
        // SAFETY: the context is alive.
        let words = unsafe { (self.library.nfs_get_error)(self.context.as_ptr()) };
        let why = if words.is_null() {
            String::new()
        } else {
            // SAFETY: a C string of the context's own, which it keeps until the next call.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        };
        let source = std::io::Error::from_raw_os_error(answer.saturating_neg());
        Err(Error::system(format!("{what} over nfs ({why})"))(source))
    }
}

impl Drop for NfsFile {
    fn drop(&mut self) {
        if !self.file.is_null() && !self.broken {
            // SAFETY: the file is open in the context, and nobody uses it after this.
            unsafe { (self.library.nfs_close)(self.context.as_ptr(), self.file) };
        }
        // SAFETY: the context was made by `nfs_init_context`, and nobody uses it after this.
        unsafe { (self.library.nfs_destroy_context)(self.context.as_ptr()) };
    }
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|error| Error::system(format!("naming {text:?} to libnfs"))(error.into()))
}
