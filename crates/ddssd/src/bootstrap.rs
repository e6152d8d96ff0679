//! Entry of a node into a cluster: its listeners, its number, and its right to found a cluster.

use crate::config::addresses::{control_address, shard_address};
use crate::config::config::Config;
use crate::control::{
    Addresses, ClusterLineage, Identity, Incarnation, clear_left_mark, complete_recovery, delete_cluster_state,
    drop_replicated_state, end_founding, forget_names_compared, has_left, join, last_memory_folder, may_found,
    record_memory_folder,
};
use crate::shard::event_loop::EventLoop;
use crate::start_error::StartError;
use crate::storage::state_dir;
use ddss_admin::ClusterKey;
use ddss_admin::HostPort;
use ddss_admin::storage::{Registry, RegistryEntry, shard_folder};
use ddss_core::NodeId;
use ddss_verbs::Fabric;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

/// Longest wait for the cluster to admit the node.
const JOIN_MAX: Duration = Duration::from_secs(10);
/// Attempts to find adjacent free ports when the configured port is 0.
const PORTS_TRIED_MAX: u32 = 64;

/// Address, number and key with which a node takes part in a cluster.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    pub(crate) node: NodeId,
    pub(crate) key: ClusterKey,
    pub(crate) lineage: ClusterLineage,
    /// Address of the first shard for other nodes.
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
    pub(crate) founder: bool,
    /// This start of the node in its state directory.
    pub(crate) incarnation: Incarnation,
    /// Contact to ask for the cluster when its last known addresses do not answer.
    pub(crate) join: Option<HostPort>,
}

impl Bootstrap {
    /// Listens, and joins a cluster if configured and not yet done. Returns `None` for a node without a key, which
    /// stays alone.
    pub(crate) fn run(config: &Config, fabrics: &mut [Box<dyn Fabric>]) -> Result<Option<Self>, StartError> {
        let Some(key) = config.key.clone() else { return Ok(None) };
        state_dir::make(&config.state_folder)?;
        let state = |source| StartError::State { path: config.state_folder.clone(), source };
        let has_left = has_left(&config.state_folder);
        if has_left {
            // The daemon may have written state after it left; discard it.
            delete_cluster_state(&config.state_folder).map_err(state)?;
        }
        let (bound, listener) = listen(fabrics, config.listen)?;
        let address = config.advertise.unwrap_or(bound);
        if address.ip().is_unspecified() {
            return Err(StartError::Advertise { address });
        }
        let found = Identity::read(&config.state_folder).map_err(state)?;
        if let Some(found) = &found {
            complete_recovery(&config.state_folder, found.cluster).map_err(state)?;
        }
        let named = config.is_node_named.then_some(config.node);
        let incarnation = Incarnation::begin(&config.state_folder).map_err(state)?;
        let identity = match (found.clone(), &config.join) {
            (Some(found), _) => {
                if let Some(named) = named.filter(|named| named.0 != found.node) {
                    let path = config.state_folder.clone();
                    return Err(StartError::OtherNode { path, found: NodeId(found.node), named });
                }
                match &found.rejoins_at {
                    Some(at) => Self::rejoin(config, &key, &found, at, (address, incarnation))?,
                    None => found.clone(),
                }
            }
            (None, Some(at)) => {
                let identity = (named.map(|node| node.0), config.progress_threads, incarnation);
                let (node, cluster) = join(&key, at, address, identity, JOIN_MAX, &config.stop_requested)?;
                Identity::new(node.0, false, cluster)
            }
            (None, None) => Identity::new(config.node.0, true, 0),
        };
        if found.is_none() {
            // The names were compared with another cluster's directory, if its files were removed by hand.
            forget_names_compared(&config.state_folder).map_err(state)?;
        }
        let addresses = Some(Addresses { listen: bound, advertise: config.advertise });
        let identity = Identity { addresses, ..identity };
        if found.as_ref() != Some(&identity) {
            identity.write(&config.state_folder).map_err(state)?;
        }
        record_memory_folder(&config.state_folder, &config.memory_folder).map_err(state)?;
        // After the identity: a crash in between leaves a member.
        end_founding(&config.state_folder).map_err(state)?;
        if has_left {
            clear_left_mark(&config.state_folder).map_err(state)?;
        }
        let (node, founder) = (identity.node, identity.founder);
        let (key, lineage) = identity.keys(&key);
        let (node, join) = (NodeId(node), config.join.clone());
        Ok(Some(Self { node, key, lineage, address, listener, founder, incarnation, join }))
    }
}

impl Bootstrap {
    /// Joins the recovered cluster, and drops the state of the former one once that has succeeded. A kill in between
    /// repeats the join.
    fn rejoin(
        config: &Config,
        key: &ClusterKey,
        found: &Identity,
        at: &str,
        (address, incarnation): (SocketAddr, Incarnation),
    ) -> Result<Identity, StartError> {
        let state = |source| StartError::State { path: config.state_folder.clone(), source };
        let place: HostPort = at.parse().map_err(|error| state(io::Error::other(format!("{at}: {error}"))))?;
        let identity = (Some(found.node), config.progress_threads, incarnation);
        let (_, cluster) = join(key, &place, address, identity, JOIN_MAX, &config.stop_requested)?;
        let joined = Identity { cluster, rejoins_at: None, ..found.clone() };
        if cluster == found.cluster {
            tracing::warn!(%place, "that is the cluster of this node, and not a recovered one: nothing is dropped");
            return Ok(Identity { former_cluster: found.former_cluster.filter(|&former| former != cluster), ..joined });
        }
        drop_replicated_state(&config.state_folder).map_err(state)?;
        forget_names_compared(&config.state_folder).map_err(state)?;
        Ok(joined)
    }
}

/// Refuses a node that would begin a cluster although nobody asked for one: its state may have been lost, and the
/// cluster that it belonged to may still run.
pub(crate) fn check_founding(config: &Config) -> Result<(), StartError> {
    let folder = &config.state_folder;
    if config.key.is_none() || config.join.is_some() || config.founds_cluster || may_found(folder) {
        return Ok(());
    }
    if has_left(folder) {
        return Err(StartError::Left { state_folder: folder.clone() });
    }
    let found = Identity::read(folder).map_err(|source| StartError::State { path: folder.clone(), source })?;
    if found.is_none() && config.peers.is_empty() {
        return Err(StartError::NoCluster { state_folder: folder.clone() });
    }
    Ok(())
}

/// Refuses a start beside the segments of the last one: a member that comes back without them gives them up.
pub(crate) fn check_memory(config: &Config) -> Result<(), StartError> {
    if config.key.is_none() || config.discard {
        return Ok(());
    }
    let last = last_memory_folder(&config.state_folder, &config.memory_folder);
    let has_segments = |folder: &Path| {
        let registry = Registry::open_existing(&folder.join(Registry::FILE_NAME));
        registry.is_ok_and(|registry| registry.entries().any(|entry| !matches!(entry, RegistryEntry::Free(_))))
    };
    let folders = (0..config.progress_threads).map(|shard| shard_folder(&last, shard));
    if last != config.memory_folder && folders.into_iter().any(|folder| has_segments(&folder)) {
        return Err(StartError::OtherMemory { last, named: config.memory_folder.clone() });
    }
    Ok(())
}

/// Completes the configuration with the addresses of the last start, if it names no address to listen on.
pub(crate) fn recall_addresses(config: &mut Config) -> Result<(), StartError> {
    let folder = &config.state_folder;
    if config.key.is_none() || config.is_listen_named || has_left(folder) {
        return Ok(());
    }
    let found = Identity::read(folder).map_err(|source| StartError::State { path: folder.clone(), source })?;
    if let Some(last) = found.and_then(|identity| identity.addresses) {
        config.listen = last.listen;
        config.advertise = config.advertise.or(last.advertise);
    }
    Ok(())
}

/// Opens all listeners. The control plane uses the port above the first shard's; the other shards follow it. Port 0
/// selects any adjacent free ports.
fn listen(fabrics: &mut [Box<dyn Fabric>], address: SocketAddr) -> Result<(SocketAddr, TcpListener), StartError> {
    let listen_error = |address| move |source| StartError::Listen { address, source };
    if address.port() != 0 {
        let control = control_address(address);
        let listener = TcpListener::bind(control).map_err(listen_error(control))?;
        return Ok((listen_on_all(fabrics, address)?, listener));
    }
    let mut tried = 0;
    loop {
        tried += 1;
        let listener = TcpListener::bind(address).map_err(listen_error(address))?;
        let control = listener.local_addr().map_err(listen_error(address))?;
        let data = SocketAddr::new(control.ip(), control.port() - 1);
        // A fabric cannot stop listening, so probe the other shards' ports before the first fabric listens.
        let mut others = (1..).take(fabrics.len() - 1).map(|shard| shard_address(data, shard));
        if tried < PORTS_TRIED_MAX && others.any(|address| TcpListener::bind(address).is_err()) {
            continue;
        }
        match listen_on_all(fabrics, data) {
            Ok(bound) => return Ok((bound, listener)),
            Err(StartError::Listen { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse && tried < PORTS_TRIED_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// Starts the fabric listener of each shard. Returns the address of the first one.
fn listen_on_all(fabrics: &mut [Box<dyn Fabric>], address: SocketAddr) -> Result<SocketAddr, StartError> {
    let mut first = address;
    for (shard, fabric) in (0..).zip(fabrics) {
        let bound = EventLoop::listen(fabric.as_mut(), shard_address(address, shard))?;
        if shard == 0 {
            first = bound;
        }
    }
    Ok(first)
}
