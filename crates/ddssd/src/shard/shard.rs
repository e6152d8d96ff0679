//! One shard of a node: a progress thread with its own memory, fabric and acceptor.
//!
//! A node has one or several shards. They share the process, the control plane and the settings, but no memory.

use super::drain::Drain;
use super::event_loop::{EventLoop, EventLoopParts};
use crate::auth::Purpose;
use crate::config::config::Config;
use crate::config::quota_table::{QuotaTable, SharedQuotas};
use crate::control::ControlBridge;
use crate::cpu_placement::CorePlacement;
use crate::peers::handshake_worker::{HandshakeCounts, HandshakeVerifier, HandshakeWorker};
use crate::start_error::StartError;
use crate::status::{PageIdentity, Recorder, StatusPage, allow_readers};
use crate::storage::area_access::AreaAudiences;
use crate::storage::file_segments::Files;
use crate::storage::memory::NodeMemory;
use crate::storage::pool_error::PoolError;
use crate::storage::segment_folder;
use crate::storage::state_dir;
use crate::storage::state_dir::{StateDirError, StateDirLock};
use crate::supervisor::Supervisor;
use ddss_admin::Release;
use ddss_admin::storage::{Head, Registry, RegistryEntry, file_folder, shard_folder};
use ddss_core::limits::{CLIENTS_MAX, SHARDS_MAX};
use ddss_core::status::DaemonState;
use ddss_core::{Name, PeerHello, Shard};
use ddss_engine::NameState;
use ddss_ipc::{Acceptor, AcceptorConfig, Inbox, InheritedSocket, IpcServer, UserLimit, socket_name};
use ddss_runtime::{ProgressThread, prefer_memory_node as prefer_memory};
use ddss_verbs::Fabric;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// A shard with open memory and a readable status page; its thread does not run yet.
pub(crate) struct PreparedShard {
    shard: Shard,
    config: Config,
    run: u32,
    placement: CorePlacement,
    fabric: Box<dyn Fabric>,
    memory: NodeMemory,
    page: StatusPage,
}

/// Prefers a memory node for all pages that this thread touches first.
fn prefer_memory_node(node: usize) {
    if let Err(error) = prefer_memory(node) {
        tracing::warn!(node, %error, "cannot prefer the memory node of the progress thread's core");
    }
}

/// Runs `work` on a thread that allocates on the given memory node, on a machine with several.
fn on_memory_node<T: Send>(node: Option<usize>, work: impl FnOnce() -> T + Send) -> T {
    let Some(node) = node else { return work() };
    let body = || {
        prefer_memory_node(node);
        work()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

impl PreparedShard {
    /// Opens the files of an earlier daemon, or creates them.
    pub(crate) fn open(
        config: &Config,
        shard: Shard,
        run: u32,
        placement: CorePlacement,
        fabric: Box<dyn Fabric>,
    ) -> Result<Self, StartError> {
        let config = config.for_shard(shard);
        state_dir::make(&config.memory_folder)?;
        let mut memory = on_memory_node(placement.memory, || {
            NodeMemory::open(&config.memory_folder, config.node, config.pool_bytes)
        })?;
        let in_files = file_folder(&config.state_folder, shard.index());
        memory.enable_files(Files::open(in_files, config.node, config.file_bytes, config.unclean_files)?);
        let unusable = |source| StateDirError::Unusable { path: config.memory_folder.clone(), source };
        allow_readers(&config.memory_folder, config.status_mode).map_err(unusable)?;
        let identity = PageIdentity { node: config.node, run, core: placement.core, shard, mode: config.status_mode };
        let page = StatusPage::make(&config.folder, &config.memory_folder, identity)?;
        Ok(Self { shard, config, run, placement, fabric, memory, page })
    }

    /// Returns the status page.
    pub(crate) fn page(&self) -> &StatusPage {
        &self.page
    }

    /// Starts the progress thread. On return it has restored its segments; clients cannot attach yet.
    pub(crate) fn start(
        self,
        bridge: Option<ControlBridge>,
        drain: Drain,
        supervisor: &Supervisor,
    ) -> Result<RunningShard, StartError> {
        let Self { shard, config, run, placement, mut fabric, memory, page } = self;
        let socket = config.folder.join(socket_name(shard.index()));
        let at_socket = |source| StartError::Socket { path: socket.clone(), source };
        let inherited = inherited_socket(&config, shard, &socket).map_err(at_socket)?;
        let server = IpcServer::open(config.node).map_err(at_socket)?;
        let (audiences, quotas) = (AreaAudiences::default(), SharedQuotas::default());
        let handshakes = HandshakeCounts::default();
        quotas.set(config.quotas.for_shard(shard.count()));
        let mut acceptor = AcceptorConfig::new(&server);
        acceptor.socket_mode = config.socket_mode;
        acceptor.shards = shard.count();
        acceptor.release = Release::long();
        acceptor.area_access = audiences.access_check();
        acceptor.user_limit = user_limit(quotas.clone(), supervisor);
        let inbox = server.inbox();
        let verifier = config.key.clone().map(|key| {
            let hello = PeerHello { node: config.node, run, shards: shard.count() };
            let liveness = supervisor.register("the handshake verifier");
            HandshakeVerifier::new(key, Purpose::Data(shard.index()), hello, handshakes.clone(), liveness)
        });
        let handshake_worker = verifier.map(|verifier| verify_handshakes(fabric.as_mut(), verifier, server.inbox()));
        let handshake_worker = handshake_worker.transpose().map_err(StartError::Network)?.flatten();
        let recorder = Recorder::new(config.node, page.clone(), CLIENTS_MAX);
        let config_copy = config.clone();
        let (names_sender, names) = mpsc::sync_channel(1);
        let (quotas_copy, core, memory_node, pace) = (quotas.clone(), placement.core, placement.memory, config.pace);
        let liveness = supervisor.register("a progress thread");
        let progress = ProgressThread::start(&thread_name(shard), core, pace, move || {
            memory_node.into_iter().for_each(prefer_memory_node);
            let parts = EventLoopParts {
                shard,
                server,
                fabric,
                memory,
                audiences,
                recorder,
                quotas,
                bridge,
                drain,
                handshake_worker,
                handshakes,
                liveness,
            };
            let event_loop = EventLoop::new(&config, parts, run)?;
            // The receiver is gone only if the start has failed.
            let _ = names_sender.send(event_loop.names());
            #[cfg(test)]
            let event_loop = crate::tests::no_alloc::Counted::new(event_loop, &config.folder);
            Ok::<_, StartError>(event_loop)
        })?;
        let names = names.recv().unwrap_or_default();
        Ok(RunningShard {
            shard,
            acceptor: None,
            progress: Some(progress),
            unopened: Some((acceptor, inherited)),
            quotas: quotas_copy,
            names,
            page,
            socket,
            inbox,
            config: config_copy,
            placement,
        })
    }
}

/// Takes the clients' socket from the service manager, which passes that of the first shard.
fn inherited_socket(config: &Config, shard: Shard, socket: &Path) -> io::Result<Option<InheritedSocket>> {
    if !config.inherit_socket || shard.index() > 0 {
        return Ok(None);
    }
    let inherited = InheritedSocket::take()?;
    if inherited.is_some() {
        tracing::info!(socket = %socket.display(), "inherited the clients' socket from the service manager");
    }
    Ok(inherited)
}

/// Lets the fabric verify handshakes, or a worker if the fabric cannot.
fn verify_handshakes(
    fabric: &mut dyn Fabric,
    verifier: HandshakeVerifier,
    inbox: Inbox,
) -> io::Result<Option<HandshakeWorker>> {
    if fabric.capabilities().has_admission_filter {
        return fabric.set_admission_filter(Box::new(verifier)).map(|()| None);
    }
    HandshakeWorker::start(verifier, inbox).map(Some)
}

/// Returns the limit on the clients of each user. The acceptor's thread owns it until it ends.
fn user_limit(quotas: SharedQuotas, supervisor: &Supervisor) -> UserLimit {
    let liveness = supervisor.register("the acceptor");
    UserLimit::new(move |uid, clients| {
        liveness.check_fault();
        quotas.admit(uid, clients)
    })
}

fn thread_name(shard: Shard) -> String {
    // The kernel keeps 15 characters.
    if shard.is_only() { "ddss-progress".to_owned() } else { format!("ddss-progres-{}", shard.index()) }
}

/// A shard with a running thread.
#[derive(Debug)]
pub(crate) struct RunningShard {
    shard: Shard,
    // Drop order matters: the acceptor closes before the thread ends.
    acceptor: Option<Acceptor>,
    progress: Option<ProgressThread>,
    /// Parts of the acceptor, until it is opened.
    unopened: Option<(AcceptorConfig, Option<InheritedSocket>)>,
    inbox: Inbox,
    quotas: SharedQuotas,
    names: Vec<(Name, NameState)>,
    page: StatusPage,
    socket: PathBuf,
    config: Config,
    placement: CorePlacement,
}

impl RunningShard {
    /// Lets clients attach from now on.
    pub(crate) fn open_acceptor(&mut self) -> Result<(), StartError> {
        let Some((config, inherited)) = self.unopened.take() else { return Ok(()) };
        let at_socket = |source| StartError::Socket { path: self.socket.clone(), source };
        let sink = self.inbox.sink();
        let opened = match inherited {
            Some(inherited) => Acceptor::start_at(inherited, &self.socket, config, sink),
            None => Acceptor::start(&self.socket, config, sink),
        };
        self.acceptor = Some(opened.map_err(at_socket)?);
        Ok(())
    }

    /// Takes the names that the start found; with each, true if the directory decides whether this node is its home.
    pub(crate) fn take_names(&mut self) -> Vec<(Name, NameState)> {
        std::mem::take(&mut self.names)
    }

    /// Returns the status page.
    pub(crate) fn page(&self) -> &StatusPage {
        &self.page
    }

    /// Returns the path of the socket that clients attach to.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the core of the thread, if it is pinned.
    pub(crate) fn core(&self) -> Option<usize> {
        self.placement.core
    }

    /// Applies this shard's part of each user's quota.
    pub(crate) fn set_quotas(&self, quotas: &QuotaTable) {
        self.quotas.set(quotas.for_shard(self.shard.count()));
    }

    /// Returns true while the thread runs.
    pub(crate) fn is_running(&self) -> bool {
        self.progress.as_ref().is_some_and(ProgressThread::is_running)
    }

    /// Begins the stop: refuses new clients and publishes the state.
    pub(crate) fn begin_stop(&self) {
        self.page.set_state(DaemonState::Stopping);
        if let Some(acceptor) = &self.acceptor {
            acceptor.stop_accepting();
        }
    }

    /// Wakes the thread, to notice a changed flag.
    pub(crate) fn wake(&self) {
        self.inbox.wake_server();
    }

    /// Closes the acceptor and ends all sessions.
    pub(crate) fn close_acceptor(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&mut self) -> Result<(), StartError> {
        self.close_acceptor();
        let Some(progress) = self.progress.take() else { return Ok(()) };
        let ended = progress.stop();
        self.page.set_state(DaemonState::Stopped);
        if self.config.discard {
            let Config { folder, memory_folder, state_folder, .. } = &self.config;
            segment_folder::discard(memory_folder);
            Files::discard(&file_folder(state_folder, self.shard.index()));
            StatusPage::discard(folder, memory_folder, self.shard.index());
            if self.shard.index() > 0 {
                // Remove the folder that was made for this shard; it stays if it holds other files.
                let _ = std::fs::remove_dir(memory_folder);
            }
        }
        Ok(ended?)
    }
}

/// Discards the shards of earlier daemons, whatever their number was. Refuses, and discards nothing, if a daemon uses
/// the files: it may have created their folder after its start.
pub(crate) fn discard_all(config: &Config) -> Result<(), StateDirError> {
    let shards = || 0..SHARDS_MAX as u8;
    let in_files = shards().map(|shard| file_folder(&config.state_folder, shard)).filter(|folder| folder.exists());
    // Locked until the folders are empty; each shard of this daemon locks its own again.
    let _locks = in_files.map(|folder| StateDirLock::lock_folder(&folder)).collect::<Result<Vec<_>, _>>()?;
    shards().for_each(|shard| discard(config, shard));
    Ok(())
}

fn discard(config: &Config, shard: u8) {
    let memory_folder = shard_folder(&config.memory_folder, shard);
    Files::discard(&file_folder(&config.state_folder, shard));
    if !memory_folder.exists() {
        return;
    }
    segment_folder::discard(&memory_folder);
    StatusPage::discard(&config.folder, &memory_folder, shard);
    if shard > 0 {
        // Clients would wait at the socket of a killed daemon for a shard that never comes.
        let _ = std::fs::remove_file(config.folder.join(socket_name(shard)));
        let _ = std::fs::remove_dir(&memory_folder);
    }
}

/// Refuses segments that were distributed over another number of shards: clients could not find them. Without segments
/// the number may change.
pub(crate) fn check_shards(config: &Config) -> Result<(), PoolError> {
    let registry_folders = |shard: u8| {
        let folders = [shard_folder(&config.memory_folder, shard), file_folder(&config.state_folder, shard)];
        folders.into_iter().filter(|folder| folder.join(Registry::FILE_NAME).exists())
    };
    // Check the format of every registry before any of them is opened.
    (0..SHARDS_MAX as u8).flat_map(registry_folders).try_for_each(|folder| segment_folder::check_registry(&folder))?;
    let mut found: Vec<(u8, Option<Name>)> = Vec::new();
    for shard in 0..SHARDS_MAX as u8 {
        for folder in registry_folders(shard) {
            let path = folder.join(Registry::FILE_NAME);
            if Registry::head(&path).is_ok_and(|head| head == Head::Unclaimed) {
                continue;
            }
            let opened = Registry::open_existing(&path).map_err(|source| PoolError::File { path, source })?;
            found.extend(opened.entries().filter_map(|entry| match entry {
                RegistryEntry::Live(record) => Some((shard, Some(record.name))),
                // The name of a broken record is unknown: it stays in its shard, for recovery.
                RegistryEntry::Broken => Some((shard, None)),
                RegistryEntry::Free(_) => None,
            }));
        }
    }
    let fits = |count: u8| {
        found.iter().all(|&(shard, name)| match name {
            Some(name) => Shard::index_of(&name, count) == shard,
            None => shard < count,
        })
    };
    if !fits(config.progress_threads) {
        let before = (1..=SHARDS_MAX as u8).find(|&count| fits(count));
        let (path, segments) = (config.memory_folder.clone(), found.len());
        return Err(PoolError::OtherShardCount { path, before: before.unwrap_or(SHARDS_MAX as u8), segments });
    }
    Ok(())
}

/// Discards the files of shards that no longer exist. [`check_shards`] has found no segment in them.
pub(crate) fn discard_other_shards(config: &Config) {
    (config.progress_threads..SHARDS_MAX as u8).for_each(|shard| discard(config, shard));
}
