//! The interface of the four transports, from the client's side of a channel.

use std::time::Instant;

use ddss_core::Entry;

use crate::connection::Connection;
use crate::strategy::WaitClass;

/// Outcome of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// [`Channel::reap`](crate::Channel::reap) has a completion.
    Ready,
    /// The deadline has passed.
    TimedOut,
    /// The daemon is gone (or removed this client), and there is nothing left to reap.
    Gone,
}

/// One channel's transport under one strategy: [`Mq`](super::sysv::Mq), [`Rmq`](super::sysv::Rmq), or for `Rcq` and `Auto`
/// a [`RingTransport`](super::ring_transport::RingTransport).
///
/// The same calls have the same results under each; they differ in cost and in how each side waits. The
/// [`Channel`](crate::Channel) that owns a transport enforces the window: it never submits more than `RING_SLOTS`
/// entries beyond those it took.
pub(crate) trait ChannelTransport: Send {
    /// Sends a request. Never blocks and never fails: entries that do not fit wait on the client's side.
    fn submit(&mut self, entry: &Entry);

    /// Wakes the service if it sleeps.
    fn ring_doorbell(&mut self);

    /// Returns the state shared with the other channels of the client.
    fn connection(&self) -> &Connection;

    /// Takes the next completion, if there is one.
    fn take(&mut self) -> Option<Entry>;

    /// Returns true if [`take`](Self::take) would return a completion.
    fn is_ready(&mut self) -> bool;

    /// Waits for the next completion.
    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome;

    /// Makes the client's socket readable at the next completion. Returns false, without effect, when there is one
    /// already.
    fn arm_async(&mut self) -> bool;

    /// Reverts [`arm_async`](Self::arm_async).
    fn disarm_async(&mut self);
}
