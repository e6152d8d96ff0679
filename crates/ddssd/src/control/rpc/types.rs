//! What one control plane asks another.

use crate::control::membership::incarnation::Registration;
use crate::control::raft::types::{Answer, Command, Group, LogId, Member};
use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Raft's own.
    Append(AppendEntriesRequest<Group>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Group>),
    /// To the leader: change the directory.
    Propose(Command),
    /// To the leader: what is the newest that was decided?
    Newest,
    /// To the leader: do most voters follow it?
    HasMajority,
    /// To the leader: several short calls, answered together.
    Batch(Vec<Call>),
    /// To the leader: this node is there, in this run, and wants to go on as the home of mirrored segments.
    Renew {
        node: u16,
        run: u32,
    },
    /// To the leader: a progress thread of this node hangs in this run, and its lease is over.
    Stalled {
        node: u16,
        run: u32,
    },
    /// To any node: what is known of this one, which is about to begin so?
    WhoIs {
        node: u16,
        registration: Registration,
    },
    /// To the leader: take a node in; without a number it gets the lowest that is free.
    Join {
        node: Option<u16>,
        member: Member,
    },
    /// To the leader: this member is there, at this place, in this run.
    Announce {
        node: u16,
        member: Member,
        run: u32,
    },
    /// To the leader: take this member out. It asks so itself (`leaves`), or an operator says that it will not come back. With
    /// force also if segments go with it, and a member that is alive.
    Remove {
        node: u16,
        force: bool,
        leaves: bool,
    },
    /// To any member: is the one who asks one, too? Nothing else is asked.
    Probe,
    /// To a node that the cluster has removed.
    NotifyRemoved {
        node: u16,
    },
}

impl Call {
    /// Whether it takes one round of the group at the most, so that it may travel in a batch.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Call::Propose(_) | Call::Newest)
    }
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Snapshot(Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>),
    Applied(Answer),
    Newest(Option<LogId>),
    Majority(bool),
    /// To each call of a batch, in their order.
    Batch(Vec<Reply>),
    Joined {
        node: u16,
    },
    Done,
    /// Nothing is known that speaks against a node: whether it has registered before, and where it is.
    Known {
        registered: bool,
        member: Option<Member>,
    },
    /// It is out, and so many segments with it.
    Removed {
        dropped: usize,
    },
    /// Ask that one, if there is one.
    NotLeader(Option<Member>),
    /// It cannot be, and asking again changes nothing.
    Refused(String),
    /// It may be later.
    NotNow(String),
    /// Not begun: most voters do not answer the leader.
    NoMajority,
    /// The leader has no room to write it down.
    LogFull,
    /// The cluster has removed the one who asks: nothing is answered to it any more.
    NotMember,
}
