//! Failure to start a node.

use crate::storage::pool_error::PoolError;
use crate::storage::state_dir::StateDirError;
use ddss_admin::ExitReason;
use ddss_admin::{HostPort, KeyError};
use ddss_core::NodeId;
use ddss_core::limits::SHARDS_MAX;
use ddss_runtime::RuntimeError;
use ddss_verbs::FabricError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Failure to start a node, or to stop it cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The node number is out of range.
    #[error("{0} is out of range: nodes are numbered from 1 to 1024 (--node)")]
    BadNode(NodeId),
    /// The number of progress threads is out of range.
    #[error("{0} progress threads are out of range: give 1 to {SHARDS_MAX} (--progress-threads)")]
    ProgressThreads(u8),
    /// The number of named cores differs from the number of progress threads.
    #[error(
        "--core names {named} of the {threads} cores that --progress-threads needs: name as many, or auto, or none"
    )]
    Cores {
        /// Number of named cores.
        named: usize,
        /// Number of progress threads.
        threads: u8,
    },
    /// This process may not run on a named core.
    #[error(
        "core {core} is not available to this process (available: {allowed}): name another with --core, or auto, or widen \
         what taskset, the unit or the container allows"
    )]
    NoSuchCore {
        /// The named core.
        core: usize,
        /// Cores that this process may use.
        allowed: String,
    },
    /// The pool is too small to hold a segment for each shard.
    #[error(
        "{bytes} bytes of memory hold no segment for each of {threads} progress threads: give --pool-bytes {least} at least"
    )]
    PoolBytes {
        /// Configured size of the pool.
        bytes: u64,
        /// Number of progress threads that share the pool.
        threads: u8,
        /// Smallest size that suffices.
        least: u64,
    },
    /// The configuration names peers, but there is no cluster key.
    #[error("--listen, --peer and --join need a cluster key, and there is none in {}: `ddss cluster init` makes one, `ddss cluster token` shows it for the other nodes", state_folder.display())]
    NoKey {
        /// Folder in which the key is expected.
        state_folder: PathBuf,
    },
    /// The cluster key is unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The peer list names a node twice.
    #[error("the peers name {0} twice: name each node once (--peer)")]
    BadPeer(NodeId),
    /// A quota rule is invalid.
    #[error("quota: {0}")]
    Quota(String),
    /// A folder of the node is unusable.
    #[error(transparent)]
    Folder(#[from] StateDirError),
    /// The fabric cannot register an area of shared memory.
    #[error("cannot register an area of shared memory with the fabric: {0}")]
    Area(String),
    /// The memory of the node is unusable.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// Listening for other nodes failed.
    #[error("cannot listen on {address}: is the address one of this machine's, and the port free (ss -ltnp)?")]
    Listen {
        /// Address of the listener.
        address: SocketAddr,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Opening the clients' socket failed.
    #[error("cannot open the clients' socket at {}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The network stack is unusable.
    #[error("cannot set up the network (too many open files? see ulimit -n)")]
    Network(#[source] io::Error),
    /// An RDMA adapter was requested, but none is usable.
    #[error("cannot use an rdma adapter (--fabric auto or iwarp does without)")]
    Adapter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The fabric reported an error.
    #[error("cannot set up the fabric")]
    Fabric(#[from] FabricError),
    /// The listen address is not reachable for other nodes.
    #[error("{address} is not reachable for other nodes: give the address of this node with --advertise")]
    Advertise {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// The state folder belongs to another node.
    #[error("{} holds the state of {found}: start it without --node {}, or with another --state-dir", path.display(), named.0)]
    OtherNode {
        /// Path of the state folder.
        path: PathBuf,
        /// Node that owns the folder.
        found: NodeId,
        /// Node that the configuration names.
        named: NodeId,
    },
    /// The node has left its cluster, and no address to join is configured.
    #[error("this node has left its cluster: --join HOST:PORT takes it into one; without {}/cluster.key it is alone, and `ddss cluster init` then begins another cluster", state_folder.display())]
    Left {
        /// Folder that records the departure.
        state_folder: PathBuf,
    },
    /// The segments of the last start are in another folder.
    #[error("the segments of this node are in {}, and it would start without them in {}: name that --memory-dir again, or drop them with --discard", last.display(), named.display())]
    OtherMemory {
        /// Memory folder of the last start.
        last: PathBuf,
        /// Memory folder that the configuration names.
        named: PathBuf,
    },
    /// There is a key and no state, and nothing says whether to join a cluster or to begin one.
    #[error("this node has a cluster key and no cluster: --join HOST:PORT takes it into the one that it belonged to, under a new number; an empty file {}/found, as `ddss cluster init` makes it, begins a new one with this key; so does --peer, the list of founders", state_folder.display())]
    NoCluster {
        /// Folder that holds the key and no state.
        state_folder: PathBuf,
    },
    /// There is no cluster to recover.
    #[error("{} does not hold the state of a member of a cluster: name the --state-dir of a survivor", state_folder.display())]
    NoState {
        /// State folder.
        state_folder: PathBuf,
    },
    /// The cluster is not lost.
    #[error(
        "{able} of {voters} voters work with this one, nothing was done: start this daemon again, the cluster works without a recovery"
    )]
    HasMajority {
        /// Voters that answer, and this node if it votes.
        able: usize,
        /// All voters.
        voters: usize,
    },
    /// The persistent cluster state is unusable.
    #[error("cannot use the cluster's state in {}", path.display())]
    State {
        /// Folder of the state.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The thread or a task of the control plane could not be started.
    #[error("cannot start the control plane: {0}")]
    Control(String),
    /// The daemon was told to stop before the cluster had admitted it.
    #[error("told to stop while joining the cluster at {address}")]
    Stopped {
        /// Address of the cluster.
        address: HostPort,
    },
    /// The cluster knows another node under this id.
    #[error("this node may not be node {node} with the state in {}: {why}", path.display())]
    Refused {
        /// Node id.
        node: u16,
        /// State folder.
        path: PathBuf,
        /// Reason of the failure.
        why: String,
    },
    /// The cluster could not be joined.
    #[error("cannot join the cluster at {address}: {why}")]
    Join {
        /// Address of the cluster.
        address: HostPort,
        /// Reason of the failure.
        why: String,
    },
    /// The cluster refuses this node for good.
    #[error("the cluster at {address} refuses this node: {why}")]
    JoinRefused {
        /// Address of the cluster.
        address: HostPort,
        /// Reason of the refusal.
        why: String,
    },
    /// A thread failed to start, or ended with an error.
    #[error(transparent)]
    Thread(#[from] RuntimeError),
}

impl StartError {
    /// Returns the exit code that scripts see.
    pub fn exit_code(&self) -> u8 {
        self.exit_reason().code()
    }

    /// Returns true if a stop signal ended the start, which is no error.
    pub fn is_stop(&self) -> bool {
        self.exit_reason() == ExitReason::Stopped
    }

    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::ProgressThreads(_) | Self::Cores { .. } | Self::NoSuchCore { .. } => ExitReason::Settings,
            Self::PoolBytes { .. } => ExitReason::Settings,
            Self::Memory(PoolError::OtherShardCount { .. }) => ExitReason::Settings,
            Self::BadNode(_) | Self::BadPeer(_) | Self::Advertise { .. } => ExitReason::Settings,
            Self::OtherNode { .. } | Self::Quota(_) | Self::Left { .. } => ExitReason::Settings,
            Self::NoCluster { .. } | Self::NoState { .. } | Self::HasMajority { .. } | Self::OtherMemory { .. } => {
                ExitReason::Settings
            }
            Self::Folder(StateDirError::InUse { .. }) => ExitReason::InUse,
            Self::Memory(PoolError::Folder(StateDirError::InUse { .. })) => ExitReason::InUse,
            Self::Folder(_) | Self::Memory(_) | Self::Area(_) | Self::Socket { .. } | Self::State { .. } => {
                ExitReason::Storage
            }
            Self::NoKey { .. } | Self::Key(_) => ExitReason::Key,
            Self::Listen { .. } | Self::Network(_) | Self::Adapter(_) => ExitReason::Network,
            Self::Stopped { .. } => ExitReason::Stopped,
            Self::Refused { .. } | Self::JoinRefused { .. } => ExitReason::Settings,
            Self::Control(_) | Self::Join { .. } => ExitReason::Network,
            Self::Thread(RuntimeError::Setup(inside)) => {
                inside.downcast_ref().map_or(ExitReason::Failure, Self::exit_reason)
            }
            _ => ExitReason::Failure,
        }
    }
}
