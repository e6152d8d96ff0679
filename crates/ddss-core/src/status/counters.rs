//! Counters, gauges and their names. New ones are appended: the order here is their place in the page.

macro_rules! named {
    ($(#[$meta:meta])* $kind:ident { $($variant:ident, $name:literal, $help:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum $kind {
            $(#[doc = $help] $variant,)*
        }

        impl $kind {
            /// All variants, in page order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Number of variants.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the name, which is the same in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            /// Returns a short description.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
            /// Returns the index in page order.
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

named! {
    /// Value that only grows while a daemon runs.
    Counter {
        Requests, "requests", "requests taken from clients";
        Malformed, "malformed", "requests refused as malformed";
        RepliesLate, "replies_late", "replies to a client that was gone";
        RepliesUnasked, "replies_unasked", "replies without a request on the channel: a fault of the daemon";
        Stale, "stale", "answers for an operation that had ended";
        Timeouts, "timeouts", "operations whose deadline passed";
        Commits, "commits", "puts and atomics committed to segments at home here";
        Retries, "retries", "remote gets that met a put and were repeated";
        ServedGets, "served_gets", "gets of other nodes that this home executed";
        CacheHits, "cache_hits", "gets answered from the read cache";
        Attached, "attached", "clients that attached";
        NotServed, "not_served", "clients that were admitted and could not be set up";
        Left, "left", "clients that detached";
        CutOff, "cut_off", "clients disconnected because they broke the protocol";
        LocksGranted, "locks_granted", "locks granted on segments at home here";
        LocksBroken, "locks_broken", "locks taken back: the lease ran out, or the holder was gone";
        SegmentsMade, "segments_made", "segments created at home here";
        SegmentsReleased, "segments_released", "segments released at home here";
        ConnectionsMade, "connections_made", "connections to other nodes that were established";
        ConnectionsLost, "connections_lost", "connections to other nodes that ended";
        ConnectionsAsked, "connections_asked", "connection attempts to this node";
        FabricReads, "fabric_reads", "one-sided reads posted";
        FabricReadBytes, "fabric_read_bytes", "bytes of these reads";
        FabricWrites, "fabric_writes", "one-sided writes posted";
        FabricWriteBytes, "fabric_write_bytes", "bytes of these writes";
        FabricMessages, "fabric_messages", "messages sent to other nodes";
        FabricMessageBytes, "fabric_message_bytes", "bytes of these messages";
        FabricFailures, "fabric_failures", "reads, writes and messages that failed";
        MessagesHeard, "messages_heard", "messages received from other nodes";
        RoundTrips, "round_trips", "batches of reads that ended, and answers of other nodes";
        Wakes, "wakes", "clients woken from a sleep";
        Parks, "parks", "sleeps of the progress thread";
        Rounds, "rounds", "rounds of the progress thread";
        Sampled, "sampled", "requests whose steps were timed";
        Untracked, "untracked", "requests in progress that exceeded the tracking table: their end is not counted";
        SegmentRowsLost, "segment_rows_lost", "rows of the segment table that were replaced by a busier segment";
        QuotaRefusals, "quota_refusals", "segments and clients refused because of a user's quota";
        SegmentsLost, "segments_lost", "replicated segments whose home and replica came back without them";
    }
}

named! {
    /// Value that goes up and down.
    Gauge {
        Clients, "clients", "clients that are attached";
        Channels, "channels", "channels of these clients";
        ArenaBytes, "arena_bytes", "bytes of their arenas";
        Segments, "segments", "segments at home here";
        PoolBytes, "pool_bytes", "bytes that segments may take";
        PoolBytesUsed, "pool_bytes_used", "bytes in use: segments, their history, and cached copies";
        UnderWay, "under_way", "operations that wait for another node";
        LockHolders, "lock_holders", "holders of locks of segments at home here";
        LockWaiters, "lock_waiters", "operations queued at such segments, for the lock or behind it";
        Peers, "peers", "other nodes that are known";
        Connections, "connections", "other nodes that can be reached";
        LatencyNs, "latency_ns", "average duration of a call";
        Clustered, "clustered", "1 if this node belongs to a cluster";
        Leader, "leader", "leader of the cluster, 0 if this node knows none";
        Members, "members", "nodes of the cluster";
        Names, "names", "names in the cluster's directory";
        FileBytes, "file_bytes", "bytes that segments in files may take";
        FileBytesUsed, "file_bytes_used", "bytes that segments in files take, with their history";
        Majority, "majority", "1 if this node belongs to a cluster with a reachable majority";
        ParkedWaits, "parked_waits", "waits of clients for locks and versions that hold no place in a ring";
        ReplicasInSync, "replicas_in_sync", "segments at home here whose replica may take over";
        ReplicasCopying, "replicas_copying", "segments at home here that are being copied to a replica";
        ReplicasDegraded, "replicas_degraded", "segments at home here that should have a replica and have none";
        ReplicasUnsure, "replicas_unsure", "segments of the last daemon here whose role the cluster has not confirmed";
    }
}

impl Gauge {
    /// Name as a metric. Prometheus wants seconds where the status page counts whole nanoseconds.
    pub fn metric_name(self) -> &'static str {
        if self == Gauge::LatencyNs { "latency_seconds" } else { self.name() }
    }
}

named! {
    /// Kind of request. The index is the operation's number in a request; index 0 is for invalid requests.
    Kind {
        Unknown, "unknown", "an invalid request";
        Null, "null", "a round trip without effect";
        Allocate, "allocate", "a new segment";
        Open, "open", "a segment by its name";
        Release, "release", "a segment's end";
        Get, "get", "bytes of a segment";
        Put, "put", "bytes into a segment";
        Atomic, "atomic", "a change of one word";
        Await, "await", "a newer version";
        Lock, "lock", "a segment's lock";
        Unlock, "unlock", "the end of a lock";
        GetMany, "get_many", "several ranges of a segment";
        PutMany, "put_many", "bytes into several ranges";
        List, "list", "segments by their names";
        Stat, "stat", "the metadata of a segment";
        Permit, "permit", "a change of permissions";
    }
}

named! {
    /// Path on which a request was answered.
    Location {
        Here, "here", "by this node alone";
        Away, "away", "with the help of another node";
    }
}

named! {
    /// Step of a request.
    Step {
        Submit, "submit", "from the client's ring to the daemon";
        Post, "post", "until it is posted to another node or has to wait, or until it is answered if it need not wait";
        Complete, "complete", "until the awaited event";
        Reply, "reply", "until the reply is written";
        Total, "total", "from the client's ring (where that is unknown, from the daemon) until the reply is written";
    }
}

named! {
    /// Tally of one kind of request.
    Tally {
        Done, "done", "requests that succeeded";
        Failed, "failed", "requests that certainly did nothing";
        Indeterminate, "indeterminate", "requests whose outcome is unknown";
        Bytes, "bytes", "bytes that the successful requests moved";
        Waited, "waited", "requests that were not answered at once";
    }
}

impl Kind {
    /// Returns the kind of an operation's number.
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }
}
