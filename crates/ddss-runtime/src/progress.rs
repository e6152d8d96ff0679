//! The thread itself, and how it is stopped.

use crate::affinity::pin_to;
use crate::idle_strategy::{IdleAction, IdleConfig, IdleStrategy, YieldTo};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a progress thread drives.
pub trait Work {
    /// Does a bounded part of what there is; says how much it did.
    fn poll(&mut self) -> usize;
    /// Whether the last poll was of use to others, though it counted nothing: they will most likely come again.
    fn is_of_use(&self) -> bool {
        false
    }
    /// Whether somebody on this core goes on working while this thread works for him, as of the last poll.
    fn has_company(&mut self) -> bool {
        false
    }
    /// Whether somebody on this core has what he waits for, and yields until he is let in. `idle`: there is nothing else to do
    /// right now.
    fn owes_core(&mut self, idle: bool) -> bool {
        let _ = idle;
        false
    }
    /// Who may have been let in by the yield that is just over, and is no stranger.
    fn let_in(&mut self) -> YieldTo {
        YieldTo::Nobody
    }
    /// Says whenever it changes whether nobody is known to want this core who does not wait for this thread; at first nobody is.
    fn set_core_unwanted(&mut self, unwanted: bool) {
        let _ = unwanted;
    }
    /// The thread wants to sleep: tell everyone who could bring work, then look once more. `false` if there is
    /// some; then nobody was left thinking that the thread sleeps.
    fn arm(&mut self) -> bool;
    /// The thread is awake again.
    fn disarm(&mut self);
    /// Hands over the descriptors that become readable when work comes.
    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>]));
    /// How long it spins after the last thing it did, if that depends on whom it works for; `usual` is what the
    /// [`IdleConfig`] says.
    fn spin(&self, usual: Duration) -> Duration {
        usual
    }
    /// How long it may sleep at the most.
    fn nap(&self) -> Duration {
        Duration::MAX
    }
    /// The thread is about to end.
    fn finish(&mut self) {}
}

/// What can go wrong with the thread itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// It could not be started.
    #[error("cannot start the progress thread {name}")]
    Start {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot run where it was told to.
    #[error("cannot pin the progress thread to core {core}: is it among the cores of this process (taskset -p)?")]
    Pin {
        /// The core.
        core: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What it should drive could not be set up.
    #[error("cannot set up the work of the progress thread")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It panicked.
    #[error("the progress thread panicked")]
    Panicked,
}

#[derive(Debug)]
struct StopFlag {
    asked: AtomicBool,
    wake: OwnedFd,
}

/// Asks a progress thread to stop; from any thread, any number of times.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<StopFlag>);

impl Stopper {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(StopFlag { asked: AtomicBool::new(false), wake })))
    }

    /// Asks.
    pub fn stop(&self) {
        // pairs with the Acquire in `asked`
        self.0.asked.store(true, Ordering::Release);
        // A full counter is as readable as a fresh one, so an error changes nothing.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    fn asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// A running progress thread.
#[derive(Debug)]
pub struct ProgressThread {
    stopper: Stopper,
    handle: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Descriptors of its work that are watched while it sleeps.
    pub const DESCRIPTORS_MAX: usize = 16;

    /// Starts the thread, pins it, and makes its work there; returns when that stands or has failed.
    pub fn start<W: Work + 'static, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        name: &str,
        core: Option<usize>,
        pace: IdleConfig,
        make: impl FnOnce() -> Result<W, E> + Send + 'static,
    ) -> Result<Self, RuntimeError> {
        let start_error = |source| RuntimeError::Start { name: name.to_owned(), source };
        let stopper = Stopper::new().map_err(start_error)?;
        let (tell, told) = mpsc::sync_channel(1);
        let theirs = stopper.clone();
        let body = move || {
            let pinned = core.map_or(Ok(()), |core| pin_to(core).map_err(|source| RuntimeError::Pin { core, source }));
            match pinned.and_then(|()| make().map_err(|error| RuntimeError::Setup(error.into()))) {
                Ok(mut work) => {
                    let _ = tell.send(Ok(()));
                    drive(&mut work, pace, &theirs);
                    work.finish();
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        };
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(start_error)?;
        told.recv().unwrap_or(Err(RuntimeError::Panicked))?;
        Ok(Self { stopper, handle: Some(handle) })
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| !handle.is_finished())
    }

    /// Stops it and waits for its end.
    pub fn stop(mut self) -> Result<(), RuntimeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), RuntimeError> {
        self.stopper.stop();
        match self.handle.take() {
            Some(handle) => handle.join().map_err(|_| RuntimeError::Panicked),
            None => Ok(()),
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        // A panic was reported where it happened; there is nobody to tell here.
        let _ = self.end();
    }
}

fn drive<W: Work>(work: &mut W, pace: IdleConfig, stopper: &Stopper) {
    let mut pacer = IdleStrategy::new(pace);
    let mut wanted = false;
    work.set_core_unwanted(true);
    while !stopper.asked() {
        let worked = work.poll() > 0;
        if work.owes_core(!worked) {
            hand_over(&mut pacer);
        }
        if worked {
            pacer.worked();
            if work.has_company() {
                pacer.has_company();
            }
            continue;
        }
        if work.is_of_use() {
            pacer.was_of_use();
        }
        match pacer.idle(|usual| work.spin(usual)) {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => {
                let began = Instant::now();
                std::thread::yield_now();
                let now = Instant::now();
                pacer.yielded(now, now.duration_since(began), work.let_in());
            }
            IdleAction::Park => {
                let overslept = work.arm() && {
                    let woken = park(work, work.nap().min(pace.nap_max), stopper);
                    work.disarm();
                    !woken
                };
                if overslept { pacer.overslept() } else { pacer.rested() }
            }
        }
        if wanted != pacer.is_core_wanted() {
            wanted = !wanted;
            work.set_core_unwanted(!wanted);
        }
    }
}

/// Lets in who waits on this core, unless somebody kept it for long of late.
fn hand_over(pacer: &mut IdleStrategy) {
    let mut began = Instant::now();
    // The scheduler may find that this thread comes first all the same.
    for _ in 0..IdleStrategy::HAND_OVERS_MAX {
        if pacer.is_hogged(began) {
            return;
        }
        std::thread::yield_now();
        let now = Instant::now();
        if pacer.handed_over(now, now.duration_since(began)) {
            return;
        }
        began = now;
    }
}

/// Sleeps until a descriptor is readable, somebody stops the thread, or the time is over; false if it is over.
fn park<W: Work>(work: &W, nap: Duration, stopper: &Stopper) -> bool {
    let mut woken = false;
    let timeout = Timespec::try_from(nap).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    work.with_descriptors(&mut |descriptors| {
        let count = descriptors.len();
        assert!(count < ProgressThread::DESCRIPTORS_MAX, "{count} descriptors are more than a thread watches");
        let mut watched: [PollFd<'_>; ProgressThread::DESCRIPTORS_MAX] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(stopper.0.wake.as_fd(), PollFlags::IN));
        for (slot, descriptor) in watched.iter_mut().zip(descriptors) {
            *slot = PollFd::from_borrowed_fd(*descriptor, PollFlags::IN);
        }
        // An interrupted or failed sleep is a short sleep: the loop looks at everything again.
        woken = !matches!(poll(&mut watched[..=count], Some(&timeout)), Ok(0));
    });
    woken
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Doorbell {
        bell: OwnedFd,
        rung: Arc<AtomicBool>,
    }

    impl Work for Doorbell {
        fn poll(&mut self) -> usize {
            let mut count = [0; 8];
            match rustix::io::read(&self.bell, &mut count) {
                Ok(_) => {
                    self.rung.store(true, Ordering::Release);
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
            wait(&[self.bell.as_fd()]);
        }
    }

    #[test]
    fn a_parked_thread_hears_its_doorbell_and_its_stop() {
        // If this broke, an idle node would never answer its first request, or never end.
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let ring = bell.try_clone().unwrap();
        let rung = Arc::new(AtomicBool::new(false));
        let seen = rung.clone();
        let pace =
            IdleConfig { spin: Duration::ZERO, yields: 0, nap_max: Duration::from_secs(3600), ..IdleConfig::default() };
        let thread =
            ProgressThread::start("bell", None, pace, move || io::Result::Ok(Doorbell { bell, rung })).unwrap();
        std::thread::sleep(Duration::from_millis(20)); // long enough that it parks
        rustix::io::write(&ring, &1u64.to_ne_bytes()).unwrap();
        while !seen.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        thread.stop().unwrap();
    }

    #[test]
    fn work_that_cannot_be_made_is_an_error_and_not_a_dead_thread() {
        // If this broke, a daemon would say "ready" with nobody behind it.
        let made = ProgressThread::start("none", None, IdleConfig::default(), || {
            Err::<Doorbell, _>(io::Error::from(io::ErrorKind::PermissionDenied))
        });
        assert!(matches!(made, Err(RuntimeError::Setup(_))));
        let pinned = ProgressThread::start("far", Some(100_000), IdleConfig::default(), || {
            Err::<Doorbell, _>(io::Error::from(io::ErrorKind::NotFound))
        });
        assert!(matches!(pinned, Err(RuntimeError::Pin { core: 100_000, .. })));
    }
}
