//! Configuration of a daemon. Every field has a working default; the [`Settings`] set these fields.

use super::addresses::shard_address;
use super::quota_table::QuotaTable;
use crate::cpu_placement;
use crate::start_error::StartError;
use ddss_admin::storage::{MemoryLimit, shard_folder};
use ddss_admin::{ClusterKey, CoreChoice, FabricChoice, HostPort, PeerAddress, Settings, UncleanFiles};
use ddss_core::limits::{PAGE_BYTES, SEGMENTS_PER_NODE_DEFAULT, SHARDS_MAX, WAITS_PER_CLIENT_DEFAULT};
use ddss_core::{NodeId, Shard};
use ddss_runtime::{IdleConfig, allowed_cores};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
    /// True if `listen` was configured; otherwise a member listens where it did last.
    pub is_listen_named: bool,
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
    /// Begins a cluster if the state folder belongs to none and nothing else names one. `ddss cluster init` leaves a
    /// file in the state folder that allows the same once.
    pub founds_cluster: bool,
    /// Cluster key. Without one the node is alone and does not listen.
    pub key: Option<ClusterKey>,
    /// Number of progress threads; segments are distributed over them by name.
    pub progress_threads: u8,
    /// Maximum number of parked waits of one client.
    pub waits_per_client: usize,
    /// Cores of the progress threads.
    pub core: CoreChoice,
    /// Behaviour of an idle progress thread.
    pub pace: IdleConfig,
    /// Size of the memory pool for segments.
    pub pool_bytes: u64,
    /// Bytes of the pool that new segments may fill, if a memory limit leaves less than all of it.
    pub pool_limit: Option<u64>,
    /// Maximum number of segments of each progress thread.
    pub segments: usize,
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
    /// Returns the configuration of a standalone node, reachable only from this machine, with all files in one folder.
    pub fn single(folder: &Path) -> Self {
        Self {
            node: NodeId(1),
            folder: folder.to_owned(),
            memory_folder: folder.join("memory"),
            state_folder: folder.join("state"),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            is_listen_named: true,
            advertise: None,
            join: None,
            is_node_named: true,
            fabric: FabricChoice::Auto,
            fence_reads: None,
            peers: Vec::new(),
            founds_cluster: false,
            key: None,
            progress_threads: 1,
            waits_per_client: WAITS_PER_CLIENT_DEFAULT,
            core: CoreChoice::Auto,
            pace: IdleConfig::for_cores(allowed_cores().map_or(1, |cores| cores.len())),
            pool_bytes: Settings::POOL_BYTES,
            pool_limit: None,
            segments: SEGMENTS_PER_NODE_DEFAULT,
            file_bytes: Settings::FILE_BYTES,
            unclean_files: UncleanFiles::Refuse,
            discard: true,
            drain: Settings::DRAIN,
            stop_requested: Arc::default(),
            inherit_socket: false,
            socket_mode: 0o600,
            quotas: QuotaTable::default(),
            metrics: None,
            status_mode: 0o600,
        }
    }

    /// Makes the configuration of these settings; reads the key.
    pub fn from_settings(settings: Settings) -> Result<Self, StartError> {
        let (is_node_named, is_listen_named) = (settings.node.is_some(), settings.listen.is_some());
        let all = settings.resolved();
        let folder = all.dir.unwrap_or_else(ddss_ipc::default_folder);
        let mut config = Config::single(&folder);
        config.state_folder = all.state_dir.unwrap_or(config.state_folder);
        config.key = all.key_file.map(|path| ClusterKey::read(&path)).transpose()?;
        if config.key.is_none() && (all.listen.is_some() || all.peer.is_some() || all.join.is_some()) {
            return Err(StartError::NoKey { state_folder: config.state_folder });
        }
        config.node = NodeId(all.node.unwrap_or(1));
        config.is_node_named = is_node_named;
        config.advertise = all.advertise;
        config.join = all.join;
        config.memory_folder = all.memory_dir.unwrap_or(config.memory_folder);
        config.is_listen_named = is_listen_named;
        config.listen = all.listen.unwrap_or(config.listen);
        config.peers = all.peer.unwrap_or_default();
        config.fabric = all.fabric.unwrap_or(config.fabric);
        config.fence_reads = all.fence_reads;
        config.progress_threads = all.progress_threads.unwrap_or(1);
        config.waits_per_client = all.waits_per_client.map_or(WAITS_PER_CLIENT_DEFAULT, |waits| waits as usize);
        config.core = all.core.unwrap_or_default();
        config.pace.sleep_after = all.spin_us.map_or(config.pace.sleep_after, Duration::from_micros);
        config.pace.busy = all.busy.unwrap_or_default();
        config.pool_bytes = all.pool_bytes.map_or(Settings::POOL_BYTES, |size| size.0);
        config.segments = all.segments.map_or(SEGMENTS_PER_NODE_DEFAULT, |segments| segments as usize);
        config.file_bytes = all.file_bytes.map_or(Settings::FILE_BYTES, |size| size.0);
        config.unclean_files = all.unclean_files.unwrap_or_default();
        config.discard = all.discard.unwrap_or_default();
        config.drain = all.drain_ms.map_or(config.drain, Duration::from_millis);
        config.socket_mode = all.socket_mode.map_or(config.socket_mode, |mode| mode.0);
        config.quotas = QuotaTable::new(&all.quota.unwrap_or_default()).map_err(StartError::Quota)?;
        config.metrics = all.metrics_listen.map(|address| address.0);
        config.status_mode = all.status_mode.map_or(config.status_mode, |mode| mode.0);
        config.check()?;
        Ok(config)
    }

    /// Checks the values, without access to the system's state.
    pub fn check(&self) -> Result<(), StartError> {
        let good = |node: NodeId| node != NodeId::NONE && usize::from(node.0) <= ddss_core::limits::NODES_MAX;
        if !good(self.node) {
            return Err(StartError::BadNode(self.node));
        }
        if self.progress_threads == 0 || usize::from(self.progress_threads) > SHARDS_MAX {
            return Err(StartError::ProgressThreads(self.progress_threads));
        }
        cpu_placement::check(&self.core, self.progress_threads)?;
        let least = u64::from(self.progress_threads) * PAGE_BYTES as u64;
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

    /// Bounds new segments by what a memory limit leaves; existing ones stay. Returns the bound if it is below the pool.
    pub(crate) fn fit_into(&mut self, limit: &MemoryLimit) -> Option<u64> {
        self.pool_limit = Some(limit.pool_bytes()).filter(|&most| most < self.pool_bytes);
        self.pool_limit
    }

    /// Returns the configuration of one shard: its own memory folder and address, and its part of the bytes.
    pub(crate) fn for_shard(&self, shard: Shard) -> Self {
        let mut config = self.clone();
        config.memory_folder = shard_folder(&self.memory_folder, shard.index());
        config.listen = shard_address(self.listen, shard.index());
        config.pool_bytes = self.pool_bytes / u64::from(shard.count());
        config.pool_limit = self.pool_limit.map(|bytes| bytes / u64::from(shard.count()));
        config.file_bytes = self.file_bytes / u64::from(shard.count());
        config
    }

    /// Returns the path of the clients' socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(ddss_ipc::SOCKET_NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_needs_key_for_other_nodes() {
        // If this broke, a node would wait for peers that can never trust it.
        let peer = "2=127.0.0.2:7400".parse().unwrap();
        let settings = Settings { dir: Some("/nowhere".into()), peer: Some(vec![peer]), ..Settings::default() };
        assert!(matches!(Config::from_settings(settings), Err(StartError::NoKey { .. })));
    }

    #[test]
    fn shown_defaults_are_those_of_the_configuration() {
        // If this broke, --print-config would show another spin time than that of an embedded node.
        assert_eq!(Config::single(Path::new("/nowhere")).pace.sleep_after, Settings::SPIN);
    }
}
