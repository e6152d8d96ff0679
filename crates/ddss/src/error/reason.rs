//! Reasons of errors, grouped by the largest thing that is broken: the call, then the attachment.

use super::kind::ErrorKind;
use ddss_core::{BadArgument, Completion, Failure, Outcome, Version};
use ddss_ipc::AttachError;
use std::path::PathBuf;

/// Reason of an error, with its details. Callers see its kind and its text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
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
        /// The reason, which names the limit.
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
    /// The key that a call puts if it is absent is present. The call did nothing.
    #[error("cannot {action} {target}: the key is present, and was to be put if it is absent: get its entry")]
    KeyExists {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
    },
    /// The key whose entry was to have a version is absent. The call did nothing.
    #[error("cannot {action} {target}: the key is absent, and was to have the version that the call named")]
    KeyAbsent {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
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
    /// The segment is of another kind, size or model than the call needs. No request was sent.
    #[error("cannot {action} {target}: {refused}")]
    WrongShape {
        /// The attempted action.
        action: &'static str,
        /// The target of the action.
        target: String,
        /// The segment that was found, and the one that the call needs.
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
    #[error("no daemon is running at {}: start one with `ddssd --dir {}`, or name the directory of another in DDSS_DIR", socket.display(), folder.display())]
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
        "the daemon speaks layout {theirs} and this client of ddss {} layout {ours}: run ddssd and the application with the same \
         release of ddss{}",
        env!("CARGO_PKG_VERSION"), in_parentheses(text)
    )]
    VersionMismatch {
        /// Layout version of this client.
        ours: u32,
        /// Layout version of the daemon.
        theirs: u32,
        /// Reason that the daemon gave, with its release; empty if it gave none.
        text: String,
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
    #[error("the environment variable {} names no IPC strategy: {text}", ddss_ipc::STRATEGY_VARIABLE)]
    Strategy {
        /// The text of the refusal.
        text: String,
    },
}

/// Returns a text in parentheses, or nothing if it is empty.
fn in_parentheses(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

impl Reason {
    /// Returns the kind of the error.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Reason::WrongShape { .. } => ErrorKind::WrongShape,
            Reason::DaemonGone { .. } => ErrorKind::DaemonGone,
            Reason::NoDaemon { .. } => ErrorKind::NoDaemon,
            Reason::VersionMismatch { .. } => ErrorKind::ReleaseMismatch,
            Reason::ShardsChanged { .. } => ErrorKind::ConnectAgain,
            Reason::Attach(AttachError::Permission { .. }) => ErrorKind::PermissionDenied,
            Reason::Attach(AttachError::TimedOut { .. }) => ErrorKind::TimedOut,
            Reason::Attach(AttachError::Options { .. }) | Reason::Strategy { .. } => ErrorKind::BadArgument,
            Reason::Attach(_) | Reason::Thread(_) => ErrorKind::System,
            // Before a request is sent, each refusal is the fault of an argument.
            Reason::BadArgument { refused: BadArgument { failure: Failure::Unsupported, .. }, .. } => {
                ErrorKind::BadArgument
            }
            other => other.failure().map_or(ErrorKind::System, ErrorKind::of),
        }
    }

    /// Returns the underlying failure, if the daemon reported one.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Reason::Failed { failure, .. }
            | Reason::Indeterminate { failure, .. }
            | Reason::LimitReached { failure, .. }
            | Reason::OverQuota { failure, .. } => Some(*failure),
            Reason::OutOfRange { .. } => Some(Failure::OutOfRange),
            Reason::KeyExists { .. } => Some(Failure::AlreadyExists),
            Reason::OtherVersion { .. } | Reason::KeyAbsent { .. } => Some(Failure::VersionMismatch),
            Reason::ReplicaFull { .. } => Some(Failure::NoSpace),
            Reason::BadArgument { refused, .. } | Reason::WrongShape { refused, .. } => Some(refused.failure),
            _ => None,
        }
    }

    /// Returns the reason of an unsuccessful completion.
    #[cold]
    pub(super) fn of_completion(completion: &Completion, action: &'static str, target: &str) -> Self {
        let target = target.to_owned();
        let word = u64::from_le_bytes(std::array::from_fn(|byte| completion.data[byte]));
        match completion.outcome {
            Outcome::Failed(Failure::NoSpace) if word > 0 => {
                Reason::ReplicaFull { action, target, node: u16::try_from(word).unwrap_or(u16::MAX) }
            }
            Outcome::Failed(Failure::VersionMismatch) if word == 1 => {
                Reason::OtherVersion { action, target, found: completion.version }
            }
            Outcome::Failed(failure @ (Failure::QuotaBytes | Failure::QuotaSegments)) => {
                let used = word;
                let allowed = completion.version.0;
                Reason::OverQuota { action, target, failure, used, allowed }
            }
            Outcome::Failed(failure) => {
                let sent = Some(completion.version.0).filter(|&value| value > 0);
                match failure.limit().and_then(|limit| limit.value().or(sent)) {
                    Some(value) => Reason::LimitReached { action, target, failure, value },
                    None => Reason::Failed { action, target, failure },
                }
            }
            Outcome::Indeterminate(failure) => Reason::Indeterminate { action, target, failure },
            Outcome::Done => unreachable!("only an unsuccessful completion has a reason"),
        }
    }
}
