//! Checks of a configuration against the system, without starting a daemon and without any lasting change.

use crate::bootstrap::{check_founding, check_memory, recall_addresses};
use crate::config::addresses::{control_address, shard_address};
use crate::config::config::Config;
use crate::control::{Identity, has_left};
use crate::node::Node;
use crate::peers::fabric;
use crate::shard::shard::check_shards;
use crate::start_error::StartError;
use crate::storage::file_segments::Files;
use crate::storage::pool_error::PoolError;
use crate::storage::state_dir;
use crate::storage::state_dir::StateDirLock;
use ddss_admin::storage::{MemoryLimit, Registry, file_folder, shard_folder};
use ddss_core::{NodeId, Shard};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

impl Node {
    /// Checks that a node could start with this configuration now: folders, cores, fabric and addresses. Takes each
    /// lock and each address for an instant only.
    ///
    /// Returns what the node would do differently from its settings.
    pub fn check(config: &Config) -> Result<Option<String>, StartError> {
        config.check()?;
        let mut config = config.clone();
        recall_addresses(&mut config)?;
        let config = &config;
        let node = check_state(config)?;
        check_folders(config)?;
        check_founding(config)?;
        check_memory(config)?;
        if !config.discard {
            check_segments(config, node)?;
        }
        fabric::open(&config.fabric, config.listen, config.fence_reads)?;
        if config.key.is_some() {
            check_addresses(config)?;
        }
        config.metrics.map_or(Ok(()), can_listen)?;
        let limit = MemoryLimit::of_this_process();
        Ok(limit.and_then(|limit| {
            let segments = config.clone().fit_into(&limit)?;
            let (bytes, path, wanted) = (limit.bytes, limit.path.display(), config.pool_bytes);
            Some(format!(
                "the memory limit is {bytes} bytes ({path}): segments may have {segments} of --pool-bytes {wanted}"
            ))
        }))
    }
}

/// Returns the number of the node, if it is known before the join.
fn check_state(config: &Config) -> Result<Option<NodeId>, StartError> {
    if config.key.is_none() {
        return Ok(Some(config.node));
    }
    let path = &config.state_folder;
    let (left, joins) = (has_left(path), config.join.is_some());
    if left {
        return Ok(config.is_node_named.then_some(config.node));
    }
    let found = Identity::read(path).map_err(|source| StartError::State { path: path.clone(), source })?;
    match found.map(|identity| NodeId(identity.node)) {
        Some(found) if config.is_node_named && config.node != found => {
            Err(StartError::OtherNode { path: path.clone(), found, named: config.node })
        }
        Some(found) => Ok(Some(found)),
        None if joins && !config.is_node_named => Ok(None),
        None => Ok(Some(config.node)),
    }
}

fn check_folders(config: &Config) -> Result<(), StartError> {
    let mut folders = vec![&config.folder, &config.memory_folder];
    if config.key.is_some() || config.state_folder.exists() {
        folders.push(&config.state_folder);
    }
    for path in folders {
        state_dir::check(path)?;
        StateDirLock::check(path)?;
    }
    for shard in Shard::all(config.progress_threads) {
        StateDirLock::check(&file_folder(&config.state_folder, shard.index()))?;
    }
    Ok(())
}

/// Checks that existing segments have this format, this node number and this number of shards.
fn check_segments(config: &Config, node: Option<NodeId>) -> Result<(), StartError> {
    check_shards(config)?;
    for shard in Shard::all(config.progress_threads) {
        let files = file_folder(&config.state_folder, shard.index());
        Files::check(&files, config.unclean_files)?;
        for path in [shard_folder(&config.memory_folder, shard.index()), files] {
            let found = found_node(&path);
            if let Some(found) = found.filter(|&found| node.is_some_and(|node| node != found)) {
                return Err(PoolError::OtherNode { path, node: found }.into());
            }
        }
    }
    Ok(())
}

/// Returns the owner of the segments in a folder.
fn found_node(folder: &std::path::Path) -> Option<NodeId> {
    let path: PathBuf = folder.join(Registry::FILE_NAME);
    Some(Registry::open_existing(&path).ok()?.node())
}

fn check_addresses(config: &Config) -> Result<(), StartError> {
    let address = config.advertise.unwrap_or(config.listen);
    if address.ip().is_unspecified() {
        return Err(StartError::Advertise { address });
    }
    if config.listen.port() == 0 {
        return can_listen(config.listen);
    }
    can_listen(control_address(config.listen))?;
    Shard::all(config.progress_threads).try_for_each(|shard| can_listen(shard_address(config.listen, shard.index())))
}

/// Binds an address for an instant, without listening.
fn can_listen(address: SocketAddr) -> Result<(), StartError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let taken = || -> io::Result<()> {
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        Ok(bind(&socket, &address)?)
    };
    taken().map_err(|source| StartError::Listen { address, source })
}
