//! The thread that waits on behalf of tasks: for completions that no task collected by polling, and for deadlines.

use crate::reactor::shared_channel::{OPEN, SharedChannel};
use crate::session::Session;
use ddss_core::{LockToken, SegmentId};
use ddss_ipc::lock_free::{Lent, LentThread, ProcessByte};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Handle of the reactor thread. The thread ends with the last handle.
pub(crate) struct Reactor {
    pub(crate) channel: Arc<SharedChannel>,
    /// Session whose channel the reactor serves.
    pub(crate) session: Arc<Session>,
    kick: PipeWriter,
    thread: LentThread<Served>,
}

/// Session and channel that the thread serves. The channel is there before its first turn.
struct Served {
    session: Arc<Session>,
    channel: OnceLock<Arc<SharedChannel>>,
}

impl Reactor {
    /// Starts the reactor of a session. After an error the next call may try again.
    pub(crate) fn start(session: Arc<Session>) -> std::io::Result<Self> {
        let ((kicked, kick), state) = (pipe()?, ProcessByte::new(OPEN)?);
        let (give, given) = sync_channel(1);
        let builder = std::thread::Builder::new().name("ddss-reactor".to_owned());
        let served = Served { session: Arc::clone(&session), channel: OnceLock::new() };
        let thread = LentThread::start(builder, served, move |served, lent| {
            if let Ok(()) = given.recv()
                && let Some(channel) = served.channel.get()
            {
                run(&served.session, channel, kicked, lent);
            }
        })?;
        // The session has one channel for tasks, so it is taken after all that can fail.
        let no_channel = || std::io::Error::other("the daemon gave this client no channel for tasks");
        let (channel, runs) = session.channels.take_task_channel().ok_or_else(no_channel)?;
        let channel = Arc::new(SharedChannel::new(channel, session.channels.arena().clone(), runs, state));
        let _ = thread.value().channel.set(Arc::clone(&channel));
        give.send(()).expect("the thread waits for its channel");
        Ok(Self { channel, session, kick, thread })
    }

    /// Wakes the thread if it sleeps beyond a new call's deadline.
    pub(crate) fn wake_if_needed(&self, deadline: Instant) {
        if self.channel.needs_reactor(deadline) {
            self.wake();
        }
    }

    /// Releases a lock whose guard was dropped.
    pub(crate) fn release_lock(&self, segment: SegmentId, token: LockToken) {
        if !self.channel.release_lock(segment, token) {
            self.wake();
        }
    }

    /// Wakes the thread, which then checks all its work and continues as often as needed.
    pub(crate) fn wake(&self) {
        // The pipe is full only if the thread has not yet handled the earlier wake-ups.
        let _ = (&self.kick).write(&[1]);
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if self.thread.end().is_some() {
            self.wake();
        }
    }
}

fn run(session: &Session, channel: &SharedChannel, mut kicked: PipeReader, lent: &Lent<Served>) {
    /// Minimum interval between checks for deadlines alone.
    const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(1);
    /// Time that the thread continues without tasks while locks have yet to be released.
    const LINGER: Duration = Duration::from_secs(1);
    let (mut alive, mut end) = (true, None);
    loop {
        let mut next = channel.turn(alive);
        if lent.is_over() {
            let end = *end.get_or_insert_with(|| Instant::now() + LINGER);
            if Instant::now() >= end || !channel.has_pending_releases() {
                return;
            }
            next = Some(Instant::now() + DEADLINE_CHECK_INTERVAL);
        }
        let left = next.map(|next| next.saturating_duration_since(Instant::now()).max(DEADLINE_CHECK_INTERVAL));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut watched = [
            PollFd::from_borrowed_fd(kicked.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(session.attachment.async_descriptor(), PollFlags::IN),
        ];
        // A dead daemon leaves its socket readable forever: from then on only the wake-up pipe counts.
        let watched = if alive { &mut watched[..] } else { &mut watched[..1] };
        // An interrupted sleep counts as a short sleep.
        let _ = poll(watched, timeout.as_ref());
        let was_kicked = watched[0].revents().contains(PollFlags::IN);
        if was_kicked {
            // At least one byte is present, so this read does not block.
            let _ = kicked.read(&mut [0; 64]);
        }
        alive = alive && session.attachment.clear_async();
    }
}
