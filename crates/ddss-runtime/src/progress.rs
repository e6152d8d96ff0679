//! The progress thread, and the handle that stops it.

use crate::affinity::pin_to;
use crate::idle_config::IdleConfig;
use crate::idle_strategy::{IdleAction, IdleStrategy};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Task that a progress thread drives.
pub trait ProgressTask {
    /// Does a bounded part of the available work; returns the amount done.
    fn poll(&mut self) -> usize;
    /// Returns true if the last poll served peers without counting as work: they will probably come again.
    fn has_served_peers(&self) -> bool {
        false
    }
    /// Runs before the thread gives up its core for a moment.
    fn before_yield(&mut self) {}
    /// Prepares to sleep: notifies every source of work, then checks once more. Returns false if there is work; then
    /// no source believes that the thread sleeps.
    fn arm(&mut self) -> bool;
    /// Ends the sleep.
    fn disarm(&mut self);
    /// Passes the descriptors that become readable when work arrives to `wait`.
    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>]));
    /// Returns the time without sleep after the last work, if it depends on the current clients; `usual` is that of the
    /// [`IdleConfig`].
    fn awake_limit(&self, usual: Duration) -> Duration {
        usual
    }
    /// Returns the longest permitted sleep.
    fn park_limit(&self) -> Duration {
        Duration::MAX
    }
    /// Runs before the thread ends.
    fn finish(&mut self) {}
}

/// Error of a progress thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The thread could not be started.
    #[error("cannot start the progress thread {name}")]
    Start {
        /// Name of the thread.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The thread cannot run on its configured core.
    #[error("cannot pin the progress thread to core {core}: check that the process may use it (taskset -p)")]
    Pin {
        /// Core.
        core: usize,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The task could not be created.
    #[error("cannot create the task of the progress thread")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The thread panicked.
    #[error("the progress thread panicked")]
    Panicked,
}

/// Request that ends a progress thread.
#[derive(Debug)]
struct StopFlag {
    requested: AtomicBool,
    wake: OwnedFd,
}

impl StopFlag {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { requested: AtomicBool::new(false), wake })
    }

    fn stop(&self) {
        // Pairs with the Acquire in `is_requested`.
        self.requested.store(true, Ordering::Release);
        // A full counter is as readable as a fresh one, so an error changes nothing.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// A running progress thread.
#[derive(Debug)]
pub struct ProgressThread {
    stopper: Arc<StopFlag>,
    handle: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Maximum number of descriptors that the thread watches while it sleeps.
    pub const DESCRIPTORS_MAX: usize = 16;

    /// Starts and pins the thread, and creates its task there. Returns after the task is created or has failed.
    pub fn start<W: ProgressTask + 'static, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        name: &str,
        core: Option<usize>,
        config: IdleConfig,
        make: impl FnOnce() -> Result<W, E> + Send + 'static,
    ) -> Result<Self, RuntimeError> {
        let start_error = |source| RuntimeError::Start { name: name.to_owned(), source };
        let stopper = Arc::new(StopFlag::new().map_err(start_error)?);
        let (sender, ready) = mpsc::sync_channel(1);
        let stop = Arc::clone(&stopper);
        let body = move || {
            let pinned = core.map_or(Ok(()), |core| pin_to(core).map_err(|source| RuntimeError::Pin { core, source }));
            match pinned.and_then(|()| make().map_err(|error| RuntimeError::Setup(error.into()))) {
                Ok(mut task) => {
                    let _ = sender.send(Ok(()));
                    drive(&mut task, config, &stop);
                    task.finish();
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        };
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(start_error)?;
        ready.recv().unwrap_or(Err(RuntimeError::Panicked))?;
        Ok(Self { stopper, handle: Some(handle) })
    }

    /// Returns true while the thread runs.
    pub fn is_running(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| !handle.is_finished())
    }

    /// Stops the thread and waits for its end.
    pub fn stop(mut self) -> Result<(), RuntimeError> {
        self.stop_and_join()
    }

    fn stop_and_join(&mut self) -> Result<(), RuntimeError> {
        self.stopper.stop();
        match self.handle.take() {
            Some(handle) => handle.join().map_err(|_| RuntimeError::Panicked),
            None => Ok(()),
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        // The panic hook has reported a panic; a drop cannot return it.
        let _ = self.stop_and_join();
    }
}

fn drive<W: ProgressTask>(task: &mut W, config: IdleConfig, stopper: &StopFlag) {
    let mut strategy = IdleStrategy::new(config);
    while !stopper.is_requested() {
        let worked = task.poll() > 0;
        if worked {
            strategy.record_work();
            continue;
        }
        if task.has_served_peers() {
            strategy.record_work();
        }
        match strategy.next_action(|usual| task.awake_limit(usual)) {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => {
                task.before_yield();
                let began = Instant::now();
                std::thread::yield_now();
                let now = Instant::now();
                strategy.record_yield(now, now.duration_since(began));
            }
            IdleAction::Sleep => {
                let is_timeout = task.arm() && {
                    let woken = park(task, task.park_limit().min(config.sleep_max), stopper);
                    task.disarm();
                    !woken
                };
                if is_timeout { strategy.record_timeout() } else { strategy.record_wakeup() }
            }
        }
    }
}

/// Sleeps until a descriptor is readable, a stop is requested, or the time is over; returns false if it is over.
fn park<W: ProgressTask>(task: &W, park_limit: Duration, stopper: &StopFlag) -> bool {
    let mut woken = false;
    let timeout = Timespec::try_from(park_limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    task.with_descriptors(&mut |descriptors| {
        let count = descriptors.len();
        assert!(count < ProgressThread::DESCRIPTORS_MAX, "{count} descriptors exceed the limit of a progress thread");
        let mut watched: [PollFd<'_>; ProgressThread::DESCRIPTORS_MAX] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(stopper.wake.as_fd(), PollFlags::IN));
        for (slot, descriptor) in watched.iter_mut().zip(descriptors) {
            *slot = PollFd::from_borrowed_fd(*descriptor, PollFlags::IN);
        }
        // An interrupted or failed sleep is a short sleep: the loop checks everything again.
        woken = !matches!(poll(&mut watched[..=count], Some(&timeout)), Ok(0));
    });
    woken
}

#[cfg(test)]
mod tests {
    use super::*;

    struct EventTask {
        event: OwnedFd,
        received: Arc<AtomicBool>,
    }

    impl ProgressTask for EventTask {
        fn poll(&mut self) -> usize {
            let mut count = [0; 8];
            match rustix::io::read(&self.event, &mut count) {
                Ok(_) => {
                    self.received.store(true, Ordering::Release);
                    1
                }
                Err(_) => 0,
            }
        }
        fn arm(&mut self) -> bool {
            true
        }
        fn disarm(&mut self) {}
        fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
            wait(&[self.event.as_fd()]);
        }
    }

    #[test]
    fn parked_thread_wakes_for_descriptor_and_stop() {
        // If this failed, an idle node would never answer its first request, or never end.
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let signal = event.try_clone().unwrap();
        let received = Arc::new(AtomicBool::new(false));
        let seen = received.clone();
        let config = IdleConfig {
            yield_after: Duration::ZERO,
            sleep_after: Duration::ZERO,
            sleep_max: Duration::from_secs(3600),
            ..IdleConfig::default()
        };
        let thread =
            ProgressThread::start("event", None, config, move || io::Result::Ok(EventTask { event, received }))
                .unwrap();
        std::thread::sleep(Duration::from_millis(20)); // long enough that it parks
        rustix::io::write(&signal, &1u64.to_ne_bytes()).unwrap();
        while !seen.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        thread.stop().unwrap();
    }

    #[test]
    fn task_setup_failure_is_returned_by_start() {
        // If this failed, a daemon would report "ready" without a running thread.
        let made = ProgressThread::start("none", None, IdleConfig::default(), || {
            Err::<EventTask, _>(io::Error::from(io::ErrorKind::PermissionDenied))
        });
        assert!(matches!(made, Err(RuntimeError::Setup(_))));
        let pinned = ProgressThread::start("pinned", Some(100_000), IdleConfig::default(), || {
            Err::<EventTask, _>(io::Error::from(io::ErrorKind::NotFound))
        });
        assert!(matches!(pinned, Err(RuntimeError::Pin { core: 100_000, .. })));
    }
}
