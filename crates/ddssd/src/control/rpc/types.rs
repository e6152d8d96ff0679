//! Calls and replies between control planes.

use crate::control::identity::member::Member;
use crate::control::identity::member::Registration;
use crate::control::raft::types::{Command, CommandResult, Group, LogId};
use crate::control::rpc::name_sample::NameSample;
use ddss_admin::NodeRelease;
use openraft::error::{ClientWriteError, InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use serde::{Deserialize, Serialize};
use std::io;

/// A call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// A call of the Raft protocol itself.
    Append(AppendEntriesRequest<Group>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Group>),
    /// To the leader: changes the directory.
    Propose(Command),
    /// To the leader: returns the newest committed log id.
    Newest,
    /// To the leader: returns the newest log id that it has applied, if most voters follow it.
    HasMajority,
    /// To the leader: several short calls with one reply.
    Batch(Vec<Call>),
    /// To the leader: renews the lease of a home of replicated segments.
    Renew {
        node: u16,
        run: u32,
    },
    /// To the leader: a progress thread of this run is stalled, and its lease has expired.
    Stalled {
        node: u16,
        run: u32,
    },
    /// To any node: returns the known registration of a starting node.
    WhoIs {
        node: u16,
        registration: Registration,
    },
    /// To the leader: adds a node; without an id it gets the lowest free one.
    Join {
        node: Option<u16>,
        member: Member,
    },
    /// To the leader: announces a member with its address and run.
    Announce {
        node: u16,
        member: Member,
        run: u32,
    },
    /// To the leader: removes a member. The member asks itself (`leaves`), or an operator says that it will not come
    /// back. Force also removes a live member, or one whose segments would be lost.
    Remove {
        node: u16,
        force: bool,
        leaves: bool,
    },
    /// To any member: returns `NotMember` if the caller is no member; does nothing else.
    Probe,
    /// To a node: the cluster has removed it.
    NotifyRemoved {
        node: u16,
    },
    /// To the leader: hands the leadership over to a voter.
    Transfer {
        node: u16,
    },
    /// From the leader of that term to a voter: begins an election, and returns once the voter leads.
    Elect {
        term: u64,
    },
    /// To any member: returns its release and its protocols. A node of protocol 16 does not know this call, and ends the
    /// stream.
    Release,
}

impl Call {
    /// Returns true if the call takes at most one Raft round, so that it may be batched.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Call::Propose(_) | Call::Newest)
    }
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Snapshot(Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>),
    Applied(CommandResult),
    Newest(Option<LogId>),
    /// Most voters follow this leader: its newest log id, and its clock in microseconds since 1970.
    HasMajority {
        newest: Option<LogId>,
        clock_us: i64,
    },
    /// One reply for each call of a batch, in their order.
    Batch(Vec<Reply>),
    Joined {
        node: u16,
        /// Id of the cluster.
        #[serde(default)]
        cluster: u64,
    },
    Done,
    /// No objection to a node: whether it has registered before, and its address.
    Known {
        registered: bool,
        member: Option<Member>,
    },
    /// The node is removed; `dropped` segments are lost.
    Removed {
        dropped: usize,
        /// Replicated segments whose copy on that node has not been replaced.
        #[serde(default)]
        uncopied: NameSample,
    },
    /// This node is not the leader; contains the leader, if known.
    NotLeader(Option<Member>),
    /// Refused for good: a retry changes nothing.
    Refused(String),
    /// Not possible now; a retry may succeed.
    NotNow(String),
    /// Not started: the leader does not reach a majority.
    NoMajority,
    /// Not started: the leader has no disk space for its log.
    LogFull,
    /// The caller was removed from the cluster; it gets no other reply.
    NotMember,
    /// The caller's cluster was recovered as another one; it gets no other reply.
    Superseded(String),
    /// Release and protocols of this node.
    Release(NodeRelease),
}

/// Returns the reply to a call that is not possible now.
pub(crate) fn not_now_reply(error: impl std::fmt::Display) -> Reply {
    Reply::NotNow(error.to_string())
}

/// Converts the error of a failed change to a reply.
pub(crate) fn write_error_reply(error: &RaftError<u64, ClientWriteError<u64, Member>>) -> Reply {
    match error.forward_to_leader() {
        Some(forward) => Reply::NotLeader(forward.leader_node),
        None => not_now_reply(error),
    }
}

pub(crate) fn wrong_reply_type() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a reply of the wrong type")
}
