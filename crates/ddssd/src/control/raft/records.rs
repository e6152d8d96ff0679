//! Records of the directory, and the changes that its subscribers hear of.

use serde::{Deserialize, Serialize};

/// The owner of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NameOwner {
    pub(crate) home: u16,
    /// The home's id of this claim; a name that is created again has another claim.
    pub(crate) claim: u64,
    /// The replica of the segment, if the cluster knows one.
    #[serde(default, rename = "mirrored")]
    pub(crate) roles: Option<ReplicaRecord>,
}

/// Decided roles of a replicated segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReplicaRecord {
    pub(crate) segment: u64,
    #[serde(rename = "mirror")]
    pub(crate) replica: u16,
    /// Number of the home: each takeover increments it.
    pub(crate) epoch: u32,
    /// Number of decisions that this home has proposed.
    pub(crate) turn: u64,
    /// True if the replica may take over.
    pub(crate) paired: bool,
    /// True if the home has lost the segment.
    pub(crate) vacant: bool,
}

impl ReplicaRecord {
    /// Returns true if the home has lost the segment, and the replica should take over.
    pub(crate) fn is_lost_at_home(&self) -> bool {
        self.vacant && self.paired
    }
}

/// Agreed status of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Incremented each time that the node is found alive again: a death is declared once in each epoch.
    pub(crate) epoch: u64,
    pub(crate) alive: bool,
    pub(crate) run: u32,
}

/// A change of the directory, for its subscribers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DirectoryChange {
    Name {
        name: String,
        home: Option<u16>,
    },
    Dead(u16),
    Alive(u16),
    RoleAssigned {
        home: u16,
        roles: ReplicaRecord,
    },
    RoleReleased {
        segment: u64,
    },
    /// A node was removed.
    Removed(u16),
}
