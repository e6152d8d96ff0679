//! A running node: starts the parts in dependency order and stops them in reverse order.

use crate::bootstrap::{Bootstrap, check_founding, check_memory, recall_addresses};
use crate::config::config::Config;
use crate::config::quota_table::QuotaTable;
use crate::control::{BridgeEnd, ControlBridge, ControlConfig, ControlPlane, are_names_compared, has_left};
use crate::cpu_placement;
use crate::metrics::{Metrics, MetricsSources, WatchedFolders};
use crate::peers::fabric;
use crate::shard::drain::Drain;
use crate::shard::shard::{PreparedShard, RunningShard, check_shards, discard_all, discard_other_shards};
use crate::start_error::StartError;
use crate::status::{RaftStatus, StatusPage};
use crate::storage::state_dir;
use crate::storage::state_dir::StateDirLock;
use crate::supervisor::{Departure, Supervisor};
use ddss_admin::storage::MemoryLimit;
use ddss_core::status::{DaemonState, Gauge};
use ddss_core::{NodeId, Shard};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A running node inside this process.
#[derive(Debug)]
pub struct Node {
    shards: Vec<RunningShard>,
    control: Option<ControlPlane>,
    node: NodeId,
    address: Option<SocketAddr>,
    metrics: Option<Metrics>,
    drain: Drain,
    supervisor: Supervisor,
    _locks: Vec<StateDirLock>,
}

/// Reports the death of a critical task, and the departure of the node from its cluster.
///
/// After the death of a critical task the owner can only stop the node and start it again; acknowledged data survives.
/// After a departure the owner must stop the node at once, because the cluster does not know of its clients' writes
/// any more.
#[derive(Clone, Debug)]
pub struct FailureWatch {
    supervisor: Supervisor,
    pages: Vec<StatusPage>,
}

impl FailureWatch {
    /// Waits up to `patience` for a failure, a departure or a regular stop. Returns false on timeout.
    pub fn wait(&self, patience: Duration) -> bool {
        self.supervisor.wait(patience)
    }

    /// Runs `announce` unless the node is out of its cluster; then returns how it left.
    pub fn unless_departed<T>(&self, announce: impl FnOnce() -> T) -> Result<T, Departure> {
        self.supervisor.unless_departed(announce)
    }

    /// Returns the name of the critical task that ended by itself.
    pub fn failed_task(&self) -> Option<&'static str> {
        self.supervisor.failed_task()
    }

    /// Returns the way in which the node left its cluster.
    pub fn departure(&self) -> Option<Departure> {
        self.supervisor.departure()
    }

    /// Returns the longest time since a progress thread gave a sign of life. Each thread gives several a second.
    pub fn silence(&self) -> Duration {
        self.pages.iter().map(StatusPage::silence).max().unwrap_or_default()
    }
}

impl Node {
    /// Starts a node. On return clients can attach and other nodes can connect.
    pub fn start(mut config: Config) -> Result<Self, StartError> {
        config.check()?;
        recall_addresses(&mut config)?;
        let locks = Self::lock_folders(&config)?;
        if let Some(limit) = MemoryLimit::of_this_process()
            && let Some(segments) = config.fit_into(&limit)
        {
            let (limit, path, pool_bytes) = (limit.bytes, limit.path.display(), config.pool_bytes);
            tracing::warn!(limit, %path, pool_bytes, segments, "the memory limit is too low for the pool");
        }
        check_shards(&config)?;
        discard_other_shards(&config);
        let placements = cpu_placement::placements(&config.core, config.progress_threads)?;
        let fabrics = placements.iter().map(|_| fabric::open(&config.fabric, config.listen, config.fence_reads));
        let mut fabrics = fabrics.collect::<Result<Vec<_>, _>>()?;
        // Without a key no peer can authenticate, so the node does not listen.
        let bootstrap = Bootstrap::run(&config, &mut fabrics)?;
        let node = bootstrap.as_ref().map_or(config.node, |bootstrap| bootstrap.node);
        config.node = node;
        // A recovered cluster has another key than that of the file.
        config.key = bootstrap.as_ref().map(|bootstrap| bootstrap.key.clone());
        // Any number that differs from the last run's will do: it only tells two runs apart.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u32;
        let parts = Shard::all(config.progress_threads).zip(placements.into_iter().zip(fabrics));
        let parts =
            parts.map(|(shard, (placement, fabric))| PreparedShard::open(&config, shard, run, placement, fabric));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let pages: Vec<StatusPage> = parts.iter().map(|part| part.page().clone()).collect();
        for gauge in [Gauge::Clustered, Gauge::Majority] {
            pages.iter().for_each(|page| page.set_gauge(gauge, bootstrap.is_some().into()));
        }
        let raft_status = RaftStatus::default();
        let sources = MetricsSources {
            pages: pages.clone(),
            raft: bootstrap.is_some().then(|| raft_status.clone()),
            folders: WatchedFolders { memory: config.memory_folder.clone(), state: config.state_folder.clone() },
        };
        let metrics = config.metrics.map(|address| Metrics::start(address, sources)).transpose()?;
        let (mut shards, mut bridge_ends, drain) = (Vec::new(), Vec::new(), Drain::default());
        let supervisor = Supervisor::default();
        for part in parts {
            let (mut bridge, control_end, asked) = ControlBridge::open().map_err(StartError::Network)?;
            bridge.are_names_compared = are_names_compared(&config.state_folder);
            shards.push(part.start(bootstrap.is_some().then_some(bridge), drain.clone(), &supervisor)?);
            bridge_ends.push((control_end, asked));
        }
        let address = bootstrap.as_ref().map(|bootstrap| bootstrap.address);
        let control = bootstrap.map(|bootstrap| {
            Self::start_control(&config, run, bootstrap, (&mut shards, bridge_ends), (&supervisor, raft_status))
        });
        let control = control.transpose()?;
        shards.iter_mut().try_for_each(RunningShard::open_acceptor)?;
        pages.iter().for_each(|page| page.set_state(DaemonState::Serving));
        Ok(Self { shards, control, node, address, metrics, drain, supervisor, _locks: locks })
    }

    /// Creates the folders and locks them against other daemons.
    fn lock_folders(config: &Config) -> Result<Vec<StateDirLock>, StartError> {
        state_dir::make(&config.folder)?;
        let mut locks = vec![StateDirLock::lock_by_file(&config.folder)?];
        state_dir::make(&config.memory_folder)?;
        let mut folders = vec![&*config.folder, &*config.memory_folder];
        if config.key.is_some() {
            state_dir::make(&config.state_folder)?;
        }
        // A node without a key can hold file segments as well; the first one creates this folder.
        if config.state_folder.exists() {
            folders.push(&config.state_folder);
        }
        locks.extend(StateDirLock::lock_all(&folders)?);
        if config.state_folder.exists() {
            state_dir::narrow_modes(&config.state_folder)?;
        }
        // Before anything is discarded.
        check_founding(config)?;
        check_memory(config)?;
        let begins_anew = config.key.is_some() && has_left(&config.state_folder);
        if begins_anew {
            tracing::warn!("discarding the segments of a node that left its cluster");
        }
        if config.discard || begins_anew {
            discard_all(config)?;
        }
        Ok(locks)
    }

    fn start_control(
        config: &Config,
        run: u32,
        bootstrap: Bootstrap,
        (shards, bridge_ends): (&mut [RunningShard], Vec<BridgeEnd>),
        (supervisor, raft_status): (&Supervisor, RaftStatus),
    ) -> Result<ControlPlane, StartError> {
        let Bootstrap { node, key, lineage, address, listener, founder, incarnation, join } = bootstrap;
        let names = shards.iter_mut().flat_map(RunningShard::take_names).collect();
        let (state_folder, folder, peers) = (config.state_folder.clone(), config.folder.clone(), config.peers.clone());
        let pages = shards.iter().map(|shard| shard.page().clone()).collect();
        let shards = config.progress_threads;
        let config = ControlConfig {
            node,
            run,
            incarnation,
            shards,
            key,
            lineage,
            address,
            listener,
            state_folder,
            folder,
            peers,
            founder,
            join,
            names,
            pages,
            raft_status,
        };
        ControlPlane::start(config, bridge_ends, supervisor.clone())
    }

    /// Returns the node number, which a cluster may have assigned.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the path of the socket that clients attach to.
    pub fn socket(&self) -> &Path {
        self.first().socket()
    }

    fn first(&self) -> &RunningShard {
        self.shards.first().expect("a node has at least one shard")
    }

    /// Returns the address for other nodes, if this node belongs to a cluster.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the address of the metrics endpoint, if it is enabled.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// Returns the core of the first progress thread, if it is pinned.
    pub fn core(&self) -> Option<usize> {
        self.first().core()
    }

    /// Returns the core of each progress thread, if it is pinned.
    pub fn cores(&self) -> Vec<Option<usize>> {
        self.shards.iter().map(RunningShard::core).collect()
    }

    /// Replaces the quotas. Existing holdings above a new quota stay.
    pub fn set_quotas(&self, quotas: QuotaTable) {
        self.shards.iter().for_each(|shard| shard.set_quotas(&quotas));
    }

    /// Returns a watch that can be waited on for the failure of a critical task.
    pub fn failure_watch(&self) -> FailureWatch {
        FailureWatch {
            supervisor: self.supervisor.clone(),
            pages: self.shards.iter().map(|shard| shard.page().clone()).collect(),
        }
    }

    /// Returns true while all progress threads run.
    pub fn is_running(&self) -> bool {
        self.shards.iter().all(RunningShard::is_running)
    }

    /// Drains pending requests before a [stop](Self::stop): admits no client and begins no request any more. Waits up
    /// to `patience`, or until `is_cut_off` returns true, which is polled. Returns the number of unfinished requests.
    pub fn drain(&self, patience: Duration, mut is_cut_off: impl FnMut() -> bool) -> usize {
        /// Time for the progress threads to answer the requests that have run out of time.
        const FINAL_REPLIES_MAX: Duration = Duration::from_millis(100);
        self.supervisor.stop();
        self.shards.iter().for_each(RunningShard::begin_stop);
        self.drain.request();
        self.shards.iter().for_each(RunningShard::wake);
        let mut until = Instant::now() + patience;
        let mut is_expired = false;
        while self.is_running() && !self.drain.is_over() {
            if !is_expired && (Instant::now() >= until || is_cut_off()) {
                is_expired = true;
                until = Instant::now() + FINAL_REPLIES_MAX;
                self.drain.end_grace_period();
                self.shards.iter().for_each(RunningShard::wake);
            }
            if is_expired && Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.drain.unfinished()
    }

    /// Stops the node: closes the acceptors, ends the sessions and the progress threads, releases the memory.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        self.supervisor.stop();
        self.shards.iter_mut().for_each(RunningShard::close_acceptor);
        drop(self.control.take());
        // Every shard ends, even if an earlier one ended with an error.
        let ends: Vec<_> = self.shards.iter_mut().map(RunningShard::end).collect();
        ends.into_iter().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the node did not stop cleanly");
        }
    }
}
