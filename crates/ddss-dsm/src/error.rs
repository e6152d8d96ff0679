//! Errors of a space.

use ddss_dsm_core::{ConfigError, Failure, SettingsError};
use ddss_group::JoinError;
use ddss_runtime::RuntimeError;
use ddss_verbs::FabricError;
use std::io;
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
    /// Ranks are missing.
    #[error("not all of the {ranks} ranks have come within {waited:?}: start the others, or raise the timeout")]
    Missing {
        /// Ranks of the space.
        ranks: u16,
        /// Time of the wait.
        waited: Duration,
    },
    /// The other ranks did not do their part in time. The space has ended, for all of them: the call could still take effect
    /// beside later ones.
    #[error(
        "no result within {0:?}, so the space has ended: another rank is late, or does not make the call that this one waits for"
    )]
    TimedOut(Duration),
    /// The service thread has ended.
    #[error("the service thread of this rank has ended: see the message of its panic")]
    Ended,
    /// The service thread cannot start.
    #[error(transparent)]
    Thread(#[from] RuntimeError),
    /// The fabric refused an operation.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The memory of the space cannot be made.
    #[error("cannot make the memory of the space")]
    Memory(#[source] io::Error),
    /// A system call failed.
    #[error("a system call failed")]
    System(#[source] io::Error),
}
