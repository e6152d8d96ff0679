//! The words of the Raft group.

use crate::control::membership::incarnation::Registration;
use ddss_core::Name;
use ddss_core::limits::NODES_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Cursor;
use std::net::SocketAddr;

openraft::declare_raft_types!(
    /// The types of the one group that a cluster has.
    pub(crate) Group:
        D = Command,
        R = Answer,
        NodeId = u64,
        Node = Member,
        Entry = openraft::Entry<Group>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

pub(crate) type Raft = openraft::Raft<Group>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<Group>;
pub(crate) type Membership = openraft::StoredMembership<u64, Member>;
pub(crate) type StorageError = openraft::StorageError<u64>;

/// A node of the cluster: where its data plane listens. Its control plane is one port above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
}

impl Default for Member {
    fn default() -> Self {
        Self { address: SocketAddr::from(([0, 0, 0, 0], 0)) }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// What changes the directory. Each can be said twice and happens once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// The home wants this name for a segment of its own.
    Claim { name: String, home: u16, claim: u64 },
    /// It has no use for that claim any more.
    Disclaim { name: String, claim: u64 },
    /// A node is there, in this run of its daemon.
    Alive { node: u16, run: u32 },
    /// A node was started so. What another one was started as under its number counts no more.
    Register { node: u16, registration: Registration },
    /// A node does not answer in this epoch of its life.
    Dead { node: u16, epoch: u64 },
    /// A node left for good, and its segments with it, but for those whose mirrors take over.
    Gone { node: u16 },
    /// Said by the home of a segment in that run: the mirror has all that was acknowledged and may take over.
    Pair { name: String, home: u16, run: u32, segment: u64, epoch: u32, turn: u64, mirror: u16 },
    /// Said by the home: the mirror may not take over.
    Part { name: String, home: u16, run: u32, epoch: u32, turn: u64 },
    /// Said by the mirror: the home of that epoch is dead, or has lost the segment.
    TakeOver { name: String, node: u16, epoch: u32, claim: u64 },
    /// Said by the home: it has lost the segment.
    Yield { name: String, home: u16, epoch: u32 },
}

impl Command {
    /// Whether every part of it can be: another node said it.
    pub(crate) fn makes_sense(&self) -> bool {
        let is_node = |node: u16| node != 0 && usize::from(node) <= NODES_MAX;
        match self {
            Command::Claim { name, home, .. } => Name::new(name).is_ok() && is_node(*home),
            Command::Disclaim { name, .. } => Name::new(name).is_ok(),
            Command::Pair { name, home, mirror, .. } => {
                Name::new(name).is_ok() && is_node(*home) && is_node(*mirror) && home != mirror
            }
            Command::Part { name, home: node, .. }
            | Command::TakeOver { name, node, .. }
            | Command::Yield { name, home: node, .. } => Name::new(name).is_ok() && is_node(*node),
            Command::Alive { node, .. }
            | Command::Register { node, .. }
            | Command::Dead { node, .. }
            | Command::Gone { node } => is_node(*node),
        }
    }

    /// The nodes that it would give something to, if it names any: a name, a life, a copy. They have to be members.
    pub(crate) fn gives_to(&self) -> [Option<u16>; 2] {
        match *self {
            Command::Claim { home: node, .. }
            | Command::Alive { node, .. }
            | Command::Register { node, .. }
            | Command::Part { home: node, .. }
            | Command::TakeOver { node, .. }
            | Command::Yield { home: node, .. } => [Some(node), None],
            Command::Pair { home, mirror, .. } => [Some(home), Some(mirror)],
            Command::Disclaim { .. } | Command::Dead { .. } | Command::Gone { .. } => [None; 2],
        }
    }
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It happened, or had happened.
    #[default]
    Done,
    /// Another claim holds that name.
    Taken { home: u16 },
    /// The home has as many names as it can have segments.
    Full,
    /// It is not so any more.
    Refused,
}
