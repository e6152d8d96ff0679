//! How a node comes into a cluster: where it listens, which number it has, and whether it may begin a cluster.

use crate::auth::ClusterKey;
use crate::config::config::Config;
use crate::config::host_port::HostPort;
use crate::control::{Identity, Incarnation, control_address, forget, has_come_back, has_left, join, plane_address};
use crate::node::StartError;
use crate::shard::event_loop::EventLoop;
use crate::storage::state_dir;
use ddss_core::NodeId;
use ddss_verbs::Fabric;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// How long a cluster may take to let a node in.
const JOIN_MAX: Duration = Duration::from_secs(10);
/// Pairs of ports that are tried when any will do.
const PORTS_TRIED_MAX: u32 = 64;

/// A node that may take part.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    pub(crate) node: NodeId,
    pub(crate) key: ClusterKey,
    /// Where other nodes find its data plane.
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
    pub(crate) founder: bool,
    /// This start in this state folder.
    pub(crate) incarnation: Incarnation,
    /// Whom to ask where the cluster is when nobody answers at the addresses that it had.
    pub(crate) join: Option<HostPort>,
}

impl Bootstrap {
    /// Listens, and joins if the node is to and has not yet. `None` for a node without a key, which is alone.
    pub(crate) fn take(config: &Config, fabrics: &mut [Box<dyn Fabric>]) -> Result<Option<Self>, StartError> {
        let Some(key) = config.key.clone() else { return Ok(None) };
        state_dir::make(&config.state_folder)?;
        let state = |source| StartError::State { path: config.state_folder.clone(), source };
        let has_left = has_left(&config.state_folder);
        if has_left && config.join.is_none() {
            return Err(StartError::Left { state_folder: config.state_folder.clone() });
        }
        if has_left {
            // The daemon that left may have written something after that.
            forget(&config.state_folder).map_err(state)?;
        }
        let (bound, listener) = listen(fabrics, config.listen)?;
        let address = config.advertise.unwrap_or(bound);
        if address.ip().is_unspecified() {
            return Err(StartError::Advertise { address });
        }
        let found = Identity::read(&config.state_folder).map_err(state)?;
        let named = config.node_named.then_some(config.node);
        let incarnation = Incarnation::begin(&config.state_folder).map_err(state)?;
        let identity = match (found, &config.join) {
            (Some(found), _) => {
                if let Some(named) = named.filter(|named| named.0 != found.node) {
                    let path = config.state_folder.clone();
                    return Err(StartError::OtherNode { path, found: NodeId(found.node), named });
                }
                found
            }
            (None, Some(at)) => {
                let who = (named.map(|node| node.0), config.progress_threads, incarnation);
                let node = join(&key, at, address, who, JOIN_MAX, &config.told_to_stop)?;
                Identity { node: node.0, founder: false }
            }
            (None, None) => Identity { node: config.node.0, founder: true },
        };
        if found.is_none() {
            identity.write(&config.state_folder).map_err(state)?;
        }
        if has_left {
            has_come_back(&config.state_folder).map_err(state)?;
        }
        let Identity { node, founder } = identity;
        let join = config.join.clone();
        Ok(Some(Self { node: NodeId(node), key, address, listener, founder, incarnation, join }))
    }
}

/// Listens for everything: the control plane is one port above the first data plane, the other data planes come behind
/// it. Port 0 takes any that stand in a row.
fn listen(fabrics: &mut [Box<dyn Fabric>], address: SocketAddr) -> Result<(SocketAddr, TcpListener), StartError> {
    let refused = |address| move |source| StartError::Listen { address, source };
    if address.port() != 0 {
        let control = control_address(address);
        let listener = TcpListener::bind(control).map_err(refused(control))?;
        return Ok((listen_on_all(fabrics, address)?, listener));
    }
    let mut tried = 0;
    loop {
        tried += 1;
        let listener = TcpListener::bind(address).map_err(refused(address))?;
        let control = listener.local_addr().map_err(refused(address))?;
        let data = SocketAddr::new(control.ip(), control.port() - 1);
        // A fabric that listens cannot be told to stop: so the others' ports are tried before the first one listens.
        let mut others = (1..).take(fabrics.len() - 1).map(|plane| plane_address(data, plane));
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

/// Has the fabric of each plane listen; says where the first one does.
fn listen_on_all(fabrics: &mut [Box<dyn Fabric>], address: SocketAddr) -> Result<SocketAddr, StartError> {
    let mut first = address;
    for (plane, fabric) in (0..).zip(fabrics) {
        let bound = EventLoop::listen(fabric.as_mut(), plane_address(address, plane))?;
        if plane == 0 {
            first = bound;
        }
    }
    Ok(first)
}
