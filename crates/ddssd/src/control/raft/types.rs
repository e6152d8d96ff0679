//! Types of the Raft group: commands, their results, and the bindings to the Raft library.

use crate::control::identity::member::{Member, Registration};
use ddss_core::Name;
use ddss_core::limits::NODES_MAX;
use serde::{Deserialize, Serialize};
use std::io::Cursor;

openraft::declare_raft_types!(
    /// Type configuration of the one Raft group of a cluster.
    pub(crate) Group:
        D = Command,
        R = CommandResult,
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

/// A change of the directory. Commands are idempotent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Claims a name for a segment of the home.
    Claim { name: String, home: u16, claim: u64 },
    /// Gives a claimed name back.
    Disclaim { name: String, claim: u64 },
    /// A node is alive, in this run of its daemon.
    Alive { node: u16, run: u32 },
    /// Registers a start of a node; earlier starts under its id become invalid.
    Register { node: u16, registration: Registration },
    /// A node does not answer in this epoch.
    Dead { node: u16, epoch: u64 },
    /// A node left for good. Its segments go with it, except those whose replicas take over.
    Gone { node: u16 },
    /// From the home, in this run: the replica has all acknowledged data and may take over.
    Pair {
        name: String,
        home: u16,
        run: u32,
        segment: u64,
        epoch: u32,
        turn: u64,
        #[serde(rename = "mirror")]
        replica: u16,
    },
    /// From the home: the replica may not take over.
    Part { name: String, home: u16, run: u32, epoch: u32, turn: u64 },
    /// From the replica: the home of that epoch is dead, or has lost the segment.
    TakeOver { name: String, node: u16, epoch: u32, claim: u64 },
    /// From the last home of a segment in an earlier cluster, whose state is lost: it had taken the segment over. Homes of
    /// earlier epochs lack what was put since.
    Reclaim { name: String, node: u16, segment: u64, epoch: u32, claim: u64 },
    /// From the home: it has lost the segment.
    Yield { name: String, home: u16, epoch: u32 },
    /// From the node that should take a segment over and has no copy, or from the leader if that node is out: no node has
    /// it under these roles.
    GiveUp { name: String, epoch: u32, turn: u64 },
}

impl Command {
    /// Checks the fields of a command, because another node sent it.
    pub(crate) fn is_valid(&self) -> bool {
        let is_node = |node: u16| node != 0 && usize::from(node) <= NODES_MAX;
        match self {
            Command::Claim { name, home, .. } => Name::new(name).is_ok() && is_node(*home),
            Command::Disclaim { name, .. } | Command::GiveUp { name, .. } => Name::new(name).is_ok(),
            Command::Pair { name, home, replica, .. } => {
                Name::new(name).is_ok() && is_node(*home) && is_node(*replica) && home != replica
            }
            Command::Part { name, home: node, .. }
            | Command::TakeOver { name, node, .. }
            | Command::Yield { name, home: node, .. } => Name::new(name).is_ok() && is_node(*node),
            Command::Reclaim { name, node, epoch, .. } => {
                Name::new(name).is_ok() && is_node(*node) && (2..u32::MAX / 2).contains(epoch)
            }
            Command::Alive { node, .. }
            | Command::Register { node, .. }
            | Command::Dead { node, .. }
            | Command::Gone { node } => is_node(*node),
        }
    }

    /// Returns the name whose home or replication the command may change.
    pub(crate) fn replicated_name(&self) -> Option<&str> {
        match self {
            Command::Disclaim { name, .. }
            | Command::GiveUp { name, .. }
            | Command::Pair { name, .. }
            | Command::TakeOver { name, .. }
            | Command::Reclaim { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Returns the nodes that would gain a name, a status or a replica. They must be members.
    pub(crate) fn target_nodes(&self) -> [Option<u16>; 2] {
        match *self {
            Command::Claim { home: node, .. }
            | Command::Alive { node, .. }
            | Command::Register { node, .. }
            | Command::Part { home: node, .. }
            | Command::TakeOver { node, .. }
            | Command::Reclaim { node, .. }
            | Command::Yield { home: node, .. } => [Some(node), None],
            Command::Pair { home, replica, .. } => [Some(home), Some(replica)],
            Command::Disclaim { .. } | Command::GiveUp { .. } | Command::Dead { .. } | Command::Gone { .. } => {
                [None; 2]
            }
        }
    }
}

/// Result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum CommandResult {
    /// Applied now or earlier.
    #[default]
    Done,
    /// Another claim holds the name.
    Taken { home: u16 },
    /// The home has reached its limit of names.
    Full,
    /// The command is outdated.
    Refused,
}
