//! A thread that uses a value of its handle.
//!
//! A child of `fork` has the handle and not the thread. What only the thread owned would never end there: a child would keep the
//! sockets of its parent open. So the handle owns the value, and gives it to the thread when it ends.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

use super::process_byte::ProcessByte;

/// Handle of a thread that uses a value of this handle.
///
/// ```
/// use ddss_ipc::lock_free::LentThread;
/// use std::sync::mpsc::channel;
/// use std::thread::Builder;
///
/// let (wake, woken) = channel();
/// let mut thread = LentThread::start(Builder::new(), 7, move |number, lent| {
///     while !lent.is_over() {
///         let _ = woken.recv();
///     }
///     assert_eq!(*number, 7);
/// })?;
/// let ended = thread.end().expect("this process has started it");
/// wake.send(())?;
/// ended.join().expect("the thread has not panicked");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LentThread<T> {
    value: Arc<T>,
    lent: Lent<T>,
    process: ProcessByte,
    thread: Option<JoinHandle<()>>,
}

/// The share of the thread: whether its handle has ended, which then has left the value here.
#[derive(Debug)]
pub struct Lent<T>(Arc<OnceLock<Arc<T>>>);

impl<T> Lent<T> {
    /// Returns true if the thread has to end.
    pub fn is_over(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Share of the thread: a value that outlives `lent`.
struct Loan<T> {
    value: *const T,
    lent: Lent<T>,
}

// SAFETY: the thread only shares the value, and may be the one that drops it.
unsafe impl<T: Send + Sync> Send for Loan<T> {}

impl<T> Loan<T> {
    fn run(self, run: impl FnOnce(&T, &Lent<T>)) {
        // SAFETY: the handle owns the value until it drops it, and its drop leaves the value in `lent`, which this function owns.
        // Only a child of this process frees it otherwise, and there this thread does not run.
        run(unsafe { &*self.value }, &self.lent);
    }
}

impl<T> fmt::Debug for LentThread<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LentThread").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> LentThread<T> {
    /// Starts the thread.
    pub fn start(builder: Builder, value: T, run: impl FnOnce(&T, &Lent<T>) + Send + 'static) -> io::Result<Self> {
        let (value, returned, process) = (Arc::new(value), Arc::default(), ProcessByte::new(1)?);
        let loan = Loan { value: Arc::as_ptr(&value), lent: Lent(Arc::clone(&returned)) };
        let thread = builder.spawn(move || loan.run(run))?;
        Ok(Self { value, lent: Lent(returned), process, thread: Some(thread) })
    }
}

impl<T> LentThread<T> {
    /// Returns the value that the thread uses.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Tells the thread to end. The caller wakes it, and may wait for it. `None`: this was done before, or the thread is one of
    /// a parent of this process.
    pub fn end(&mut self) -> Option<JoinHandle<()>> {
        let thread = self.thread.take()?;
        if self.process.is_inherited() {
            // The handle would detach a thread of this process that has the same id.
            std::mem::forget(thread);
            return None;
        }
        let _ = self.lent.0.set(Arc::clone(&self.value));
        Some(thread)
    }
}

impl<T> Drop for LentThread<T> {
    fn drop(&mut self) {
        drop(self.end());
    }
}
