//! A running node: starts what it needs in the right order, and stops it in the other one.

use crate::admission::Admission;
use crate::audiences::Audiences;
use crate::config::{Config, CoreChoice};
use crate::control::{ControlConfig, ControlError, ControlPlane, Desk};
use crate::core_claim::CoreClaim;
use crate::drain::Drain;
use crate::fabric;
use crate::files::Files;
use crate::folder::{self, FolderError, FolderLock};
use crate::memory::{NodeMemory, PoolError};
use crate::metrics::Metrics;
use crate::progress::{Node, Parts};
use crate::quotas::{QuotaTable, SharedQuotas};
use crate::status::{Page, PageIdentity, Tally, let_through};
use crate::trust::KeyError;
use ddss_core::NodeId;
use ddss_core::limits::CLIENTS_MAX;
use ddss_core::status::{Gauge, State};
use ddss_ipc::{Inbox, Inherited, PerUser, Reception, ReceptionConfig, Station};
use ddss_runtime::{ProgressThread, RuntimeError};
use ddss_verbs::FabricError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a node could not start, or not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its number is none.
    #[error("{0} cannot be: nodes are numbered from 1 to 1024")]
    BadNode(NodeId),
    /// There are peers and no key.
    #[error("--listen, --peer and --join need a cluster key, and there is none in {}: `ddss cluster init` makes one, `ddss cluster token` shows it for the other nodes", state_folder.display())]
    NoKey {
        /// Where it would lie.
        state_folder: PathBuf,
    },
    /// The cluster's key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A peer is named twice, or is the node itself.
    #[error("the peers name {0} twice, or it is this node itself")]
    BadPeer(NodeId),
    /// A quota makes no sense.
    #[error("quota: {0}")]
    Quota(String),
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
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
    /// What a script is told by the exit code; the flags and the configuration have 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadNode(_) | Self::BadPeer(_) | Self::Advertise { .. } | Self::OtherNode { .. } | Self::Quota(_) => 2,
            Self::Folder(FolderError::Taken { .. }) => 3,
            Self::Memory(PoolError::Folder(FolderError::Taken { .. })) => 3,
            Self::Folder(_) | Self::Memory(_) | Self::Area(_) | Self::Socket { .. } | Self::State { .. } => 4,
            Self::Control(ControlError::State { .. }) => 4,
            Self::NoKey { .. } | Self::Key(_) => 5,
            Self::Listen { .. } | Self::Network(_) | Self::Adapter(_) | Self::Control(_) => 6,
            Self::Thread(RuntimeError::Setup(inside)) => inside.downcast_ref().map_or(1, Self::exit_code),
            _ => 1,
        }
    }
}

/// A running node, in this process.
#[derive(Debug)]
pub struct Service {
    reception: Option<Reception>,
    progress: Option<ProgressThread>,
    control: Option<ControlPlane>,
    node: NodeId,
    address: Option<SocketAddr>,
    socket: PathBuf,
    core: Option<usize>,
    folder: PathBuf,
    memory_folder: PathBuf,
    state_folder: PathBuf,
    discard: bool,
    page: Page,
    quotas: SharedQuotas,
    metrics: Option<Metrics>,
    drain: Drain,
    inbox: Inbox,
    _claim: Option<CoreClaim>,
    _locks: Vec<FolderLock>,
}

impl Service {
    /// Starts a node; when this returns, clients can attach and other nodes can connect.
    pub fn start(mut config: Config) -> Result<Self, StartError> {
        config.check()?;
        folder::make(&config.folder)?;
        let mut locks = vec![FolderLock::take(&config.folder)?];
        folder::make(&config.memory_folder)?;
        let mut folders = vec![&*config.folder, &*config.memory_folder];
        if config.key.is_some() {
            folder::make(&config.state_folder)?;
            folders.push(&config.state_folder);
        }
        locks.extend(FolderLock::take_all(&folders)?);
        if config.discard {
            NodeMemory::discard(&config.memory_folder);
            Files::discard(&config.state_folder);
            Page::discard(&config.folder, &config.memory_folder);
        }
        let claim = if config.core == CoreChoice::Sensible { CoreClaim::take() } else { None };
        let core = match config.core {
            CoreChoice::Core(core) => Some(core),
            CoreChoice::Unpinned => None,
            CoreChoice::Sensible => claim.as_ref().map(|claim| claim.core),
        };
        let mut fabric = fabric::open(&config.fabric, config.listen)?;
        // Without a key nobody could prove that he may speak to this node: so nobody is listened to.
        let admission = Admission::take(&config, fabric.as_mut())?;
        let node = admission.as_ref().map_or(config.node, |admission| admission.node);
        config.node = node;
        let mut memory = NodeMemory::open(&config.memory_folder, node, config.pool_bytes)?;
        memory.keep_files(Files::find(&config.state_folder, node, config.file_bytes, config.unclean_files)?);
        // Any number that the last run did not have will do: it only tells two runs apart.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u32;
        let page = Self::show(&config, run, core)?;
        page.set_gauge(Gauge::Clustered, admission.is_some().into());
        let metrics = config.metrics.map(|address| Metrics::start(address, page.clone())).transpose()?;
        let (desk, teller, asked) = Desk::open().map_err(StartError::Network)?;
        let desk = admission.is_some().then_some(desk);
        let socket = config.socket();
        let at_socket = |source| StartError::Socket { path: socket.clone(), source };
        let inherited = if config.inherit_socket { Inherited::take().map_err(at_socket)? } else { None };
        if inherited.is_some() {
            tracing::info!(socket = %socket.display(), "took the clients' socket from whoever started this daemon");
        }
        let station = Station::open(config.node).map_err(at_socket)?;
        let mut reception = ReceptionConfig::new(&station);
        reception.socket_mode = config.socket_mode;
        let audiences = Audiences::default();
        reception.views = audiences.views();
        let quotas = SharedQuotas::default();
        quotas.set(config.quotas.clone());
        let (doorkeeper, kept_quotas) = (quotas.clone(), quotas.clone());
        reception.per_user = PerUser::new(move |uid, clients| doorkeeper.admit(uid, clients));
        let inbox = station.inbox();
        let drain = Drain::default();
        let told = drain.clone();
        let (memory_folder, discard) = (config.memory_folder.clone(), config.discard);
        let pace = config.pace;
        let (peers, state_folder, folder) = (config.peers.clone(), config.state_folder.clone(), config.folder.clone());
        let (tell_names, names) = mpsc::sync_channel(1);
        let tally = Tally::new(node, page.clone(), CLIENTS_MAX);
        let (kept_folder, kept_state) = (folder.clone(), state_folder.clone());
        let progress = ProgressThread::start("ddss-progress", core, pace, move || {
            let made = Node::new(
                &config,
                Parts { station, fabric, memory, audiences, tally, quotas, desk, drain: told },
                run,
            )?;
            // Whoever asked has stopped listening only if the start has failed.
            let _ = tell_names.send(made.names());
            #[cfg(test)]
            let made = crate::allocation::Counted::new(made, &config.folder);
            Ok::<_, StartError>(made)
        })?;
        let address = admission.as_ref().map(|admission| admission.address);
        let shown = page.clone();
        let control = admission.map(|Admission { node, key, address, listener, founder, join }| {
            let (names, page) = (names.recv().unwrap_or_default(), shown);
            let config = ControlConfig {
                node,
                run,
                key,
                address,
                listener,
                state_folder,
                folder,
                peers,
                founder,
                join,
                names,
                page,
            };
            ControlPlane::start(config, teller, asked)
        });
        let control = control.transpose()?;
        let reception = match inherited {
            Some(inherited) => Reception::start_at(inherited, &socket, reception, inbox.sink()),
            None => Reception::start(&socket, reception, inbox.sink()),
        };
        let reception = reception.map_err(at_socket)?;
        page.set_state(State::Serving);
        Ok(Self {
            reception: Some(reception),
            progress: Some(progress),
            control,
            node,
            address,
            socket,
            core,
            folder: kept_folder,
            memory_folder,
            state_folder: kept_state,
            discard,
            page,
            quotas: kept_quotas,
            metrics,
            drain,
            inbox,
            _claim: claim,
            _locks: locks,
        })
    }

    /// Opens the page on which others see how it is.
    fn show(config: &Config, run: u32, core: Option<usize>) -> Result<Page, StartError> {
        let Config { folder, memory_folder, status_mode, .. } = config;
        let unusable = |source| FolderError::Unusable { path: memory_folder.clone(), source };
        let_through(memory_folder, *status_mode).map_err(unusable)?;
        let identity = PageIdentity { node: config.node, run, core, mode: *status_mode };
        Ok(Page::make(folder, memory_folder, identity)?)
    }

    /// Its number; a cluster that it joined may have given it.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Where clients attach.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where other nodes connect to, if this node belongs to a cluster.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where a monitor asks over HTTP, if it may.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// The core of its progress thread, if it has one.
    pub fn core(&self) -> Option<usize> {
        self.core
    }

    /// What each user may have, from now on. Nobody loses what he has.
    pub fn set_quotas(&self, quotas: QuotaTable) {
        self.quotas.set(quotas);
    }

    /// Whether its progress thread still runs.
    pub fn is_running(&self) -> bool {
        self.progress.as_ref().is_some_and(ProgressThread::is_running)
    }

    /// Lets what is under way end before it is [stopped](Self::stop): no client is let in and no request begun any more. It
    /// waits for `patience` at the most, and no longer than `enough` allows, which is asked again and again. Says how many
    /// requests found no end.
    pub fn drain(&self, patience: Duration, mut enough: impl FnMut() -> bool) -> usize {
        /// How long the thread may take to tell those whose time is over.
        const LAST_WORDS: Duration = Duration::from_millis(100);
        self.page.set_state(State::Stopping);
        if let Some(reception) = &self.reception {
            reception.close_door();
        }
        self.drain.ask();
        self.inbox.ring();
        let mut until = Instant::now() + patience;
        let mut hurried = false;
        while self.is_running() && !self.drain.is_over() {
            if !hurried && (Instant::now() >= until || enough()) {
                hurried = true;
                until = Instant::now() + LAST_WORDS;
                self.drain.hurry();
                self.inbox.ring();
            }
            if hurried && Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.drain.cut_short()
    }

    /// Stops it: no new clients, the sessions end, the progress thread ends, its memory goes.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        if let Some(reception) = self.reception.take() {
            reception.stop();
        }
        drop(self.control.take());
        let Some(progress) = self.progress.take() else { return Ok(()) };
        let ended = progress.stop();
        self.page.set_state(State::Stopped);
        if self.discard {
            NodeMemory::discard(&self.memory_folder);
            Files::discard(&self.state_folder);
            Page::discard(&self.folder, &self.memory_folder);
        }
        Ok(ended?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the node did not end well");
        }
    }
}
