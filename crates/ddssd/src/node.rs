//! A running node: starts what it needs in the right order, and stops it in the other one.

use crate::auth::KeyError;
use crate::bootstrap::Bootstrap;
use crate::config::config::Config;
use crate::config::quotas::QuotaTable;
use crate::control::{BridgeEnd, ControlBridge, ControlConfig, ControlError, ControlPlane, has_left};
use crate::cpu_placement;
use crate::exit_code::ExitReason;
use crate::metrics::Metrics;
use crate::peers::fabric;
use crate::shard::drain::Drain;
use crate::shard::shard::{PreparedShard, RunningShard, check_planes, discard_all, discard_other_planes};
use crate::status::StatusPage;
use crate::storage::memory::PoolError;
use crate::storage::state_dir;
use crate::storage::state_dir::{StateDirError, StateDirLock};
use crate::supervisor::{Departure, Supervisor};
use ddss_core::limits::PLANES_MAX;
use ddss_core::status::{DaemonState, Gauge};
use ddss_core::{NodeId, Shard};
use ddss_runtime::RuntimeError;
use ddss_verbs::FabricError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a node could not start, or not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its number is none.
    #[error("{0} cannot be: nodes are numbered from 1 to 1024")]
    BadNode(NodeId),
    /// It cannot have so many progress threads.
    #[error("{0} progress threads cannot be: there are from 1 to {PLANES_MAX} (progress-threads)")]
    ProgressThreads(u8),
    /// There are more or fewer cores named than threads.
    #[error(
        "--core names {named} of the {threads} cores that --progress-threads needs: name as many, or auto, or none"
    )]
    Cores {
        /// How many cores are named.
        named: usize,
        /// How many threads there are.
        threads: u8,
    },
    /// A core is named on which this process may not run.
    #[error(
        "core {core} is none that this process may use (there are {allowed}): name another with --core, or auto, or widen \
         what taskset, the unit or the container allows"
    )]
    NoSuchCore {
        /// Which.
        core: usize,
        /// Those that it may use.
        allowed: String,
    },
    /// There would be no memory for a segment.
    #[error(
        "{bytes} bytes of memory hold no segment for each of {threads} progress threads: give --pool-bytes {least} at least"
    )]
    PoolBytes {
        /// How many there would be.
        bytes: u64,
        /// How many threads share them.
        threads: u8,
        /// What is enough.
        least: u64,
    },
    /// There are peers and no key.
    #[error("--listen, --peer and --join need a cluster key, and there is none in {}: `ddss cluster init` makes one, `ddss cluster token` shows it for the other nodes", state_folder.display())]
    NoKey {
        /// Where it would lie.
        state_folder: PathBuf,
    },
    /// The cluster's key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A peer is named twice.
    #[error("the peers name {0} twice: name each node once (--peer)")]
    BadPeer(NodeId),
    /// A quota makes no sense.
    #[error("quota: {0}")]
    Quota(String),
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] StateDirError),
    /// The fabric cannot use its memory.
    #[error("cannot register an area of shared memory with the fabric: {0}")]
    Area(String),
    /// It has no memory.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// Other nodes could not reach it.
    #[error("cannot listen on {address}: is the address one of this machine's, and the port free (ss -ltnp)?")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Clients could not reach it.
    #[error("cannot open the clients' socket at {}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The network could not be used at all.
    #[error("cannot set up the network (too many open files? see ulimit -n)")]
    Network(#[source] io::Error),
    /// There is no adapter, and one was asked for.
    #[error("cannot use an rdma adapter (--fabric auto or iwarp does without)")]
    Adapter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The fabric refused.
    #[error("cannot set up the fabric")]
    Fabric(#[from] FabricError),
    /// Nobody could find it.
    #[error("{address} is no address that other nodes could connect to: say with --advertise where they find this one")]
    Advertise {
        /// Where it listens.
        address: SocketAddr,
    },
    /// The state folder is another node's.
    #[error("{} holds the state of {found}: start it without --node {}, or with another --state-dir", path.display(), named.0)]
    OtherNode {
        /// Which folder.
        path: PathBuf,
        /// Whose it is.
        found: NodeId,
        /// Who was asked for.
        named: NodeId,
    },
    /// It belongs to no cluster any more, and nobody said where it is to go.
    #[error("this node has left its cluster: --join HOST:PORT takes it into one; without {}/left it begins one of its own, without {}/cluster.key it is alone", state_folder.display(), state_folder.display())]
    Left {
        /// Which folder says so.
        state_folder: PathBuf,
    },
    /// What was written down about the cluster cannot be used.
    #[error("cannot use the cluster's state in {}", path.display())]
    State {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The control plane could not start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The thread could not be started, or ended badly.
    #[error(transparent)]
    Thread(#[from] RuntimeError),
}

impl StartError {
    /// What a script is told by the exit code.
    pub fn exit_code(&self) -> u8 {
        self.ending().code()
    }

    /// Whether nothing is wrong: somebody told it to stop before it served.
    pub fn is_stop(&self) -> bool {
        self.ending() == ExitReason::Stopped
    }

    fn ending(&self) -> ExitReason {
        match self {
            Self::ProgressThreads(_) | Self::Cores { .. } | Self::NoSuchCore { .. } => ExitReason::Settings,
            Self::PoolBytes { .. } => ExitReason::Settings,
            Self::Memory(PoolError::OtherPlanes { .. }) => ExitReason::Settings,
            Self::BadNode(_) | Self::BadPeer(_) | Self::Advertise { .. } => ExitReason::Settings,
            Self::OtherNode { .. } | Self::Quota(_) | Self::Left { .. } => ExitReason::Settings,
            Self::Folder(StateDirError::Taken { .. }) => ExitReason::Taken,
            Self::Memory(PoolError::Folder(StateDirError::Taken { .. })) => ExitReason::Taken,
            Self::Folder(_) | Self::Memory(_) | Self::Area(_) | Self::Socket { .. } => ExitReason::Storage,
            Self::State { .. } | Self::Control(ControlError::State { .. }) => ExitReason::Storage,
            Self::NoKey { .. } | Self::Key(_) => ExitReason::Key,
            Self::Listen { .. } | Self::Network(_) | Self::Adapter(_) => ExitReason::Network,
            Self::Control(ControlError::Stopped { .. }) => ExitReason::Stopped,
            Self::Control(ControlError::Refused { .. }) => ExitReason::Settings,
            Self::Control(_) => ExitReason::Network,
            Self::Thread(RuntimeError::Setup(inside)) => inside.downcast_ref().map_or(ExitReason::Badly, Self::ending),
            _ => ExitReason::Badly,
        }
    }
}

/// A running node, in this process.
#[derive(Debug)]
pub struct Node {
    planes: Vec<RunningShard>,
    control: Option<ControlPlane>,
    node: NodeId,
    address: Option<SocketAddr>,
    metrics: Option<Metrics>,
    drain: Drain,
    vitals: Supervisor,
    _locks: Vec<StateDirLock>,
}

/// Hears when a part of a node ends by itself, as a thread does that panics. There is nothing to do then but to stop the node
/// and to start it anew, which keeps everything that was acknowledged. Hears also when the node is out of its cluster: then its
/// owner has to stop it at once, since no other node knows of what its clients write.
#[derive(Clone, Debug)]
pub struct FailureWatch {
    vitals: Supervisor,
    pages: Vec<StatusPage>,
}

impl FailureWatch {
    /// Waits until that happens or the node stops as it should, for that long at the most. False if none of it has happened.
    pub fn wait(&self, patience: Duration) -> bool {
        self.vitals.wait(patience)
    }

    /// The part that ended by itself, if one has.
    pub fn ended(&self) -> Option<&'static str> {
        self.vitals.ended()
    }

    /// How the node went out of its cluster, if it did.
    pub fn departure(&self) -> Option<Departure> {
        self.vitals.departure()
    }

    /// How long a progress thread has given no sign of life, as each does some times a second: the one that was silent for the
    /// longest time.
    pub fn silence(&self) -> Duration {
        self.pages.iter().map(StatusPage::silence).max().unwrap_or_default()
    }
}

impl Node {
    /// Starts a node; when this returns, clients can attach and other nodes can connect.
    pub fn start(mut config: Config) -> Result<Self, StartError> {
        config.check()?;
        let locks = Self::lock_folders(&config)?;
        check_planes(&config)?;
        discard_other_planes(&config);
        let seats = cpu_placement::seats(&config.core, config.progress_threads)?;
        let fabrics = seats.iter().map(|_| fabric::open(&config.fabric, config.listen, config.fence_reads));
        let mut fabrics = fabrics.collect::<Result<Vec<_>, _>>()?;
        // Without a key nobody could prove that he may speak to this node: so nobody is listened to.
        let admission = Bootstrap::take(&config, &mut fabrics)?;
        let node = admission.as_ref().map_or(config.node, |admission| admission.node);
        config.node = node;
        // Any number that the last run did not have will do: it only tells two runs apart.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u32;
        let parts = Shard::all(config.progress_threads).zip(seats.into_iter().zip(fabrics));
        let parts = parts.map(|(plane, (seat, fabric))| PreparedShard::open(&config, plane, run, seat, fabric));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let pages: Vec<StatusPage> = parts.iter().map(|part| part.page().clone()).collect();
        for gauge in [Gauge::Clustered, Gauge::Majority] {
            pages.iter().for_each(|page| page.set_gauge(gauge, admission.is_some().into()));
        }
        let metrics = config.metrics.map(|address| Metrics::start(address, pages.clone())).transpose()?;
        let (mut planes, mut desks, drain) = (Vec::new(), Vec::new(), Drain::default());
        let vitals = Supervisor::default();
        for part in parts {
            let (desk, teller, asked) = ControlBridge::open().map_err(StartError::Network)?;
            planes.push(part.start(admission.is_some().then_some(desk), drain.clone(), &vitals)?);
            desks.push((teller, asked));
        }
        let address = admission.as_ref().map(|admission| admission.address);
        let control =
            admission.map(|admission| Self::start_control(&config, run, admission, &mut planes, desks, &vitals));
        let control = control.transpose()?;
        planes.iter_mut().try_for_each(RunningShard::open_door)?;
        pages.iter().for_each(|page| page.set_state(DaemonState::Serving));
        Ok(Self { planes, control, node, address, metrics, drain, vitals, _locks: locks })
    }

    /// Makes the folders if they are not there, and keeps other daemons out of them.
    fn lock_folders(config: &Config) -> Result<Vec<StateDirLock>, StartError> {
        state_dir::make(&config.folder)?;
        let mut locks = vec![StateDirLock::take(&config.folder)?];
        state_dir::make(&config.memory_folder)?;
        let mut folders = vec![&*config.folder, &*config.memory_folder];
        if config.key.is_some() {
            state_dir::make(&config.state_folder)?;
        }
        // Without a key it may hold segments in files all the same, and is made with the first of them.
        if config.state_folder.exists() {
            folders.push(&config.state_folder);
        }
        locks.extend(StateDirLock::take_all(&folders)?);
        let joins_anew = config.join.is_some() && has_left(&config.state_folder);
        if joins_anew {
            tracing::warn!("throwing away the segments of the node that left its cluster: they went with it");
        }
        if config.discard || joins_anew {
            discard_all(config)?;
        }
        Ok(locks)
    }

    fn start_control(
        config: &Config,
        run: u32,
        admission: Bootstrap,
        planes: &mut [RunningShard],
        desks: Vec<BridgeEnd>,
        vitals: &Supervisor,
    ) -> Result<ControlPlane, ControlError> {
        let Bootstrap { node, key, address, listener, founder, incarnation, join } = admission;
        let names = planes.iter_mut().flat_map(RunningShard::take_names).collect();
        let (state_folder, folder, peers) = (config.state_folder.clone(), config.folder.clone(), config.peers.clone());
        let pages = planes.iter().map(|plane| plane.page().clone()).collect();
        let planes = config.progress_threads;
        let config = ControlConfig {
            node,
            run,
            incarnation,
            planes,
            key,
            address,
            listener,
            state_folder,
            folder,
            peers,
            founder,
            join,
            names,
            pages,
        };
        ControlPlane::start(config, desks, vitals.clone())
    }

    /// Its number; a cluster that it joined may have given it.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Where clients attach.
    pub fn socket(&self) -> &Path {
        self.first().socket()
    }

    fn first(&self) -> &RunningShard {
        self.planes.first().expect("a node has at least one plane")
    }

    /// Where other nodes connect to, if this node belongs to a cluster.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where a monitor asks over HTTP, if it may.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// The core of its first progress thread, if it has one.
    pub fn core(&self) -> Option<usize> {
        self.first().core()
    }

    /// The core of each progress thread, if it has one.
    pub fn cores(&self) -> Vec<Option<usize>> {
        self.planes.iter().map(RunningShard::core).collect()
    }

    /// What each user may have, from now on. Nobody loses what he has.
    pub fn set_quotas(&self, quotas: QuotaTable) {
        self.planes.iter().for_each(|plane| plane.set_quotas(&quotas));
    }

    /// Who hears when a part of the node ends by itself, for whoever can wait for that.
    pub fn vigil(&self) -> FailureWatch {
        FailureWatch {
            vitals: self.vitals.clone(),
            pages: self.planes.iter().map(|plane| plane.page().clone()).collect(),
        }
    }

    /// Whether its progress threads still run.
    pub fn is_running(&self) -> bool {
        self.planes.iter().all(RunningShard::is_running)
    }

    /// Lets what is under way end before it is [stopped](Self::stop): no client is let in and no request begun any more. It
    /// waits for `patience` at the most, and no longer than `enough` allows, which is asked again and again. Says how many
    /// requests found no end.
    pub fn drain(&self, patience: Duration, mut enough: impl FnMut() -> bool) -> usize {
        /// How long the threads may take to tell those whose time is over.
        const LAST_WORDS: Duration = Duration::from_millis(100);
        self.vitals.stop();
        self.planes.iter().for_each(RunningShard::begin_stop);
        self.drain.ask();
        self.planes.iter().for_each(RunningShard::wake);
        let mut until = Instant::now() + patience;
        let mut hurried = false;
        while self.is_running() && !self.drain.is_over() {
            if !hurried && (Instant::now() >= until || enough()) {
                hurried = true;
                until = Instant::now() + LAST_WORDS;
                self.drain.hurry();
                self.planes.iter().for_each(RunningShard::wake);
            }
            if hurried && Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.drain.cut_short()
    }

    /// Stops it: no new clients, the sessions end, the progress threads end, its memory goes.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        self.vitals.stop();
        self.planes.iter_mut().for_each(RunningShard::close_door);
        drop(self.control.take());
        // All of them end, also if one ended badly.
        let ends: Vec<_> = self.planes.iter_mut().map(RunningShard::end).collect();
        ends.into_iter().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the node did not end well");
        }
    }
}
