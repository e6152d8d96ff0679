//! What can go wrong, by the largest thing that is now broken: the call, then the attachment.

use ddss_core::{BadArgument, Completion, Failure, Outcome};
use ddss_ipc::{AttachError, UnknownStrategy};
use std::path::PathBuf;

/// Why a call did not return what it was asked for.
///
/// ```
/// use ddss::{Client, Error};
/// let error = Client::builder().folder("/nowhere").connect().expect_err("there is no daemon");
/// assert!(matches!(error, Error::NoDaemon { .. }));
/// assert!(error.to_string().contains("ddssd --dir /nowhere"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call certainly did nothing.
    #[error("cannot {action} {target}: {failure}")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// With what.
        target: String,
        /// Why not.
        failure: Failure,
    },
    /// The call may have happened. A get shows whether it did.
    #[error("nobody knows whether this happened: {action} {target}: {failure}")]
    Indeterminate {
        /// What was tried.
        action: &'static str,
        /// With what.
        target: String,
        /// What is known.
        failure: Failure,
    },
    /// The user has as much on that node as its quota allows. Nothing happened.
    #[error(
        "cannot {action} {target}: this user has {used} {} there and may have {allowed}: release some, or have the quota raised (ddssd --quota)",
        if *failure == Failure::QuotaBytes { "bytes of segments" } else { "segments" }
    )]
    OverQuota {
        /// What was tried.
        action: &'static str,
        /// With what.
        target: String,
        /// Which quota.
        failure: Failure,
        /// What the user has.
        used: u64,
        /// What it may have.
        allowed: u64,
    },
    /// An argument is out of its range. Nothing was asked of the daemon.
    #[error("cannot {action} {target}: {refused}")]
    BadArgument {
        /// What was tried.
        action: &'static str,
        /// With what.
        target: String,
        /// Which argument, its value, and its range.
        refused: BadArgument,
    },
    /// The range reaches beyond the segment.
    #[error("cannot {action} {target}: bytes {offset} to {end} of a segment of {bytes} bytes")]
    OutOfRange {
        /// What was tried.
        action: &'static str,
        /// With what.
        target: String,
        /// The first byte.
        offset: u64,
        /// One past the last byte.
        end: u128,
        /// The segment's size.
        bytes: u64,
    },
    /// The daemon of this node ended in the middle of the call, which may have happened. The next call goes to the daemon that
    /// takes its place.
    #[error("nobody knows whether this happened: the daemon at {} ended in the middle of it", path.display())]
    DaemonGone {
        /// Where it was.
        path: PathBuf,
    },
    /// No daemon runs there.
    #[error("no daemon is running at {}: start one with `ddssd --dir {}`, or name the folder of another in DDSS_DIR", socket.display(), folder.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The daemon is of another release.
    #[error(
        "the daemon speaks layout {theirs} and this client {ours}: run ddssd and the application with the same release of ddss"
    )]
    VersionMismatch {
        /// This client's.
        ours: u32,
        /// The daemon's.
        theirs: u32,
    },
    /// The daemon was started anew with another number of progress threads, so that names belong elsewhere.
    #[error("the daemon has {now} progress threads and had {before} when this client connected: connect anew")]
    PlanesChanged {
        /// How many it had.
        before: u8,
        /// How many it has.
        now: u8,
    },
    /// The client could not attach for another reason.
    #[error("cannot attach to the daemon")]
    Attach(#[source] AttachError),
    /// The lane for tasks is in use.
    #[error("this client has an asynchronous twin already: clone that one")]
    NoLaneForTasks,
    /// The thread that waits for tasks could not be started.
    #[error("cannot start the thread that waits on behalf of tasks")]
    Thread(#[source] std::io::Error),
    /// The environment names a strategy that is none.
    #[error("the environment variable {} is wrong", ddss_ipc::STRATEGY_VARIABLE)]
    Strategy(#[from] UnknownStrategy),
}

impl Error {
    /// The failure behind it, where the daemon named one.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Error::Failed { failure, .. } | Error::Indeterminate { failure, .. } | Error::OverQuota { failure, .. } => {
                Some(*failure)
            }
            Error::OutOfRange { .. } => Some(Failure::OutOfRange),
            Error::BadArgument { refused, .. } => Some(refused.failure),
            _ => None,
        }
    }

    /// Whether the call may have happened all the same.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Error::Indeterminate { .. } | Error::DaemonGone { .. })
    }

    /// Of an argument that was refused before anything was sent.
    pub(crate) fn argument(action: &'static str, target: &str) -> impl FnOnce(BadArgument) -> Self {
        move |refused| Error::BadArgument { action, target: target.to_owned(), refused }
    }

    /// Of a completion that says more than how it ended.
    pub(crate) fn of_completion(completion: &Completion, action: &'static str, target: &str) -> Result<(), Self> {
        match completion.outcome {
            Outcome::Failed(failure @ (Failure::QuotaBytes | Failure::QuotaSegments)) => {
                let used = u64::from_le_bytes(std::array::from_fn(|byte| completion.data[byte]));
                let allowed = completion.version.0;
                Err(Error::OverQuota { action, target: target.to_owned(), failure, used, allowed })
            }
            outcome => Self::of(outcome, action, target),
        }
    }

    pub(crate) fn of(outcome: Outcome, action: &'static str, target: &str) -> Result<(), Self> {
        let target = || target.to_owned();
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(failure) => Err(Error::Failed { action, target: target(), failure }),
            Outcome::Indeterminate(failure) => Err(Error::Indeterminate { action, target: target(), failure }),
        }
    }
}
