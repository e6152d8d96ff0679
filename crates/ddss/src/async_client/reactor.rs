//! The thread that waits on behalf of tasks: for completions that came after they had stopped looking, and for
//! deadlines.

use super::dispatcher::Dispatcher;
use crate::session::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the handles of an asynchronous client hold; with the last of them the thread ends.
pub(super) struct Reactor {
    pub(super) road: Arc<Dispatcher>,
    /// Whose lane it is on.
    pub(super) attached: Arc<Session>,
    kick: PipeWriter,
    stop: Arc<AtomicBool>,
}

impl Reactor {
    pub(super) fn start(attached: Arc<Session>, road: Dispatcher) -> std::io::Result<Self> {
        let (kicked, kick) = pipe()?;
        let road = Arc::new(road);
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped, whose) = (Arc::clone(&road), Arc::clone(&stop), Arc::clone(&attached));
        std::thread::Builder::new()
            .name("ddss-reactor".to_owned())
            .spawn(move || run(&whose, &theirs, kicked, &stopped))?;
        Ok(Self { road, attached, kick, stop })
    }

    /// A call is under way: a thread that sleeps without end has to know of its deadline.
    pub(super) fn mind(&self) {
        if self.road.minds() {
            self.wake();
        }
    }

    /// The thread looks at all that it minds, and from then on as often as that needs.
    pub(super) fn wake(&self) {
        // The pipe is full only if the thread has not yet woken up from the kicks before.
        let _ = (&self.kick).write(&[1]);
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}

fn run(attached: &Session, road: &Dispatcher, mut kicked: PipeReader, stopped: &AtomicBool) {
    /// Not more often than this for deadlines alone.
    const REST: Duration = Duration::from_millis(1);
    /// How long the thread goes on without tasks, if locks are still to be given back.
    const LINGER: Duration = Duration::from_secs(1);
    let (mut alive, mut end) = (true, None);
    loop {
        let mut next = road.turn(alive);
        if stopped.load(Ordering::Acquire) {
            let end = *end.get_or_insert_with(|| Instant::now() + LINGER);
            if Instant::now() >= end || !road.owes() {
                return;
            }
            next = Some(Instant::now() + REST);
        }
        let left = next.map(|next| next.saturating_duration_since(Instant::now()).max(REST));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut watched = [
            PollFd::from_borrowed_fd(kicked.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(attached.attachment.async_descriptor(), PollFlags::IN),
        ];
        // A daemon that is gone leaves its socket readable for ever: then only the kicks count.
        let watched = if alive { &mut watched[..] } else { &mut watched[..1] };
        // An interrupted sleep is a short sleep.
        let _ = poll(watched, timeout.as_ref());
        let was_kicked = watched[0].revents().contains(PollFlags::IN);
        if was_kicked {
            // At least one byte is there, so this does not block.
            let _ = kicked.read(&mut [0; 64]);
        }
        alive = alive && attached.attachment.clear_async();
    }
}
