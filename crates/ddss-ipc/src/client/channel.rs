//! One thread's own road to the service and back.

use std::sync::Arc;
use std::time::Instant;

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use super::attachment::FreeChannels;
use crate::strategy::WaitClass;
use crate::transport::channel_transport::{ChannelTransport, WaitOutcome};

/// No more fits: reap first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lane already has {} requests under way", RING_SLOTS)]
pub struct ChannelFull;

/// What a lane keeps from one holder to the next.
pub(crate) struct ChannelState {
    pub(crate) index: u8,
    pub(crate) outstanding: usize,
    pub(crate) road: Box<dyn ChannelTransport>,
}

impl ChannelState {
    /// Throws away what an earlier holder left behind; true when nothing of it is under way any more.
    pub(crate) fn drain(&mut self) -> bool {
        while self.outstanding > 0 && self.road.take().is_some() {
            self.outstanding -= 1;
        }
        self.outstanding == 0
    }
}

/// One thread's own road to the service and back.
///
/// A lane is handed out once ([`Attachment::take_lane`](crate::Attachment::take_lane)) and goes back when it is
/// dropped. At most `RING_SLOTS` requests are under way on it. How requests and completions travel is the client's
/// [`Strategy`](crate::Strategy); the results are the same under each.
pub struct Channel {
    pool: Arc<FreeChannels>,
    /// Only `None` while it is being dropped.
    state: Option<ChannelState>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(mut state) = self.state.take() {
            state.road.disarm_async();
            self.pool.give_back(state);
        }
    }
}

impl Channel {
    pub(crate) fn new(pool: Arc<FreeChannels>, state: ChannelState) -> Self {
        Self { pool, state: Some(state) }
    }

    #[inline(always)]
    fn state(&mut self) -> &mut ChannelState {
        self.state.as_mut().expect("only drop takes the state")
    }

    #[inline(always)]
    fn state_ref(&self) -> &ChannelState {
        self.state.as_ref().expect("only drop takes the state")
    }

    /// Which lane of its client.
    pub fn index(&self) -> u8 {
        self.state_ref().index
    }

    /// How many requests are under way: submitted and not reaped.
    pub fn outstanding(&self) -> usize {
        self.state_ref().outstanding
    }

    /// Publishes a request (the low half of word 0 is overwritten). The service may see it at once, but one that
    /// sleeps is only woken by [`ring`](Self::ring).
    #[inline]
    pub fn submit(&mut self, entry: Entry) -> Result<(), ChannelFull> {
        let state = self.state();
        if state.outstanding == RING_SLOTS {
            return Err(ChannelFull);
        }
        state.road.submit(&entry);
        state.outstanding += 1;
        Ok(())
    }

    /// Wakes the service if it said that it sleeps. Call it once after the last of a batch of submits.
    #[inline]
    pub fn ring(&mut self) {
        self.state().road.ring();
    }

    /// Whether the caller is on the service's core.
    pub fn is_beside_service(&self) -> bool {
        self.state_ref().road.link().shared_core().is_some()
    }

    /// For a caller beside the service who is about to do something else than wait: the service gets the core first, so that
    /// what was submitted is under way meanwhile.
    pub fn let_service_go_first(&self) {
        rustix::thread::sched_yield();
    }

    /// Takes a completion, if one is there.
    #[inline]
    pub fn reap(&mut self) -> Option<Entry> {
        let state = self.state();
        if state.outstanding == 0 {
            return None;
        }
        let entry = state.road.take()?;
        state.outstanding -= 1;
        Some(entry)
    }

    /// Whether [`reap`](Self::reap) has something. Under `Mq` and `Rmq` this may ask the kernel.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        let state = self.state();
        state.outstanding > 0 && state.road.is_ready()
    }

    /// Waits for a completion the way that the client's strategy and the operation's class say.
    pub fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        self.state().road.wait(class, deadline)
    }

    /// Says that a task waits for this lane: from now on a completion makes
    /// [`async_descriptor`](crate::Attachment::async_descriptor) readable. False when a completion is there already,
    /// and then nothing was said.
    pub fn arm_async(&mut self) -> bool {
        let state = self.state();
        state.outstanding == 0 || state.road.arm_async()
    }

    /// Says that no task waits any more. The waiting task calls it when it runs again.
    pub fn disarm_async(&mut self) {
        self.state().road.disarm_async();
    }
}
