//! Rings both ways: strategies `Rcq` and `Auto`, which differ in how the client waits.

use std::time::Instant;

use ddss_core::Entry;

use super::channel_transport::{ChannelTransport, WaitOutcome};
use super::ring_ends::RingEnds;
use super::waiter::Waiter;
use crate::connection::Connection;
use crate::strategy::WaitClass;

/// A ring, and how the client waits on it.
pub(crate) struct RingTransport {
    ends: RingEnds,
    waiter: Waiter,
}

impl RingTransport {
    pub(crate) fn new(ends: RingEnds, waiter: Waiter) -> Self {
        Self { ends, waiter }
    }
}

impl ChannelTransport for RingTransport {
    fn submit(&mut self, entry: &Entry) {
        self.ends.submit(entry);
    }

    fn ring_doorbell(&mut self) {
        self.ends.ring_doorbell();
    }

    fn connection(&self) -> &Connection {
        self.ends.connection()
    }

    fn take(&mut self) -> Option<Entry> {
        self.ends.take()
    }

    fn is_ready(&mut self) -> bool {
        self.ends.is_ready()
    }

    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        self.waiter.wait(&mut self.ends, class, deadline)
    }

    fn arm_async(&mut self) -> bool {
        self.ends.arm_async()
    }

    fn disarm_async(&mut self) {
        self.ends.disarm_async();
    }
}
