//! The error type, grouped by the largest thing that is broken: the call, then the attachment.

use ddss_core::{BadArgument, Completion, Failure, Limit, Outcome, Version};
use ddss_ipc::{AttachError, UnknownStrategy};
use std::fmt::Display;
use std::path::PathBuf;

/// Reason why a call failed.
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
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The reason.
        failure: Failure,
    },
    /// The call may have taken effect. A get shows whether it did.
    #[error("outcome unknown, the call may have taken effect: {action} {target}: {failure}")]
    Indeterminate {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The reason, as far as it is known.
        failure: Failure,
    },
    /// The user has reached its quota on that node. The call did nothing.
    #[error(
        "cannot {action} {target}: this user has {used} {} there and may have {allowed}: release some, or have the quota raised (ddssd --quota)",
        if *failure == Failure::QuotaBytes { "bytes of segments" } else { "segments" }
    )]
    OverQuota {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The quota that is exhausted.
        failure: Failure,
        /// The user's present usage.
        used: u64,
        /// The user's limit.
        allowed: u64,
    },
    /// A limit is reached, whose value is known. The call did nothing.
    #[error("cannot {action} {target}: {failure} (the limit is {value})")]
    LimitReached {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The reason, which [names the limit](Failure::limit).
        failure: Failure,
        /// The value of the limit.
        value: u64,
    },
    /// The node with the replica of the segment has no room for the put beside its segments. The call did nothing, on
    /// neither node.
    #[error("cannot {action} {target}: node {node}, which has its replica, has no memory left for a put of that size")]
    ReplicaFull {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// Number of that node.
        node: u16,
    },
    /// A conditional put found another version than it named. The call did nothing.
    #[error("cannot {action} {target}: it has version {found}, another version than the call named: read it again")]
    OtherVersion {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The version of the segment, or of the row.
        found: Version,
    },
    /// An argument is out of its range. No request was sent.
    #[error("cannot {action} {target}: {refused}")]
    BadArgument {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The argument, its value and its range.
        refused: BadArgument,
    },
    /// The range reaches beyond the segment.
    #[error("cannot {action} {target}: bytes {offset} to {end} of a segment of {bytes} bytes")]
    OutOfRange {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The first byte.
        offset: u64,
        /// One past the last byte.
        end: u128,
        /// The segment's size.
        bytes: u64,
    },
    /// The daemon of this node ended during the call, which may have taken effect. The next call goes to the daemon's
    /// successor.
    #[error("outcome unknown, the call may have taken effect: the daemon at {} ended during the call", path.display())]
    DaemonGone {
        /// The daemon's socket.
        path: PathBuf,
    },
    /// No daemon runs there.
    #[error("no daemon is running at {}: start one with `ddssd --dir {}`, or name the folder of another in DDSS_DIR", socket.display(), folder.display())]
    NoDaemon {
        /// The socket that was tried.
        socket: PathBuf,
        /// The folder that was tried.
        folder: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The daemon is of another release.
    #[error(
        "the daemon speaks layout {theirs} and this client {ours}: run ddssd and the application with the same release of ddss"
    )]
    VersionMismatch {
        /// Layout version of this client.
        ours: u32,
        /// Layout version of the daemon.
        theirs: u32,
    },
    /// The daemon restarted with another number of progress threads, so that names belong to other shards.
    #[error("the daemon has {now} progress threads and had {before} when this client connected: connect again")]
    ShardsChanged {
        /// Number of shards at the time of connecting.
        before: u8,
        /// Present number of shards.
        now: u8,
    },
    /// The client could not attach for another reason.
    #[error("cannot attach to the daemon")]
    Attach(#[source] AttachError),
    /// A thread of the client could not be started: the reactor of its tasks, or the keeper of its leases.
    #[error("cannot start a thread of the client")]
    Thread(#[source] std::io::Error),
    /// The environment names an unknown strategy.
    #[error("the environment variable {} names no IPC strategy", ddss_ipc::STRATEGY_VARIABLE)]
    Strategy(#[from] UnknownStrategy),
}

impl Error {
    /// Returns the underlying failure, if the daemon reported one.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Error::Failed { failure, .. }
            | Error::Indeterminate { failure, .. }
            | Error::LimitReached { failure, .. }
            | Error::OverQuota { failure, .. } => Some(*failure),
            Error::OutOfRange { .. } => Some(Failure::OutOfRange),
            Error::OtherVersion { .. } => Some(Failure::VersionMismatch),
            Error::ReplicaFull { .. } => Some(Failure::NoSpace),
            Error::BadArgument { refused, .. } => Some(refused.failure),
            _ => None,
        }
    }

    /// Returns the limit that the call has met: the count, and the constant or the setting that bounds it.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// use ddss::{Client, Spec};
    ///
    /// let client = Client::builder().folder(node.folder()).connect()?;
    /// if let Err(error) = client.allocate("frames", Spec::new(1 << 20)) {
    ///     if let Some(limit) = error.limit() {
    ///         eprintln!("no more {limit}");
    ///     }
    ///     return Err(error.into());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limit(&self) -> Option<Limit> {
        self.failure()?.limit()
    }

    /// Returns the value of the limit that the call has met, if it is known.
    pub fn limit_value(&self) -> Option<u64> {
        match self {
            Error::LimitReached { value, .. } => Some(*value),
            Error::OverQuota { allowed, .. } => Some(*allowed),
            _ => self.limit()?.value(),
        }
    }

    /// Returns the version that a refused conditional put has found.
    pub fn version(&self) -> Option<Version> {
        if let Error::OtherVersion { found, .. } = self { Some(*found) } else { None }
    }

    /// Returns true if the call may have taken effect.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Error::Indeterminate { .. } | Error::DaemonGone { .. })
    }

    /// Returns true if the call ended because its deadline passed. It may have taken effect only if
    /// [`is_indeterminate`](Self::is_indeterminate) says so.
    pub fn is_timeout(&self) -> bool {
        self.failure() == Some(Failure::TimedOut)
    }

    /// Returns true if the call certainly did nothing, and the same call may succeed later without any change of its
    /// arguments: capacity, a lock, a node or a majority was missing.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// let account = client.allocate("account", ddss::Spec::new(64))?;
    /// let held = account.lock()?;
    /// let error = account.lock_with(ddss::LockOptions::new().no_wait()).expect_err("it is held");
    /// assert!(error.is_retryable() && !error.is_timeout());
    /// held.unlock()?;
    /// assert!(!client.open("nothing").expect_err("no such name").is_retryable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::NoDaemon { .. } => true,
            Error::Failed { failure, .. } | Error::LimitReached { failure, .. } => matches!(
                failure,
                Failure::Busy(_)
                    | Failure::InProgress
                    | Failure::NodeDown
                    | Failure::TimedOut
                    | Failure::Contended
                    | Failure::Locked
                    | Failure::GoingDown
                    | Failure::NoMajority
                    | Failure::UploadGone
            ),
            _ => false,
        }
    }

    /// Returns the error of a whole call whose step had no effect of its own.
    pub(crate) fn without_effect(self) -> Self {
        match self {
            Error::Indeterminate { action, target, failure } => Error::Failed { action, target, failure },
            other => other,
        }
    }

    /// Refuses a segment of another kind or size than a call needs.
    pub(crate) fn wrong_shape(action: &'static str, target: &str, found: impl Display, wanted: impl Display) -> Self {
        let refused = BadArgument::new("segment", found, wanted, Failure::Unsupported);
        Error::BadArgument { action, target: target.to_owned(), refused }
    }

    /// Wraps an argument that was refused before a request was sent.
    pub(crate) fn argument(action: &'static str, target: &str) -> impl FnOnce(BadArgument) -> Self {
        move |refused| Error::BadArgument { action, target: target.to_owned(), refused }
    }

    /// Builds the error of an unsuccessful completion.
    #[cold]
    pub(crate) fn of_completion(completion: &Completion, action: &'static str, target: &str) -> Self {
        let target = target.to_owned();
        let word = u64::from_le_bytes(std::array::from_fn(|byte| completion.data[byte]));
        match completion.outcome {
            Outcome::Failed(Failure::NoSpace) if word > 0 => {
                Error::ReplicaFull { action, target, node: u16::try_from(word).unwrap_or(u16::MAX) }
            }
            Outcome::Failed(Failure::VersionMismatch) if word == 1 => {
                Error::OtherVersion { action, target, found: completion.version }
            }
            Outcome::Failed(failure @ (Failure::QuotaBytes | Failure::QuotaSegments)) => {
                let used = word;
                let allowed = completion.version.0;
                Error::OverQuota { action, target, failure, used, allowed }
            }
            Outcome::Failed(failure) => {
                let sent = Some(completion.version.0).filter(|&value| value > 0);
                match failure.limit().and_then(|limit| limit.value().or(sent)) {
                    Some(value) => Error::LimitReached { action, target, failure, value },
                    None => Error::Failed { action, target, failure },
                }
            }
            Outcome::Indeterminate(failure) => Error::Indeterminate { action, target, failure },
            Outcome::Done => unreachable!("only an unsuccessful completion has an error"),
        }
    }
}
