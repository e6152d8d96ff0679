//! Limits that a busy answer names.

use crate::limits::{
    AREAS_MAX, COLLECTS_PER_CLIENT_MAX, DEFERRED_UPDATES_MAX, HOLDERS_PER_SEGMENT_MAX, OPERATIONS_MAX,
    PARKED_OPERATIONS_MAX, REMOTE_SEGMENTS_MAX, ROW_LOCKS_PER_TABLE_MAX, STAGING_BYTES, UPLOADS_PER_CLIENT_MAX,
    WAITERS_PER_SEGMENT_MAX, WAITS_PER_NODE_MAX,
};
use std::fmt;

macro_rules! limits {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $place:literal, $value:expr, $text:literal;)*) => {
        /// Limit that a call has met: what it counts, where it is set, and its value if that is fixed.
        ///
        /// ```
        /// # use ddss_core as ddss;
        /// use ddss::Limit;
        /// assert_eq!(Limit::Waiters.to_string(), "waiters for one segment (WAITERS_PER_SEGMENT_MAX)");
        /// assert_eq!(Limit::Waits.to_string(), "waits of one client (ddssd --waits-per-client)");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Limit {
            $($(#[$meta])* $name = $code,)*
        }

        impl Limit {
            /// All limits.
            #[doc(hidden)]
            pub const ALL: &[Limit] = &[$(Limit::$name,)*];

            /// Returns the constant or the setting that holds it.
            #[doc(hidden)]
            pub const fn place(self) -> &'static str {
                match self { $(Limit::$name => $place,)* }
            }

            /// Returns its value, unless a setting or the size of a client decides.
            #[doc(hidden)]
            pub const fn value(self) -> Option<u64> {
                match self { $(Limit::$name => $value,)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Limit::$name => $text,)* }
            }
        }
    };
}

const fn of(value: usize) -> Option<u64> {
    Some(value as u64)
}

limits! {
    /// A limit of another release.
    Other = 0, "another release", None, "entries of a table";
    /// Waiters or watchers of one segment.
    Waiters = 1, "WAITERS_PER_SEGMENT_MAX", of(WAITERS_PER_SEGMENT_MAX), "waiters for one segment";
    /// Shared holders of one lock.
    Holders = 2, "HOLDERS_PER_SEGMENT_MAX", of(HOLDERS_PER_SEGMENT_MAX), "shared holders of one lock";
    /// Pending operations of one node at other nodes.
    Operations = 3, "OPERATIONS_MAX", of(OPERATIONS_MAX), "pending operations of one node";
    /// Waits of one node at other nodes.
    RemoteWaits = 4, "PARKED_OPERATIONS_MAX", of(PARKED_OPERATIONS_MAX), "waits of one node at other nodes";
    /// Names that one node claims or returns at the same time.
    Claims = 5, "OPERATIONS_MAX", of(OPERATIONS_MAX), "names that one node claims at a time";
    /// Bytes on their way from one node to another.
    Staging = 6, "STAGING_BYTES", of(STAGING_BYTES), "bytes on their way between two nodes";
    /// Memory of the pool for copies on their way to other nodes.
    Pool = 7, "ddssd --pool-bytes", None, "bytes of the pool for copies on their way";
    /// Permission changes that wait for a replica.
    Updates = 8, "DEFERRED_UPDATES_MAX", of(DEFERRED_UPDATES_MAX), "permission changes that wait for the replica";
    /// Parked waits of one client.
    Waits = 9, "ddssd --waits-per-client", None, "waits of one client";
    /// Parked waits of all clients of one node.
    NodeWaits = 10, "WAITS_PER_NODE_MAX", of(WAITS_PER_NODE_MAX), "waits of all clients of one node";
    /// Requests of one client that collect ended waits.
    WaitCollections = 11, "COLLECTS_PER_CLIENT_MAX", of(COLLECTS_PER_CLIENT_MAX), "requests that collect ended waits";
    /// Segments of another node that one node has open.
    RemoteSegments = 12, "REMOTE_SEGMENTS_MAX", of(REMOTE_SEGMENTS_MAX), "segments of one other node";
    /// Locks that clients of one node hold at other nodes.
    RemoteLocks = 13, "OPERATIONS_MAX", of(OPERATIONS_MAX), "locks that one node holds at other nodes";
    /// Operations posted to one connection.
    PostedOperations = 14, "BACKLOG_MAX", Some(1024), "operations posted to one connection";
    /// Memory that the adapter may lock.
    LockedMemory = 15, "RLIMIT_MEMLOCK", None, "bytes of memory locked for the adapter";
    /// Windows of one node over segments of another.
    Windows = 16, "WINDOWS_PER_PEER_MAX", Some(1 << 16), "windows of one node";
    /// Channels of one client: calls of threads at the same time.
    Channels = 17, "ConnectOptions::channels", None, "calls of threads at a time";
    /// Bytes of one client's arena.
    Arena = 18, "ConnectOptions::arena_len", None, "bytes of large calls at a time";
    /// Calls of tasks in flight.
    Tasks = 19, "Client::aio", None, "calls of tasks at a time";
    /// Segments of one progress thread.
    Segments = 20, "ddssd --segments", None, "segments of one node";
    /// Sets of readers of one node.
    ReaderSets = 21, "AREAS_MAX", of(AREAS_MAX - 1), "sets of readers of one node";
    /// Large puts of one client.
    Uploads = 22, "UPLOADS_PER_CLIENT_MAX", of(UPLOADS_PER_CLIENT_MAX), "large puts of one client";
    /// Bytes of segments of one user.
    QuotaBytes = 23, "ddssd --quota", None, "bytes of segments of one user";
    /// Bytes of large puts: half of the pool, for one client half of that.
    UploadBytes = 25, "ddssd --pool-bytes", None, "bytes of large puts";
    /// Segments of one user.
    QuotaSegments = 24, "ddssd --quota", None, "segments of one user";
    /// Holders of locks of one table's rows.
    RowLocks = 26, "ROW_LOCKS_PER_TABLE_MAX", of(ROW_LOCKS_PER_TABLE_MAX), "locks of one table's rows";
}

impl Limit {
    /// Bits of the number on the wire.
    pub(crate) const BITS: u32 = 6;

    /// Returns the number on the wire.
    #[doc(hidden)]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the limit of that number; an unknown one reads as [`Limit::Other`].
    #[doc(hidden)]
    pub fn from_code(code: u8) -> Self {
        Self::ALL.iter().copied().find(|limit| limit.code() == code).unwrap_or(Limit::Other)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.text(), self.place())
    }
}

const _: () = assert!(Limit::ALL.len() <= 1 << Limit::BITS);
