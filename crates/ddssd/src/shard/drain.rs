//! Graceful shutdown of a shard: no new request begins, and pending ones finish.
//!
//! ```text
//!   Serving ── request ─► LastPoll ── rings empty, or LAST_ROUNDS ─► Refusing ── all answered, or no time left (Late) ─► Done
//! ```
//!
//! A request that is in a ring at the time of the stop was made before it, and is begun. Later requests fail with
//! *going down*: they certainly did nothing. The exception is an unlock, because other clients wait for it.

use super::executor::ActionExecutor;
use ddss_core::{BadRequest, ChannelId, Completion, Entry, Failure, Operation, Outcome, Request};
use ddss_ipc::{IpcServer, RequestHandler, TracedRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Stop request on its way from the node to each progress thread, and the result on its way back. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    is_expired: AtomicBool,
    /// Progress threads that have not finished draining.
    draining: AtomicUsize,
    /// Requests that were unanswered when their thread finished draining.
    unfinished: AtomicUsize,
}

impl Drain {
    /// Requests the drain: no new request begins from now on.
    pub(crate) fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
    }

    /// Ends the grace period.
    pub(crate) fn end_grace_period(&self) {
        self.0.is_expired.store(true, Ordering::Release);
    }

    /// Returns true when every progress thread has finished draining.
    pub(crate) fn is_over(&self) -> bool {
        self.0.draining.load(Ordering::Acquire) == 0
    }

    /// Returns the number of requests that did not finish in time.
    pub(crate) fn unfinished(&self) -> usize {
        self.0.unfinished.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    /// Remaining rounds, at most.
    LastPoll(u32),
    /// Time since when no request has come and all are answered.
    Refusing(Option<Instant>),
    /// The grace period is over, and all waiting operations have failed.
    Late,
    Done,
}

/// Drain progress of one progress thread.
#[derive(Debug)]
pub(crate) struct DrainState {
    drain: Drain,
    stage: Stage,
}

impl DrainState {
    /// Rounds that suffice to take every request that full rings of all clients hold.
    const LAST_ROUNDS: u32 = 4096;
    /// A client in a tight loop calls again within this time and gets an answer. Otherwise it would see its socket
    /// close, and could not know if its call was begun.
    const LINGER: Duration = Duration::from_millis(10);

    pub(crate) fn new(drain: Drain) -> Self {
        drain.0.draining.fetch_add(1, Ordering::Relaxed);
        Self { drain, stage: Stage::Serving }
    }

    /// Returns true if a drain was requested.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.drain.0.requested.load(Ordering::Relaxed)
    }

    /// Returns true if new requests are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        !matches!(self.stage, Stage::Serving | Stage::LastPoll(_))
    }

    /// Advances the drain, once a round. Returns true if the engine has actions to execute.
    pub(crate) fn advance(&mut self, server: &mut IpcServer, executor: &mut ActionExecutor) -> bool {
        let is_expired = self.drain.0.is_expired.load(Ordering::Acquire);
        match self.stage {
            Stage::Serving => {
                server.warm_ready_channels();
                self.stage = Stage::LastPoll(Self::LAST_ROUNDS);
            }
            Stage::LastPoll(rounds) if rounds == 0 || is_expired || !server.has_requests() => {
                self.stage = Stage::Refusing(None);
                executor.engine.fail_waiters(executor.clock.now(), false);
                return true;
            }
            Stage::LastPoll(rounds) => {
                server.warm_ready_channels();
                self.stage = Stage::LastPoll(rounds - 1);
            }
            Stage::Refusing(_) if is_expired => {
                self.stage = Stage::Late;
                // An operation that still waits for another client has certainly done nothing.
                executor.engine.fail_waiters(executor.clock.now(), true);
                return true;
            }
            Stage::Refusing(quiet) => {
                let now = Instant::now();
                let since = quiet.unwrap_or(now);
                let is_quiet = !server.is_busy() && server.is_settled() && executor.engine.parked() == 0;
                self.stage = Stage::Refusing(is_quiet.then_some(since));
                if is_quiet && now - since >= Self::LINGER {
                    self.end(server);
                }
            }
            Stage::Late => self.end(server),
            Stage::Done => {}
        }
        false
    }

    fn end(&mut self, server: &IpcServer) {
        self.stage = Stage::Done;
        self.drain.0.unfinished.fetch_add(server.requests_in_flight(), Ordering::Relaxed);
        self.drain.0.draining.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for DrainState {
    fn drop(&mut self) {
        if self.stage != Stage::Done {
            self.drain.0.draining.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Request handler during a drain: refuses everything but unlocks, and places for ended waits.
pub(crate) struct RefuseRequests<'a>(pub(crate) &'a mut ActionExecutor);

impl RequestHandler for RefuseRequests<'_> {
    fn handle(&mut self, channel: ChannelId, entry: &Entry, traced: Option<TracedRequest>) -> Option<Entry> {
        match Request::decode(entry) {
            Ok(Request { operation: Operation::Unlock { .. } | Operation::Collect, .. }) => {
                self.0.handle(channel, entry, traced)
            }
            Ok(Request { id, .. }) | Err(BadRequest { id, .. }) => {
                Some(Completion::bare(id, Outcome::Failed(Failure::GoingDown)).encode())
            }
        }
    }

    fn after_reply(&mut self, channel: ChannelId, entry: &Entry, reply: &Entry, traced: Option<TracedRequest>) {
        self.0.after_reply(channel, entry, reply, traced);
    }
}
