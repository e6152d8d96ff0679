//! Arguments of the commands about a cluster.

use super::values::node;
use super::{DaemonOptions, StateOptions};
use crate::examples;
use clap::{Args, Subcommand};
use ddss::NodeId;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    #[command(flatten)]
    Membership(MembershipCommand),
    #[command(flatten)]
    Backup(BackupCommand),
}

/// Commands about the whole of a cluster's segments.
#[derive(Subcommand, Debug)]
pub(crate) enum BackupCommand {
    /// Write all segments of the running cluster into one file
    #[command(after_help = examples::CLUSTER_SNAPSHOT)]
    Snapshot(SnapshotOptions),
    /// Make the segments of a snapshot in a new cluster
    #[command(after_help = examples::CLUSTER_RESTORE)]
    Restore(RestoreOptions),
    /// Begin a new cluster with the segments of this node, when most voters are lost
    #[command(after_help = examples::CLUSTER_RECOVER)]
    Recover(RecoverOptions),
}

/// Commands about the nodes of a cluster.
#[derive(Subcommand, Debug)]
pub(crate) enum MembershipCommand {
    /// Create the key of a new cluster on this node
    #[command(after_help = examples::CLUSTER_INIT)]
    Init(StateOptions),
    /// Print the cluster key for another node; it is the cluster's only secret
    #[command(after_help = examples::CLUSTER_TOKEN)]
    Token(StateOptions),
    /// Prepare this node to join a cluster when its daemon starts
    #[command(after_help = examples::CLUSTER_JOIN)]
    Join(JoinOptions),
    /// Let a voter lead the cluster
    #[command(after_help = examples::CLUSTER_LEAD)]
    Lead(LeadOptions),
    /// Remove the node of the running daemon from its cluster, with the names of its segments
    #[command(after_help = examples::CLUSTER_LEAVE)]
    Leave(LeaveOptions),
    /// Remove a node that will not come back, with the names of its segments
    #[command(after_help = examples::CLUSTER_REMOVE)]
    Remove(RemoveOptions),
    /// Show the leader, the voters and the live nodes
    #[command(after_help = examples::CLUSTER_STATUS)]
    Status(DaemonOptions),
}

#[derive(Args, Debug)]
pub(crate) struct JoinOptions {
    /// Address on which a node of the cluster listens
    pub(crate) address: ddss_admin::HostPort,
    /// Token that `ddss cluster token` prints there; `-` reads it from standard input
    pub(crate) token: String,
    #[command(flatten)]
    pub(crate) state: StateOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LeadOptions {
    /// Node number
    #[arg(value_parser = node)]
    pub(crate) node: NodeId,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LeaveOptions {
    /// Leave even if segments exist only on this node; they are lost
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveOptions {
    /// Node number
    #[arg(value_parser = node)]
    pub(crate) node: NodeId,
    /// Remove the node even if it is alive: its daemon ends, and segments that exist only there are lost
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotOptions {
    /// Path of the file, which is replaced when the snapshot is complete
    pub(crate) file: PathBuf,
    /// Only segments whose names match: `*` is any run of characters, `?` any one
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Only names, kinds, models, owners and copies
    #[arg(long)]
    pub(crate) no_bytes: bool,
    /// Lock each table while it is read, so that its rows belong to one moment
    #[arg(long, conflicts_with = "no_bytes")]
    pub(crate) lock: bool,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct RecoverOptions {
    /// Do it [default: show what lives and what is lost]
    #[arg(long)]
    pub(crate) yes: bool,
    /// Join the new cluster of another survivor, with the segments of this node
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: Option<ddss_admin::HostPort>,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    /// Folder of the segments in memory [default: that of ddssd]
    #[arg(long, value_name = "DIR")]
    pub(crate) memory_dir: Option<PathBuf>,
    /// Settings of the daemon [default: that of ddssd]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreOptions {
    /// Path of the file
    pub(crate) file: PathBuf,
    /// Keep segments that exist, and restore the others
    #[arg(long)]
    pub(crate) skip_existing: bool,
    /// Restore only segments whose names match; `*` is any run of characters, `?` any one
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Only verify the file; no daemon is asked
    #[arg(long, conflicts_with = "skip_existing")]
    pub(crate) check: bool,
    /// Make the segments of a snapshot without bytes; they are zero
    #[arg(long)]
    pub(crate) empty: bool,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}
