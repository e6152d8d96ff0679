//! Recovery of a cluster whose voters are lost: the actions of `ddssd` for `ddss cluster recover`, and its report.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Action on a survivor whose daemon is stopped.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryMode {
    /// Report what a recovery would keep.
    List,
    /// Begin a new cluster on this node.
    Begin,
    /// Join the new cluster of another survivor with the segments of this node.
    Rejoin,
}

/// Part of a cluster that a survivor has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Id of the survivor.
    pub node: u16,
    /// Term of the last entry of its log.
    pub term: u64,
    /// Index of that entry: the survivor with the latest one knows most.
    pub index: u64,
    /// Folder in which its segments in memory were looked for.
    pub memory: String,
    /// All members, this one too.
    pub members: Vec<SurvivorReport>,
    /// Segments whose home is this node.
    pub here: Vec<RecoveredName>,
    /// Segments of other nodes with a replica in sync on this one, which takes over.
    pub taken_over: Vec<RecoveredName>,
    /// Segments that only other nodes have.
    pub elsewhere: Vec<RecoveredName>,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SurvivorReport {
    /// Node id.
    pub node: u16,
    /// Address of its data plane.
    pub address: SocketAddr,
    /// True if the node votes.
    pub voter: bool,
    /// True if its daemon answers.
    pub answers: bool,
}

/// A name of the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveredName {
    /// Name of the segment.
    pub name: String,
    /// Id of its home.
    pub home: u16,
}
