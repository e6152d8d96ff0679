//! Configuration of a daemon. Every field has a working default; the flags of `ddssd` set these fields.

use super::host_port::HostPort;
use super::quota_rules::QuotaTable;
use crate::auth::ClusterKey;
use crate::control::shard_address;
use crate::cpu_placement;
use crate::node::StartError;
use crate::peers::fabric::FabricChoice;
use crate::storage::file_segments::UncleanFiles;
use crate::storage::state_dir::shard_folder;
use ddss_core::limits::{BLOCK_BYTES, PLANES_MAX};
use ddss_core::{NodeId, Shard};
use ddss_runtime::IdleConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Cores of the progress threads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CoreChoice {
    /// The last cores that no other daemon of this machine has claimed, and never the first; spread over the memory
    /// nodes.
    #[default]
    Auto,
    /// This core, for a single progress thread.
    Core(usize),
    /// These cores, one for each progress thread.
    Cores(Vec<usize>),
    /// Unpinned: the kernel places the threads.
    Unpinned,
}

impl FromStr for CoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(CoreChoice::Auto),
            "none" => Ok(CoreChoice::Unpinned),
            numbers => {
                let cores: Result<Vec<usize>, _> = numbers.split(',').map(str::parse).collect();
                match cores.as_deref() {
                    Ok([core]) => Ok(CoreChoice::Core(*core)),
                    Ok(cores) => Ok(CoreChoice::Cores(cores.to_vec())),
                    Err(_) => {
                        Err(format!("{text:?} is no core: give a number, auto, or none (with several threads: 2,3)"))
                    }
                }
            }
        }
    }
}

impl fmt::Display for CoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoreChoice::Auto => f.write_str("auto"),
            CoreChoice::Core(core) => write!(f, "{core}"),
            CoreChoice::Cores(cores) => {
                f.write_str(&cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            CoreChoice::Unpinned => f.write_str("none"),
        }
    }
}

/// Another node and its listen address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerAddress {
    /// Node number.
    pub node: NodeId,
    /// Address of its first shard.
    pub address: SocketAddr,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no peer: give NODE=ADDRESS:PORT, as in 2=127.0.0.2:7400");
        let (node, address) = text.split_once('=').ok_or_else(wrong)?;
        let node = NodeId(node.parse().map_err(|_| wrong())?);
        let address = address.parse().map_err(|_| wrong())?;
        if node == NodeId::NONE { Err("node numbers begin at 1".to_owned()) } else { Ok(Self { node, address }) }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.node.0, self.address)
    }
}

/// Address of the metrics endpoint: an address and a port, or a loopback port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsAddress(pub SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = || text.parse().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let wrong = |_| format!("{text:?} is no address: give IP:PORT, or a port of this machine alone, as in 7480");
        text.parse().or_else(|_| port()).map(Self).map_err(wrong)
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Serializes types in files as on a command line.
macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }
    )*};
}

as_text!(CoreChoice, FabricChoice, MetricsAddress, PeerAddress, UncleanFiles);

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Node number.
    pub node: NodeId,
    /// Folder of the socket and the lock.
    pub folder: PathBuf,
    /// Folder of the shared memory; on a memory file system.
    pub memory_folder: PathBuf,
    /// Folder of the state that survives a restart.
    pub state_folder: PathBuf,
    /// Listen address for other nodes; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Fabric to the other nodes.
    pub fabric: FabricChoice,
    /// Fences the reads of an RDMA adapter; `None` decides by the type of the adapter.
    pub fence_reads: Option<bool>,
    /// Address for other nodes, if it differs from the listen address.
    pub advertise: Option<SocketAddr>,
    /// A node of the cluster to join.
    pub join: Option<HostPort>,
    /// True if `node` was configured; otherwise the cluster assigns a number at the join.
    pub is_node_named: bool,
    /// Founding nodes of a new cluster. The list may include this node, so that all nodes can share one list.
    pub peers: Vec<PeerAddress>,
    /// Cluster key. Without one the node is alone and does not listen.
    pub key: Option<ClusterKey>,
    /// Number of progress threads; segments are distributed over them by name.
    pub progress_threads: u8,
    /// Cores of the progress threads.
    pub core: CoreChoice,
    /// Behaviour of an idle progress thread.
    pub pace: IdleConfig,
    /// Size of the memory pool for segments.
    pub pool_bytes: u64,
    /// Size limit of segments in files.
    pub file_bytes: u64,
    /// Treatment of file segments after the machine ended before the daemon did.
    pub unclean_files: UncleanFiles,
    /// Discards the segments of an earlier daemon at the start, and this daemon's at its end. Otherwise they stay for
    /// the next daemon.
    pub discard: bool,
    /// Grace period for pending requests at a stop.
    pub drain: Duration,
    /// Set by a signal handler to stop a daemon that is still starting: it then waits for no cluster.
    pub stop_requested: Arc<AtomicBool>,
    /// Allows the clients' socket to be inherited by socket activation.
    pub inherit_socket: bool,
    /// Permission bits of the socket.
    pub socket_mode: u32,
    /// Limits of each user.
    pub quotas: QuotaTable,
    /// Address of the metrics endpoint, if it is enabled.
    pub metrics: Option<SocketAddr>,
    /// Permission bits of the status page.
    pub status_mode: u32,
}

impl Config {
    /// Default listen port.
    pub const PORT: u16 = 7400;
    /// Default pool size. Pages are taken as segments are allocated.
    pub const POOL_BYTES: u64 = 256 << 20;

    /// Default size of all segments in files. Pages are taken as segments are allocated.
    pub const FILE_BYTES: u64 = 1 << 30;
    /// Default grace period: as long as a call without a deadline.
    pub const DRAIN: Duration = Duration::from_secs(2);

    /// Returns the configuration of a standalone node, reachable only from this machine, with all files in one folder.
    pub fn single(folder: &Path) -> Self {
        Self {
            node: NodeId(1),
            folder: folder.to_owned(),
            memory_folder: folder.join("memory"),
            state_folder: folder.join("state"),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertise: None,
            join: None,
            is_node_named: true,
            fabric: FabricChoice::Auto,
            fence_reads: None,
            peers: Vec::new(),
            key: None,
            progress_threads: 1,
            core: CoreChoice::Auto,
            pace: IdleConfig::default(),
            pool_bytes: Self::POOL_BYTES,
            file_bytes: Self::FILE_BYTES,
            unclean_files: UncleanFiles::Refuse,
            discard: true,
            drain: Self::DRAIN,
            stop_requested: Arc::default(),
            inherit_socket: false,
            socket_mode: 0o600,
            quotas: QuotaTable::default(),
            metrics: None,
            status_mode: 0o600,
        }
    }

    /// Checks the values, without access to the system's state.
    pub fn check(&self) -> Result<(), StartError> {
        let good = |node: NodeId| node != NodeId::NONE && usize::from(node.0) <= ddss_core::limits::NODES_MAX;
        if !good(self.node) {
            return Err(StartError::BadNode(self.node));
        }
        if self.progress_threads == 0 || usize::from(self.progress_threads) > PLANES_MAX {
            return Err(StartError::ProgressThreads(self.progress_threads));
        }
        cpu_placement::check(&self.core, self.progress_threads)?;
        let least = u64::from(self.progress_threads) * BLOCK_BYTES as u64;
        if self.pool_bytes < least {
            return Err(StartError::PoolBytes { bytes: self.pool_bytes, threads: self.progress_threads, least });
        }
        if self.key.is_none() && (self.join.is_some() || !self.peers.is_empty()) {
            return Err(StartError::NoKey { state_folder: self.state_folder.clone() });
        }
        for (index, peer) in self.peers.iter().enumerate() {
            let again = self.peers[..index].iter().any(|other| other.node == peer.node);
            if !good(peer.node) {
                return Err(StartError::BadNode(peer.node));
            }
            if again {
                return Err(StartError::BadPeer(peer.node));
            }
        }
        Ok(())
    }

    /// Returns the configuration of one shard: its own memory folder and address, and its part of the bytes.
    pub(crate) fn for_shard(&self, shard: Shard) -> Self {
        let mut config = self.clone();
        config.memory_folder = shard_folder(&self.memory_folder, shard.index());
        config.listen = shard_address(self.listen, shard.index());
        config.pool_bytes = self.pool_bytes / u64::from(shard.count());
        config.file_bytes = self.file_bytes / u64::from(shard.count());
        config
    }

    /// Returns the path of the clients' socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(ddss_ipc::SOCKET_NAME)
    }
}

/// File in the state folder with the address to join, for a node that has not joined yet.
pub const JOIN_FILE_NAME: &str = "join";

/// Environment variable that names the state folder.
pub const STATE_VARIABLE: &str = "DDSS_STATE_DIR";

/// Returns the default state folder: below the daemon's folder if that was named, else the user's usual state folder
/// (socket folders are often emptied at boot).
pub fn default_state_folder(folder: Option<&Path>) -> PathBuf {
    let user_state = || {
        let named = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
        named.or_else(home).map(|base| base.join("ddss"))
    };
    match folder {
        Some(folder) => folder.join("state"),
        None if rustix::process::getuid().is_root() => "/var/lib/ddss".into(),
        None => user_state().unwrap_or_else(|| ddss_ipc::default_folder().join("state")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_and_core_choice_parse() {
        // If this broke, a cluster could not be configured, or a typo would be taken for a node.
        let peer: PeerAddress = "2=127.0.0.2:7400".parse().unwrap();
        assert_eq!((peer.node, peer.address.port()), (NodeId(2), 7400));
        for wrong in ["", "2", "x=127.0.0.1:1", "2=localhost", "2=127.0.0.1", "0=127.0.0.1:1", "70000=127.0.0.1:1"] {
            assert!(wrong.parse::<PeerAddress>().is_err(), "{wrong:?}");
        }
        assert_eq!("3".parse(), Ok(CoreChoice::Core(3)));
        let two: CoreChoice = "2,3".parse().unwrap();
        assert_eq!((two.to_string().as_str(), two), ("2,3", CoreChoice::Cores(vec![2, 3])));
        assert_eq!("none".parse(), Ok(CoreChoice::Unpinned));
        assert!("fast".parse::<CoreChoice>().is_err());
    }
}
