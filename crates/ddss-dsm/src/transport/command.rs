//! Calls of the application, and their results.

use crate::sys::Fault;
use ddss_dsm_core::limits::INDEX_END;
use ddss_dsm_core::{Failure, Homes, PageRange, Rank, Request, Statistics};
use ddss_group::RowError;
use std::io;
use std::ops::Range;
use std::sync::mpsc::Sender;

/// Indices from here on are not the application's.
pub(crate) const OWN_INDICES: u32 = INDEX_END - 2;
/// Call of the application.
#[derive(Debug)]
pub(crate) enum Call {
    /// A request of the engine.
    Engine(Request),
    /// Assigns the homes of a region.
    AssignHomes { pages: PageRange, homes: Homes },
    /// Reads the counters of this rank.
    Statistics,
    /// Notes what the application has read since its last call that synchronises.
    Reads(Vec<Range<u64>>),
    /// Completes when all ranks are connected.
    Ready,
    /// Waits until all ranks leave.
    AwaitLeave,
    /// Tells the peers that this rank leaves.
    Leave,
    /// Asks for the process in the place of a rank.
    Run(Rank),
}

/// Result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Value(u64),
    Statistics(Box<Statistics>),
}

/// Result as the application gets it.
pub(crate) type Answer = Result<Reply, Failure>;

/// Reason of this rank for the end of the space. The other ranks see that it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnEnd {
    /// A row of the directory is of another release.
    Unreadable(RowError),
    /// The trace cannot be written.
    Untraced(io::ErrorKind),
}

/// Call with the way back.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) call: Call,
    pub(crate) reply: Sender<Answer>,
}

/// Receiver of an answer.
#[derive(Debug)]
pub(super) enum Caller {
    Application(Sender<Answer>),
    /// A thread that waits at a page.
    Fault(Fault),
}
