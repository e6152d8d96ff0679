//! Errors of a space.

use crate::fault::PageFaults;
use crate::sys::Refused;
use ddss_dsm_core::{ConfigError, Failure, SettingsError};
use ddss_group::{JoinError, RowError};
use ddss_runtime::RuntimeError;
use ddss_verbs::FabricError;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Error of a call. After the first lost rank every call fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The space has ended, or the call does not fit the earlier ones.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The directory of the space cannot be joined.
    #[error(transparent)]
    Join(JoinError),
    /// The space was made by another release.
    #[error("{row}; `ddss dsm rm {space}` removes it")]
    OtherRelease {
        /// Name of the space.
        space: String,
        /// Row of its directory.
        row: RowError,
    },
    /// The space has other settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A setting is outside its limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A range is outside the space.
    #[error("bytes {offset} to {end} are outside the space, which has {bytes}")]
    OutOfRange {
        /// Begin of the range.
        offset: u64,
        /// End of the range.
        end: u128,
        /// Bytes of the space.
        bytes: u64,
    },
    /// The program was not started as a rank.
    #[error("{0} is not set or unknown: start this program with `ddss dsm run -n 4 -- PROGRAM`")]
    NotLaunched(&'static str),
    /// Elements are outside the region, or the range has none.
    #[error("elements {start} to {end} are none of the region, which has {len}")]
    OutOfRegion {
        /// First element.
        start: usize,
        /// Behind the last element.
        end: usize,
        /// Elements of the region.
        len: usize,
    },
    /// The region belongs to another space of this process.
    #[error("the region belongs to another space: open it in this one")]
    OtherSpace,
    /// Another view of the same bytes lives, and one of the two writes.
    #[error("a view of bytes {start} to {end} of the space lives, and one of the two writes: drop it first")]
    Borrowed {
        /// First byte of the other view.
        start: u64,
        /// Behind its last byte.
        end: u64,
    },
    /// The rank has joined without page faults.
    #[error("this rank has joined without page faults: set `SpaceOptions::page_faults`, or use views")]
    NoPageFaults,
    /// Page faults cannot be used.
    #[error("cannot use page faults ({0}): `ddss doctor` says what works here; views need none")]
    PageFaults(PageFaults, #[source] io::Error),
    /// Too many views live.
    #[error("4096 views of this rank live: drop some")]
    ViewsFull,
    /// The name of a region is empty or too long.
    #[error("the name of a region has 1 to {max} bytes, and this one {bytes}")]
    RegionName {
        /// Bytes of the name.
        bytes: usize,
        /// Bytes at most.
        max: usize,
    },
    /// The region has other elements or homes.
    #[error("region {region} has {theirs} {what}, and this rank asks for {ours}: ask for the same")]
    RegionMismatch {
        /// Name of the region.
        region: String,
        /// Property that differs.
        what: &'static str,
        /// Value of the region.
        theirs: u64,
        /// Value of this rank.
        ours: u64,
    },
    /// The region has elements of another type, which have the same size.
    #[error("region {region} has elements of another type of the same size: ask for the same type on all ranks")]
    RegionType {
        /// Name of the region.
        region: String,
    },
    /// The space has no room for the region, or the region has no element.
    #[error("no room for region {region}: {asked} bytes of {left} left; join with more bytes on all ranks")]
    NoRoom {
        /// Name of the region.
        region: String,
        /// Bytes of the region.
        asked: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// There are too many regions.
    #[error("no room for another region: a space has {max}")]
    RegionsFull {
        /// Regions at most.
        max: usize,
    },
    /// The other ranks have lost this one.
    #[error(
        "the other ranks have lost this one, which was stopped or cut off for longer than its lease, and the space has ended: restart from a checkpoint"
    )]
    PlaceLost,
    /// Ranks are missing.
    #[error(
        "not all of the {ranks} ranks have come within {waited:?}: start the others, raise the timeout, or let ranks on several nodes listen on addresses of theirs"
    )]
    Missing {
        /// Ranks of the space.
        ranks: u16,
        /// Time of the wait.
        waited: Duration,
    },
    /// The other ranks did not do their part in time. The space has ended, for all of them: the call could still take effect
    /// beside later ones. The failure is the same at all ranks.
    #[error("no result within {0:?}: {1}")]
    TimedOut(Duration, Failure),
    /// This rank could not write its part of a checkpoint. The checkpoint before it stays, and the space goes on.
    #[error("the checkpoint of step {step} was not written, and the one before it stays: {reason}")]
    CheckpointFailed {
        /// Step of the program.
        step: u64,
        /// Error of the client, or of the system.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Other ranks could not write their parts of a checkpoint. The checkpoint before it stays, and the space goes on.
    #[error(
        "the checkpoint of step {step} was not written, and the one before it stays: {ranks} of the others say why"
    )]
    CheckpointRefused {
        /// Step of the program.
        step: u64,
        /// Number of ranks that could not write.
        ranks: u64,
    },
    /// The checkpoint is one of another space.
    #[error(
        "the checkpoint has {theirs} {what}, and this space {ours}: start with the same, or remove it with `ddss dsm rm`"
    )]
    CheckpointMismatch {
        /// Property that differs.
        what: &'static str,
        /// Value of the checkpoint.
        theirs: u64,
        /// Value of this space.
        ours: u64,
    },
    /// The checkpoint cannot be read, or not be released.
    #[error("cannot read the checkpoint: {0}")]
    CheckpointUnreadable(Box<dyn std::error::Error + Send + Sync>),
    /// No checkpoint is complete at all ranks.
    #[error("no checkpoint of this space can be read by all ranks: remove it with `ddss dsm rm`, and start again")]
    CheckpointDamaged,
    /// The service thread has ended.
    #[error("the service thread of this rank has ended: see the message of its panic")]
    Ended,
    /// The service thread cannot start.
    #[error(transparent)]
    Thread(#[from] RuntimeError),
    /// The fabric refused an operation.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The trace of this rank cannot be written.
    #[error("cannot write the trace of this rank: make room for it, or run without --check")]
    Trace(#[source] io::Error),
    /// The memory of the space cannot be made.
    #[error("cannot make the memory of the space")]
    Memory(#[source] io::Error),
    /// A system call failed.
    #[error("a system call failed")]
    System(#[source] io::Error),
}

impl From<Refused> for SpaceError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Borrowed(Range { start, end }) => Self::Borrowed { start, end },
            Refused::Full => Self::ViewsFull,
            Refused::NoFaults => Self::NoPageFaults,
            // It was open: the space ended meanwhile.
            Refused::Closed => Self::Ended,
        }
    }
}
