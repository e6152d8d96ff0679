//! Kinds of errors.

use ddss_core::Failure;

/// Kind of an [`Error`](crate::Error): the reason, apart from its details.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::ErrorKind;
/// let error = client.segment("nothing").open().expect_err("there is no such name");
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ErrorKind {
    /// No segment of that name, or the segment was released.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// An argument, an option or a name is invalid. The text names the valid values.
    BadArgument,
    /// Range, row or index reaches beyond the segment.
    OutOfRange,
    /// The segment is of another kind, size or model than asked.
    WrongShape,
    /// A conditional call found another version, which [`Error::version`](crate::Error::version) returns.
    VersionMismatch,
    /// The version is no longer in the segment's history.
    VersionGone,
    /// Another client holds the lock, and the call does not wait.
    Locked,
    /// This client holds the lock: the call would wait for itself.
    OwnLock,
    /// The lock is no longer held: its lease ran out, or it was broken.
    LockLost,
    /// The lock is a shared one, which permits no change.
    SharedLock,
    /// Writers changed the segment during every attempt.
    Contended,
    /// The segment is being moved or written, or gets another home.
    InProgress,
    /// The deadline passed.
    TimedOut,
    /// Owner and mode of the segment forbid the call, or those of the daemon's socket.
    PermissionDenied,
    /// A limit is reached for now: [`Error::limit`](crate::Error::limit).
    LimitReached,
    /// The user has reached its quota: [`Error::limit`](crate::Error::limit).
    OverQuota,
    /// Memory, disk or map has no room for the value.
    NoSpace,
    /// The segment's home does not answer, or this node is stopping.
    NodeDown,
    /// No majority of the cluster's voters can be reached.
    NoMajority,
    /// No daemon is running there.
    NoDaemon,
    /// The daemon ended during the call.
    DaemonGone,
    /// The daemon has another number of progress threads than before: connect again.
    ConnectAgain,
    /// Daemon and client are of different releases.
    ReleaseMismatch,
    /// The operation is not supported there.
    Unsupported,
    /// The row is damaged. Other rows are not affected.
    Damaged,
    /// The operating system, or the daemon, refused; [`source`](std::error::Error::source) tells more.
    System,
}

impl ErrorKind {
    /// Returns the kind of a failure that a completion reports.
    pub(super) fn of(failure: Failure) -> Self {
        match failure {
            Failure::NotFound => Self::NotFound,
            Failure::AlreadyExists => Self::AlreadyExists,
            Failure::OutOfRange => Self::OutOfRange,
            Failure::PermissionDenied => Self::PermissionDenied,
            Failure::Busy(_) | Failure::SegmentsFull | Failure::ReaderSetsFull | Failure::UploadsFull => {
                Self::LimitReached
            }
            Failure::QuotaBytes | Failure::QuotaSegments => Self::OverQuota,
            Failure::NoSpace | Failure::NoFileSpace | Failure::NoSharedMemory => Self::NoSpace,
            Failure::NodeDown | Failure::GoingDown | Failure::UploadGone => Self::NodeDown,
            Failure::NoMajority => Self::NoMajority,
            Failure::TimedOut => Self::TimedOut,
            Failure::VersionMismatch => Self::VersionMismatch,
            Failure::VersionGone => Self::VersionGone,
            Failure::Contended => Self::Contended,
            Failure::InProgress => Self::InProgress,
            Failure::Locked => Self::Locked,
            Failure::OwnLock => Self::OwnLock,
            Failure::LockLost => Self::LockLost,
            Failure::SharedLock => Self::SharedLock,
            Failure::Damaged => Self::Damaged,
            Failure::WrongShard => Self::ReleaseMismatch,
            Failure::LogUnwritable => Self::System,
            Failure::Unsupported | Failure::NoCluster => Self::Unsupported,
            Failure::TooLarge
            | Failure::Malformed
            | Failure::BadName
            | Failure::BadSize
            | Failure::Unaligned
            | Failure::BadLease => Self::BadArgument,
            // Each release knows the failures of its own wire.
            _ => Self::Unsupported,
        }
    }
}
