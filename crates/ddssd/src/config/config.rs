//! What a daemon is told. Every value has a default that works; the flags of `ddssd` are these fields.

use super::host_port::HostPort;
use super::quotas::QuotaTable;
use crate::auth::ClusterKey;
use crate::control::plane_address;
use crate::cpu_placement;
use crate::node::StartError;
use crate::peers::fabric::FabricChoice;
use crate::storage::files::UncleanFiles;
use crate::storage::state_dir::plane_folder;
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

/// On which cores the progress threads run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CoreChoice {
    /// The last cores that no other daemon of this machine took, and never the first; spread over the memory nodes.
    #[default]
    Sensible,
    /// This one, for the one progress thread.
    Core(usize),
    /// These, one for each progress thread.
    Cores(Vec<usize>),
    /// Wherever the kernel puts it.
    Unpinned,
}

impl FromStr for CoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(CoreChoice::Sensible),
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
            CoreChoice::Sensible => f.write_str("auto"),
            CoreChoice::Core(core) => write!(f, "{core}"),
            CoreChoice::Cores(cores) => {
                f.write_str(&cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            CoreChoice::Unpinned => f.write_str("none"),
        }
    }
}

/// Another node and where it listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerAddress {
    /// Which node.
    pub node: NodeId,
    /// Where.
    pub address: SocketAddr,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no peer: give NODE=ADDRESS:PORT, as in 2=127.0.0.2:7400");
        let (node, address) = text.split_once('=').ok_or_else(wrong)?;
        let node = NodeId(node.parse().map_err(|_| wrong())?);
        let address = address.parse().map_err(|_| wrong())?;
        if node == NodeId::NOBODY { Err("node numbers begin at 1".to_owned()) } else { Ok(Self { node, address }) }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.node.0, self.address)
    }
}

/// Where a monitor asks: an address and a port, or a port of this machine's loopback.
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

/// In files they are written as they are on a command line.
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

/// A daemon's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which node this is.
    pub node: NodeId,
    /// The folder of its socket and its lock.
    pub folder: PathBuf,
    /// The folder of its shared memory; on a memory file system.
    pub memory_folder: PathBuf,
    /// The folder of what survives a restart.
    pub state_folder: PathBuf,
    /// Where other nodes reach it; port 0 picks one.
    pub listen: SocketAddr,
    /// Over what it reaches the others, and they it.
    pub fabric: FabricChoice,
    /// Whether the reads of an RDMA adapter wait for each other; `None` asks what adapter it is.
    pub fence_reads: Option<bool>,
    /// Where other nodes find it, if that is not where it listens.
    pub advertise: Option<SocketAddr>,
    /// A node of the cluster to join.
    pub join: Option<HostPort>,
    /// Whether `node` was asked for; if not, a cluster that is joined gives a number.
    pub node_named: bool,
    /// The nodes with which a new cluster begins. This one may be among them, so that each node can have the same words.
    pub peers: Vec<PeerAddress>,
    /// The key of its cluster. Without one the node is alone, and listens to no other.
    pub key: Option<ClusterKey>,
    /// How many progress threads it has; its segments are shared out among them by their names.
    pub progress_threads: u8,
    /// Where they run.
    pub core: CoreChoice,
    /// How such a thread behaves when there is nothing to do.
    pub pace: IdleConfig,
    /// Bytes for segments.
    pub pool_bytes: u64,
    /// Bytes for segments in files.
    pub file_bytes: u64,
    /// What becomes of those when the machine ended before the daemon did.
    pub unclean_files: UncleanFiles,
    /// Whether the segments that an earlier daemon left are thrown away at the start, and those of this one at its end.
    /// Else they stay where they are, for the next daemon.
    pub discard: bool,
    /// How long what is under way may take to end when the daemon is told to stop.
    pub drain: Duration,
    /// Set from outside when the daemon is told to stop while it still starts: it waits for no cluster then.
    pub told_to_stop: Arc<AtomicBool>,
    /// Whether the clients' socket may be one that whoever started this process has made for it.
    pub inherit_socket: bool,
    /// Permission bits of the socket.
    pub socket_mode: u32,
    /// What each user may have.
    pub quotas: QuotaTable,
    /// Where a monitor asks over HTTP, if it may.
    pub metrics: Option<SocketAddr>,
    /// Permission bits of the page on which others see how the daemon is.
    pub status_mode: u32,
}

impl Config {
    /// The port that nodes listen on when none is named.
    pub const PORT: u16 = 7400;
    /// Bytes of the pool when nothing is said. They are taken as segments come.
    pub const POOL_BYTES: u64 = 256 << 20;

    /// Bytes of all segments in files when nothing is said. They are taken as segments come.
    pub const FILE_BYTES: u64 = 1 << 30;
    /// How long what is under way may take to end, when nothing is said: as long as a call that names no deadline.
    pub const DRAIN: Duration = Duration::from_secs(2);

    /// A node that is alone, reachable only from this machine, with everything it has in one folder.
    pub fn single(folder: &Path) -> Self {
        Self {
            node: NodeId(1),
            folder: folder.to_owned(),
            memory_folder: folder.join("memory"),
            state_folder: folder.join("state"),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertise: None,
            join: None,
            node_named: true,
            fabric: FabricChoice::Auto,
            fence_reads: None,
            peers: Vec::new(),
            key: None,
            progress_threads: 1,
            core: CoreChoice::Sensible,
            pace: IdleConfig::default(),
            pool_bytes: Self::POOL_BYTES,
            file_bytes: Self::FILE_BYTES,
            unclean_files: UncleanFiles::Refuse,
            discard: true,
            drain: Self::DRAIN,
            told_to_stop: Arc::default(),
            inherit_socket: false,
            socket_mode: 0o600,
            quotas: QuotaTable::default(),
            metrics: None,
            status_mode: 0o600,
        }
    }

    /// Whether a node can be started with it, as far as it shows without trying.
    pub fn check(&self) -> Result<(), StartError> {
        let good = |node: NodeId| node != NodeId::NOBODY && usize::from(node.0) <= ddss_core::limits::NODES_MAX;
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

    /// The same for one of its planes: with a folder of memory and an address of its own, and its part of the bytes.
    pub(crate) fn of_plane(&self, plane: Shard) -> Self {
        let mut config = self.clone();
        config.memory_folder = plane_folder(&self.memory_folder, plane.index());
        config.listen = plane_address(self.listen, plane.index());
        config.pool_bytes = self.pool_bytes / u64::from(plane.count());
        config.file_bytes = self.file_bytes / u64::from(plane.count());
        config
    }

    /// Where clients attach.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(ddss_ipc::SOCKET_NAME)
    }
}

/// The file in the state folder that says where a node that has not joined yet is to join.
pub const JOIN_FILE_NAME: &str = "join";

/// Names the folder of what survives a restart.
pub const STATE_VARIABLE: &str = "DDSS_STATE_DIR";

/// Where a daemon keeps what survives a restart when it is not told: in its own folder if that was named, else where
/// the user's other services keep theirs (a folder of sockets is often empty after a boot).
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
    fn a_peer_is_written_as_node_and_address() {
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
