//! The channel of one client thread to the service.

use std::sync::Arc;
use std::time::Instant;

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use super::free_channels::{ChannelState, FreeChannels};
use crate::strategy::WaitClass;
use crate::transport::channel_transport::WaitOutcome;

/// Error of a submit on a full channel: reap completions first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the channel already has {} requests in flight: reap first", RING_SLOTS)]
pub struct ChannelFull;

/// The channel of one client thread to the service.
///
/// Only one holder has a channel ([`Attachment::take_channel`](crate::Attachment::take_channel)); dropping returns it.
/// At most `RING_SLOTS` requests are in flight on it. The client's [`Strategy`](crate::Strategy) selects how requests
/// and completions travel; the results are the same under each.
pub struct Channel {
    pool: Arc<FreeChannels>,
    /// `None` only while the channel is being dropped.
    state: Option<ChannelState>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(mut state) = self.state.take() {
            // The ring of a parent is armed for a thread of the parent.
            if !state.transport.connection().is_inherited() {
                state.transport.disarm_async();
            }
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

    /// Returns the index of the channel within its client.
    pub fn index(&self) -> u8 {
        self.state_ref().index
    }

    /// Returns the number of requests that are submitted and not reaped.
    pub fn outstanding(&self) -> usize {
        self.state_ref().outstanding
    }

    /// Publishes a request and overwrites the low half of its word 0. A polling service may see the request
    /// immediately; a sleeping one is woken only by [`ring_doorbell`](Self::ring_doorbell).
    #[inline]
    pub fn submit(&mut self, entry: Entry) -> Result<(), ChannelFull> {
        let state = self.state();
        if state.outstanding == RING_SLOTS {
            return Err(ChannelFull);
        }
        state.transport.submit(&entry);
        state.outstanding += 1;
        Ok(())
    }

    /// Wakes the service if it sleeps. Call it once after the last submit of a batch.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        self.state().transport.ring_doorbell();
    }

    /// Returns true if the caller runs on the service's core.
    pub fn is_on_service_core(&self) -> bool {
        self.state_ref().transport.connection().is_on_service_core()
    }

    /// Yields the shared core to the service. A caller that will do other work before it waits calls this, so that its
    /// requests are served meanwhile.
    pub fn yield_to_service(&self) {
        rustix::thread::sched_yield();
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub fn reap(&mut self) -> Option<Entry> {
        let state = self.state();
        if state.outstanding == 0 {
            return None;
        }
        let entry = state.transport.take()?;
        state.outstanding -= 1;
        Some(entry)
    }

    /// Returns true if [`reap`](Self::reap) would return a completion. Under `Mq` and `Rmq` this may make a system
    /// call.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        let state = self.state();
        state.outstanding > 0 && state.transport.is_ready()
    }

    /// Waits for a completion as the strategy and the class of the operation demand.
    pub fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        self.state().transport.wait(class, deadline)
    }

    /// Arms the channel for a task: the next completion makes [`async_descriptor`](crate::Attachment::async_descriptor)
    /// readable. Returns false, without arming, when a completion is already there.
    pub fn arm_async(&mut self) -> bool {
        let state = self.state();
        state.outstanding == 0 || state.transport.arm_async()
    }

    /// Disarms the channel. The waiting task calls this when it runs again.
    pub fn disarm_async(&mut self) {
        self.state().transport.disarm_async();
    }
}
