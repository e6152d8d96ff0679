//! The contract of the four strategies, from the client's side of a lane.

use std::time::Instant;

use ddss_core::Entry;

use crate::client::connection::Connection;
use crate::strategy::WaitClass;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// [`Lane::reap`](crate::Channel::reap) has something.
    Ready,
    /// The deadline came first.
    TimedOut,
    /// The daemon is gone (or cut this client off), and nothing is left to reap.
    Gone,
}

/// One lane's road to the service and back under one strategy: [`Mq`](super::sysv::Mq), [`Rmq`](super::sysv::Rmq),
/// [`Rcq`](super::ring_transport::Rcq) or [`Auto`](super::ring_transport::Auto).
///
/// The same calls have the same results under each; they differ in who pays for them and who waits how. The
/// [`Lane`](crate::Channel) that owns a road keeps the window: it never submits more than `RING_SLOTS` entries beyond
/// those it took.
pub(crate) trait ChannelTransport: Send {
    /// Sends a request. Never blocks, never fails: what does not fit yet waits on this side.
    fn submit(&mut self, entry: &Entry);

    /// Wakes the service if it sleeps.
    fn ring(&mut self);

    /// What it shares with the other lanes of its client.
    fn link(&self) -> &Connection;

    /// Takes the next completion, if it is there.
    fn take(&mut self) -> Option<Entry>;

    /// Whether [`take`](Self::take) would have something.
    fn is_ready(&mut self) -> bool;

    /// Waits for the next completion.
    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome;

    /// From now on the next completion makes the client's socket readable. False, and nothing said, when it is there.
    fn arm_async(&mut self) -> bool;

    /// Nobody waits at the socket any more.
    fn disarm_async(&mut self);
}
