//! What is counted, and what it is called. New names come at the end: their place in the page is their place here.

macro_rules! named {
    ($(#[$meta:meta])* $kind:ident { $($variant:ident, $name:literal, $help:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum $kind {
            $(#[doc = $help] $variant,)*
        }

        impl $kind {
            /// All of them, in the order in which they stand in the page.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its name, the same in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            /// What it says, in a few words.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
            /// Its place among the others.
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

named! {
    /// Something that only grows while a daemon runs.
    Counter {
        Requests, "requests", "requests taken from clients";
        Malformed, "malformed", "requests that were refused because they made no sense";
        RepliesLate, "replies_late", "replies to a client that was gone";
        RepliesUnasked, "replies_unasked", "replies beyond the requests of a lane: a fault of the daemon";
        Stale, "stale", "answers that came for an operation that had ended";
        Timeouts, "timeouts", "operations whose deadline passed";
        Commits, "commits", "puts and atomics committed to segments at home here";
        Retries, "retries", "gets from another node that met a put and were done again";
        Handed, "handed", "gets of other nodes that this home carried out";
        Copied, "copied", "gets answered from a copy that this node keeps of a remote segment";
        Attached, "attached", "clients that attached";
        NotServed, "not_served", "clients that were let in and could not be set up";
        Left, "left", "clients that ended";
        CutOff, "cut_off", "clients that were cut off because they broke the rules";
        LocksGranted, "locks_granted", "locks granted on segments at home here";
        LocksBroken, "locks_broken", "locks taken back: the lease ran out, or the holder was gone";
        SegmentsMade, "segments_made", "segments made at home here";
        SegmentsReleased, "segments_released", "segments released at home here";
        ConnectionsMade, "connections_made", "times that another node was met";
        ConnectionsLost, "connections_lost", "connections to other nodes that ended";
        ConnectionsAsked, "connections_asked", "connections that somebody wanted to make to this node";
        FabricReads, "fabric_reads", "one-sided reads posted";
        FabricReadBytes, "fabric_read_bytes", "bytes of these reads";
        FabricWrites, "fabric_writes", "one-sided writes posted";
        FabricWriteBytes, "fabric_write_bytes", "bytes of these writes";
        FabricMessages, "fabric_messages", "messages sent to other nodes";
        FabricMessageBytes, "fabric_message_bytes", "bytes of these messages";
        FabricFailures, "fabric_failures", "reads, writes and messages that did not come to a good end";
        MessagesHeard, "messages_heard", "messages from other nodes";
        RoundTrips, "round_trips", "batches of reads that ended, and answers that other nodes gave";
        Wakes, "wakes", "clients woken from a sleep";
        Parks, "parks", "times that the progress thread went to sleep";
        Rounds, "rounds", "rounds of the progress thread";
        Sampled, "sampled", "requests whose way was followed";
        Untracked, "untracked", "requests under way that there was no room to follow: their end is not counted";
        SegmentRowsLost, "segment_rows_lost", "rows of the table of segments that made room for a busier one";
        QuotaRefusals, "quota_refusals", "segments and clients refused because of a user's quota";
    }
}

named! {
    /// Something that comes and goes.
    Gauge {
        Clients, "clients", "clients that are attached";
        Lanes, "lanes", "lanes of these clients";
        ArenaBytes, "arena_bytes", "bytes of their arenas";
        Segments, "segments", "segments at home here";
        PoolBytes, "pool_bytes", "bytes that segments may take";
        PoolBytesUsed, "pool_bytes_used", "bytes that are taken: by segments, what they keep, and copies";
        UnderWay, "under_way", "operations that wait for another node";
        LockHolders, "lock_holders", "who holds a lock of a segment at home here";
        LockWaiters, "lock_waiters", "who waits in line for such a segment, for its lock or behind it";
        Peers, "peers", "other nodes that are known";
        Connections, "connections", "other nodes that can be reached";
        LatencyNs, "latency_ns", "what a call takes on average, as clients are told";
        Clustered, "clustered", "1 if this node belongs to a cluster";
        Leader, "leader", "the node that leads the cluster, 0 if this node knows none";
        Members, "members", "nodes of the cluster";
        Names, "names", "names in the cluster's directory";
        FileBytes, "file_bytes", "bytes that segments in files may take";
        FileBytesUsed, "file_bytes_used", "bytes that segments in files take, with what they keep";
        Majority, "majority", "1 if this node belongs to a cluster of which most voters can be reached";
    }
}

named! {
    /// What a client asks for. The place is the operation's number in a request; the first is for what is none.
    Kind {
        Unknown, "unknown", "what was no request";
        Null, "null", "nothing: a round trip";
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
        Stat, "stat", "the facts of a segment";
        Permit, "permit", "other permissions";
    }
}

named! {
    /// Where a request was answered.
    Road {
        Here, "here", "by this node alone";
        Away, "away", "with the help of another node";
    }
}

named! {
    /// A piece of a request's way.
    Step {
        Submit, "submit", "from the client's ring into the daemon's hands";
        Post, "post", "until it is posted to another node, or has to wait; of a request that waits for nobody, until it is answered";
        Complete, "complete", "until what it waited for is there";
        Reply, "reply", "until the answer is out";
        Total, "total", "from the client's ring (where that is not known, from the daemon's hands) until the answer is out";
    }
}

named! {
    /// How requests of one kind ended.
    Tally {
        Done, "done", "it happened";
        Failed, "failed", "it certainly did nothing";
        Indeterminate, "indeterminate", "it may have happened";
        Bytes, "bytes", "bytes that those which happened moved";
        Waited, "waited", "those that were not answered at once";
    }
}

impl Kind {
    /// Of a request's number.
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }
}
