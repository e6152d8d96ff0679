//! Choice between the two ways to wait on a ring.

use std::time::Instant;

use super::adaptive::AdaptiveWait;
use super::spin_then_park;
use crate::connection::Connection;
use crate::strategy::{Strategy, WaitClass, WaitMode};
use crate::transport::channel_transport::WaitOutcome;
use crate::transport::ring_ends::RingEnds;
use crate::wait::config::WAIT;

/// How the client of one channel waits for a reply.
pub(crate) struct WaitPolicy {
    mode: WaitMode,
    /// The strategy is `Rcq`: the client polls, and does not sleep.
    is_polling: bool,
    adaptive: AdaptiveWait,
}

impl WaitPolicy {
    pub(crate) fn new(strategy: Strategy, mode: WaitMode) -> Self {
        Self { mode, is_polling: strategy == Strategy::Rcq, adaptive: AdaptiveWait::new() }
    }

    /// Returns true if each calling thread of this user has a core, as far as is known.
    #[inline]
    fn has_own_core(&self, connection: &Connection) -> bool {
        match self.mode {
            WaitMode::ByCores => connection.cores() >= WAIT.many_cores && !connection.is_oversubscribed(),
            WaitMode::SpinThenPark => true,
            WaitMode::Adaptive => false,
        }
    }

    /// Waits for the next completion.
    pub(crate) fn wait(&mut self, ends: &mut RingEnds, class: WaitClass, deadline: Instant) -> WaitOutcome {
        if self.has_own_core(ends.connection()) {
            return spin_then_park::wait(ends, self.is_polling, class, deadline);
        }
        if self.is_polling {
            self.adaptive.wait_polling(ends, class, deadline)
        } else {
            self.adaptive.wait_bounded(ends, class, deadline)
        }
    }
}
