//! Events of a run.

use super::plan::{Fault, Member};
use ddss_river_core::Taken;

/// A message of one process to another.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: Member,
    pub(crate) to: Member,
    /// Number of the connection.
    pub(crate) epoch: u32,
    pub(crate) bytes: Vec<u8>,
    /// Slot of the ring, and the content that is written there before the message.
    pub(crate) write: Option<(u16, u64)>,
}

/// Something that happens to one process.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A source has made the message in a send slot.
    Made(u16, u16),
    /// A consumer's program begins.
    Start(u16),
    /// A consumer has processed a message.
    Processed(u16, Taken),
    /// A message arrives.
    Arrive(Transfer),
    /// A process notices that its connection has ended.
    NoticeLoss { at: Member, peer: Member, epoch: u32 },
    /// A process learns that another is dead.
    NoticeDeath { at: Member, of: Member },
    /// A process learns that it was declared dead.
    NoticeFence(Member),
    /// Two processes connect.
    Connect(u16, u16),
    /// The coordinator declares a process dead.
    Declare(Member),
    /// The peers of a stopped process end their connections.
    Stall(Member),
    /// A stopped process runs again.
    Resume(Member),
    /// Something goes wrong.
    Fault(Fault),
}

impl Event {
    /// Returns the process that handles the event. A stopped process handles it later.
    pub(crate) fn target(&self) -> Option<Member> {
        match self {
            Self::Made(producer, _) => Some(Member::Producer(*producer)),
            Self::Start(consumer) | Self::Processed(consumer, _) => Some(Member::Consumer(*consumer)),
            Self::Arrive(transfer) => Some(transfer.to),
            Self::NoticeLoss { at, .. } | Self::NoticeDeath { at, .. } | Self::NoticeFence(at) => Some(*at),
            Self::Connect(..) | Self::Declare(_) | Self::Stall(_) | Self::Resume(_) | Self::Fault(_) => None,
        }
    }

    /// Returns a number for the trace.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Made(producer, place) => u64::from(*producer) << 16 | u64::from(*place),
            Self::Start(consumer) => 1 << 32 | u64::from(*consumer),
            Self::Processed(consumer, taken) => 2 << 32 | u64::from(*consumer) << 16 | taken.header.attempt.index,
            Self::Arrive(transfer) => 3 << 32 | transfer.bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
            Self::NoticeLoss { epoch, .. } => 4 << 32 | u64::from(*epoch),
            Self::NoticeDeath { .. } => 5 << 32,
            Self::NoticeFence(_) => 6 << 32,
            Self::Connect(producer, consumer) => 7 << 32 | u64::from(*producer) << 16 | u64::from(*consumer),
            Self::Declare(_) => 8 << 32,
            Self::Stall(_) => 9 << 32,
            Self::Resume(_) => 10 << 32,
            Self::Fault(_) => 11 << 32,
        }
    }
}
