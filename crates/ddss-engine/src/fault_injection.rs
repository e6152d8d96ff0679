//! Bugs that tests switch on and have to find. Without the feature `planted` there are none, and `planted!` is a
//! constant `false`.

/// One bug.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A commit does not advance the version.
    SkippedVersion,
    /// An unlock with a foreign token ends the lock of another holder.
    UncheckedUnlock,
    /// An id of an earlier generation names the segment that is in the slot now.
    StaleGeneration,
    /// A get completes before its bytes are in the client's memory.
    EarlyCompletion,
    /// A lease never expires.
    EndlessLease,
    /// A renewal is answered, and the lease ends when it would have ended without it.
    UnrecordedRenewal,
    /// The state word before the bytes is not checked: a read in the middle of a put counts as whole.
    TornAccepted,
    /// The state word is not read a second time.
    SingleStateRead,
    /// The version of a commit is not saved in the history.
    HistoryLost,
    /// The token of a put is not checked.
    UncheckedToken,
    /// A queued waiter is forgotten.
    WaiterDropped,
    /// A cached copy never expires.
    EternalCopy,
    /// A put does not invalidate the cached copy on its own node.
    UnspoiltCopy,
    /// A get ignores an exclusive lock.
    UnseenLock,
    /// A get under Read does not wait for shared holders.
    ReadTogether,
    /// Memory of a released segment is reused while peers may still read it.
    EarlyReclaim,
    /// Bytes on their way to another node are not copied first.
    NoSnapshot,
    /// The version condition of a put is not checked.
    UncheckedVersion,
    /// Only the first of several ranges is written.
    FirstRangeOnly,
    /// A put is acknowledged before the replica has it.
    EarlyAcknowledgement,
    /// A home continues without its replica before the cluster knows: the replica may take over without the newest
    /// puts.
    UnpartedReplica,
    /// A home serves after its lease expired, when another node may be the home.
    UnfencedHome,
    /// A home forgets which nodes refused its replica and asks the same node for ever.
    ForgottenRefusal,
    /// A replica claims to have the offered version, whatever it has.
    StaleCopy,
    /// The write permission of a put is not checked.
    UncheckedPermission,
    /// The fast path ignores locks and waiters.
    ShortWayPastLock,
    /// The fast path does not save older versions.
    ShortWayUnkept,
    /// A commit reuses the timestamp of the version before.
    StandingClock,
    /// A node ignores the clocks of its peers.
    DeafClock,
    /// The home does not look for the key before it inserts one into a map.
    EntryTwice,
    /// The home replaces an entry that is not the one that the client has read.
    ReplacedUnseen,
    /// The home frees expired entries of a map without its replica.
    UnforwardedSweep,
    /// A row that changes during the first copy of a table is not sent again.
    RowNotResent,
    /// A replica gives a row the version of the table.
    RowVersionOfTable,
    /// Watchers of all rows are not told of the changes of a table that may have a replica.
    UntoldRowChange,
    /// A node that becomes the home again numbers the changes of rows as if there had been none meanwhile.
    RowChangesOfEarlierTerm,
    /// A get does not wait while the daemon writes a large value.
    UngatedCommit,
    /// A replica counts as complete while its home writes a large value.
    JoinDuringCommit,
    /// A home whose replica refuses a large put commits it alone.
    AloneAfterRefusal,
    /// A home sends a large put to its replica before the memory for its own commit is reserved.
    UnreservedUndo,
    /// A replica acknowledges a large put when it has all parts, and commits nothing.
    UncommittedParts,
    /// A get, put or atomic of a row that another client has locked does not wait.
    IgnoredRowLock,
    /// The header does not show that rows are locked.
    UnmarkedRowLock,
    /// A commit does not mark the segment before it writes; the executor of actions implements this bug.
    UnmarkedCommit,
}

/// Returns true if the engine has a bug.
macro_rules! planted {
    ($engine:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let has = $engine.bug == Some(crate::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let has = false;
        has
    }};
}

pub(crate) use planted;
