//! The end of a node that was told to stop: nothing new is begun, and what is under way ends.
//!
//! ```text
//!   Serving ── asked ─► LastLook ── rings empty, or some rounds ─► Refusing ── all answered, or no time left (Late) ─► Over
//! ```
//!
//! What lies in a ring when the word comes was asked before it, and is begun. From then on a request is answered as
//! *going down*: it certainly did nothing. One kind is begun all the same: a lock that is let go is what others wait for.

use super::executor::ActionExecutor;
use ddss_core::{BadRequest, ChannelId, Completion, Entry, Failure, Operation, Outcome, Request};
use ddss_ipc::{IpcServer, RequestHandler, TracedRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The word to stop, on its way from whoever was told to each progress thread, and back. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicBool,
    hurry: AtomicBool,
    /// Progress threads that have not come to the end of it.
    at_it: AtomicUsize,
    /// Requests that were not answered when their thread did.
    cut_short: AtomicUsize,
}

impl Drain {
    /// Nothing new, from now on.
    pub(crate) fn ask(&self) {
        self.0.asked.store(true, Ordering::Release);
    }

    /// There is no time left.
    pub(crate) fn hurry(&self) {
        self.0.hurry.store(true, Ordering::Release);
    }

    /// Whether every progress thread has come to the end of it.
    pub(crate) fn is_over(&self) -> bool {
        self.0.at_it.load(Ordering::Acquire) == 0
    }

    /// Requests that found no end in time.
    pub(crate) fn cut_short(&self) -> usize {
        self.0.cut_short.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    /// So many rounds more at the most.
    LastLook(u32),
    /// Since when nobody has asked for anything, and everything is answered.
    Refusing(Option<Instant>),
    /// The time is over, and all who waited for another were told.
    Late,
    Over,
}

/// How far one progress thread is with it.
#[derive(Debug)]
pub(crate) struct DrainState {
    drain: Drain,
    stage: Stage,
}

impl DrainState {
    /// In so many rounds every request is taken that full rings of all clients can hold.
    const LAST_ROUNDS: u32 = 4096;
    /// Whoever calls again and again does so once more within this time, and is told; else it would find the end of its
    /// socket, and could not know whether its call was begun.
    const LINGER: Duration = Duration::from_millis(10);

    pub(crate) fn new(drain: Drain) -> Self {
        drain.0.at_it.fetch_add(1, Ordering::Relaxed);
        Self { drain, stage: Stage::Serving }
    }

    /// Whether there is anything to do about it.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.drain.0.asked.load(Ordering::Relaxed)
    }

    /// Whether requests that come now are refused.
    pub(crate) fn refuses(&self) -> bool {
        !matches!(self.stage, Stage::Serving | Stage::LastLook(_))
    }

    /// Goes on with it, once a round. True if the engine has something to say.
    pub(crate) fn go_on(&mut self, station: &mut IpcServer, hands: &mut ActionExecutor) -> bool {
        let hurry = self.drain.0.hurry.load(Ordering::Acquire);
        match self.stage {
            Stage::Serving => {
                station.warm_ready_channels();
                self.stage = Stage::LastLook(Self::LAST_ROUNDS);
            }
            Stage::LastLook(rounds) if rounds == 0 || hurry || !station.has_requests() => {
                self.stage = Stage::Refusing(None);
                hands.engine.fail_waiters(hands.now, false);
                return true;
            }
            Stage::LastLook(rounds) => {
                station.warm_ready_channels();
                self.stage = Stage::LastLook(rounds - 1);
            }
            Stage::Refusing(_) if hurry => {
                self.stage = Stage::Late;
                // Whoever still waits for another has certainly done nothing.
                hands.engine.fail_waiters(hands.now, true);
                return true;
            }
            Stage::Refusing(quiet) => {
                let now = Instant::now();
                let since = quiet.unwrap_or(now);
                let is_quiet = !station.is_busy() && station.is_settled();
                self.stage = Stage::Refusing(is_quiet.then_some(since));
                if is_quiet && now - since >= Self::LINGER {
                    self.end(station);
                }
            }
            Stage::Late => self.end(station),
            Stage::Over => {}
        }
        false
    }

    fn end(&mut self, station: &IpcServer) {
        self.stage = Stage::Over;
        self.drain.0.cut_short.fetch_add(station.requests_in_flight(), Ordering::Relaxed);
        self.drain.0.at_it.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for DrainState {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.drain.0.at_it.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Serves those that come too late.
pub(crate) struct Refusing<'a>(pub(crate) &'a mut ActionExecutor);

impl RequestHandler for Refusing<'_> {
    fn handle(&mut self, lane: ChannelId, entry: &Entry, followed: Option<TracedRequest>) -> Option<Entry> {
        match Request::decode(entry) {
            Ok(Request { operation: Operation::Unlock { .. }, .. }) => self.0.handle(lane, entry, followed),
            Ok(Request { id, .. }) | Err(BadRequest { id, .. }) => {
                Some(Completion::bare(id, Outcome::Failed(Failure::GoingDown)).encode())
            }
        }
    }

    fn after_reply(&mut self, lane: ChannelId, entry: &Entry, reply: &Entry, followed: Option<TracedRequest>) {
        self.0.after_reply(lane, entry, reply, followed);
    }
}
