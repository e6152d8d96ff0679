//! Bugs that can be switched on, for tests that have to find them. Without the feature `planted` there are none, and
//! `planted!` is `false` before anything is compiled.

/// One bug.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A commit does not step the version.
    SkippedVersion,
    /// Who gives back a lock that is not his ends that of another.
    UncheckedUnlock,
    /// An id of an earlier life of a slot names the segment that is there now.
    StaleGeneration,
    /// A get is told as done before its bytes are in the client's memory.
    EarlyCompletion,
    /// A lease never runs out.
    EndlessLease,
    /// The state word before the bytes is not looked at: a read in the middle of a put is taken for whole.
    TornAccepted,
    /// The state word is not looked at a second time.
    OneLook,
    /// The version of a commit is not kept.
    HistoryLost,
    /// The token that a put is made under is not checked.
    UncheckedToken,
    /// One who waited in line is forgotten.
    WaiterDropped,
    /// A copy never grows old.
    EternalCopy,
    /// A put does not end the copy on its own node.
    UnspoiltCopy,
    /// A get does not look whether somebody holds the lock.
    UnseenLock,
    /// A get under Read does not wait for those who share the lock.
    ReadTogether,
    /// Memory of a released segment is given away while others may still read it.
    EarlyReclaim,
    /// Bytes on their way to another node are not put aside first.
    NoSnapshot,
    /// The condition of a put is not checked.
    UncheckedVersion,
    /// Of several ranges only the first is written.
    FirstRangeOnly,
    /// A put is acknowledged before the mirror has it.
    EarlyAcknowledgement,
    /// A home goes on without its mirror before the cluster knows: the mirror may take over without the newest puts.
    UnpartedMirror,
    /// A home serves although its lease ran out: another may be the home by then.
    UnfencedHome,
    /// A home forgets which nodes cannot have its mirror: it asks the same one for ever.
    ForgottenRefusal,
    /// A mirror says that it has what it was offered, whatever it has.
    StaleCopy,
    /// Whether who puts may write is not looked at.
    UncheckedPermission,
    /// The short way does not look whether anybody holds the lock or waits.
    ShortWayPastLock,
    /// The short way does not look whether older versions have to be kept.
    ShortWayUnkept,
    /// A commit has the timestamp of the version before.
    StandingClock,
    /// A node does not hear the clocks of those that ask it.
    DeafClock,
    /// A commit does not mark the segment before it writes: who carries actions out has it.
    UnmarkedCommit,
}

/// Whether an engine has a bug.
macro_rules! planted {
    ($engine:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let has = $engine.bug == Some(crate::engine::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let has = false;
        has
    }};
}

pub(crate) use planted;
