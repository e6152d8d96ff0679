//! One plane of a node: a progress thread with everything that only it has, and the door through which clients come to it.
//! A node has one or several; they share the process, the control plane and the settings, and no memory.

use super::drain::Drain;
use super::event_loop::{EventLoop, EventLoopParts};
use crate::auth::Purpose;
use crate::config::config::Config;
use crate::config::quotas::{QuotaTable, SharedQuotas};
use crate::control::ControlBridge;
use crate::cpu_placement::CorePlacement;
use crate::node::StartError;
use crate::peers::handshake_worker::{HandshakeCounts, HandshakeVerifier, HandshakeWorker};
use crate::status::{PageIdentity, Recorder, StatusPage, let_through};
use crate::storage::area_access::AreaAudiences;
use crate::storage::files::Files;
use crate::storage::memory::{NodeMemory, PoolError};
use crate::storage::registry::{Entry, Head, Registry};
use crate::storage::state_dir;
use crate::storage::state_dir::{StateDirError, StateDirLock, plane_folder};
use crate::supervisor::Supervisor;
use ddss_core::limits::{CLIENTS_MAX, PLANES_MAX};
use ddss_core::status::DaemonState;
use ddss_core::{Name, PeerHello, Shard};
use ddss_ipc::{Acceptor, AcceptorConfig, Inbox, InheritedSocket, IpcServer, UserLimit, socket_name};
use ddss_runtime::{ProgressThread, prefer_memory_node};
use ddss_verbs::Fabric;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// A plane whose memory is open and whose page can be read; its thread does not run yet.
pub(crate) struct PreparedShard {
    plane: Shard,
    config: Config,
    run: u32,
    seat: CorePlacement,
    fabric: Box<dyn Fabric>,
    memory: NodeMemory,
    page: StatusPage,
}

/// What this thread is the first to touch comes from that memory node from now on.
fn ask_for_memory_of(node: usize) {
    if let Err(error) = prefer_memory_node(node) {
        tracing::warn!(node, %error, "cannot ask for memory beside the progress thread's core");
    }
}

/// Does something on a thread that takes its memory from that node, where there are several.
fn beside<T: Send>(node: Option<usize>, work: impl FnOnce() -> T + Send) -> T {
    let Some(node) = node else { return work() };
    let body = || {
        ask_for_memory_of(node);
        work()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

impl PreparedShard {
    /// Opens what an earlier daemon left, or makes it.
    pub(crate) fn open(
        config: &Config,
        plane: Shard,
        run: u32,
        seat: CorePlacement,
        fabric: Box<dyn Fabric>,
    ) -> Result<Self, StartError> {
        let config = config.of_plane(plane);
        state_dir::make(&config.memory_folder)?;
        let mut memory =
            beside(seat.memory, || NodeMemory::open(&config.memory_folder, config.node, config.pool_bytes))?;
        let in_files = Files::folder(&config.state_folder, plane.index());
        memory.set_file_bytes(Files::find(in_files, config.node, config.file_bytes, config.unclean_files)?);
        let unusable = |source| StateDirError::Unusable { path: config.memory_folder.clone(), source };
        let_through(&config.memory_folder, config.status_mode).map_err(unusable)?;
        let identity = PageIdentity { node: config.node, run, core: seat.core, plane, mode: config.status_mode };
        let page = StatusPage::make(&config.folder, &config.memory_folder, identity)?;
        Ok(Self { plane, config, run, seat, fabric, memory, page })
    }

    /// Its page.
    pub(crate) fn page(&self) -> &StatusPage {
        &self.page
    }

    /// Starts its thread; when this returns it has taken in what was left, and waits for its door to be opened.
    pub(crate) fn start(
        self,
        desk: Option<ControlBridge>,
        drain: Drain,
        vitals: &Supervisor,
    ) -> Result<RunningShard, StartError> {
        let Self { plane, config, run, seat, mut fabric, memory, page } = self;
        let socket = config.folder.join(socket_name(plane.index()));
        let at_socket = |source| StartError::Socket { path: socket.clone(), source };
        // Whoever started the daemon may have made the first plane's socket.
        let may_inherit = config.inherit_socket && plane.index() == 0;
        let inherited = if may_inherit { InheritedSocket::take().map_err(at_socket)? } else { None };
        if inherited.is_some() {
            tracing::info!(socket = %socket.display(), "took the clients' socket from whoever started this daemon");
        }
        let station = IpcServer::open(config.node).map_err(at_socket)?;
        let audiences = AreaAudiences::default();
        let quotas = SharedQuotas::default();
        quotas.set(config.quotas.of_plane(plane.count()));
        let doorkeeper = quotas.clone();
        let mut reception = AcceptorConfig::new(&station);
        reception.socket_mode = config.socket_mode;
        reception.shards = plane.count();
        reception.area_access = audiences.views();
        // The reception's thread has what is asked there until it ends.
        let vital = vitals.part("the reception");
        reception.user_limit = UserLimit::new(move |uid, clients| {
            vital.look();
            doorkeeper.admit(uid, clients)
        });
        let inbox = station.inbox();
        let closed = (reception, inherited);
        let hello = PeerHello { node: config.node, run, planes: plane.count() };
        let judged = HandshakeCounts::default();
        let doorkeeper = |key| {
            HandshakeVerifier::new(
                key,
                Purpose::Data(plane.index()),
                hello,
                judged.clone(),
                vitals.part("the doorkeeper"),
            )
        };
        let mut doorman = None;
        if let Some(doorkeeper) = config.key.clone().map(doorkeeper) {
            if fabric.capabilities().has_admission_filter {
                fabric.set_admission_filter(Box::new(doorkeeper)).map_err(StartError::Network)?;
            } else {
                doorman = Some(HandshakeWorker::start(doorkeeper, station.inbox()).map_err(StartError::Network)?);
            }
        }
        let tally = Recorder::new(config.node, page.clone(), CLIENTS_MAX);
        let kept_config = config.clone();
        let (tell_names, names) = mpsc::sync_channel(1);
        let (kept_quotas, core, near, pace) = (quotas.clone(), seat.core, seat.memory, config.pace);
        let vital = vitals.part("a progress thread");
        let progress = ProgressThread::start(&thread_name(plane), core, pace, move || {
            near.into_iter().for_each(ask_for_memory_of);
            let parts = EventLoopParts {
                plane,
                station,
                fabric,
                memory,
                audiences,
                tally,
                quotas,
                desk,
                drain,
                doorman,
                judged,
                vital,
            };
            let made = EventLoop::new(&config, parts, run)?;
            // Whoever asked has stopped listening only if the start has failed.
            let _ = tell_names.send(made.names());
            #[cfg(test)]
            let made = crate::tests::no_alloc::Counted::new(made, &config.folder);
            Ok::<_, StartError>(made)
        })?;
        let names = names.recv().unwrap_or_default();
        let (progress, closed) = (Some(progress), Some(closed));
        let (reception, quotas) = (None, kept_quotas);
        Ok(RunningShard {
            plane,
            reception,
            progress,
            closed,
            quotas,
            names,
            page,
            socket,
            inbox,
            config: kept_config,
            seat,
        })
    }
}

fn thread_name(plane: Shard) -> String {
    // The kernel keeps 15 letters.
    if plane.is_only() { "ddss-progress".to_owned() } else { format!("ddss-progres-{}", plane.index()) }
}

/// A plane whose thread runs.
#[derive(Debug)]
pub(crate) struct RunningShard {
    plane: Shard,
    // The order counts: the door is closed before the thread ends.
    reception: Option<Acceptor>,
    progress: Option<ProgressThread>,
    /// What the door needs until it is opened.
    closed: Option<(AcceptorConfig, Option<InheritedSocket>)>,
    inbox: Inbox,
    quotas: SharedQuotas,
    names: Vec<(Name, bool)>,
    page: StatusPage,
    socket: PathBuf,
    config: Config,
    seat: CorePlacement,
}

impl RunningShard {
    /// From now on clients can attach.
    pub(crate) fn open_door(&mut self) -> Result<(), StartError> {
        let Some((config, inherited)) = self.closed.take() else { return Ok(()) };
        let at_socket = |source| StartError::Socket { path: self.socket.clone(), source };
        let sink = self.inbox.sink();
        let opened = match inherited {
            Some(inherited) => Acceptor::start_at(inherited, &self.socket, config, sink),
            None => Acceptor::start(&self.socket, config, sink),
        };
        self.reception = Some(opened.map_err(at_socket)?);
        Ok(())
    }

    /// The names that it found; with each, whether it was first at home elsewhere.
    pub(crate) fn take_names(&mut self) -> Vec<(Name, bool)> {
        std::mem::take(&mut self.names)
    }

    /// Its page.
    pub(crate) fn page(&self) -> &StatusPage {
        &self.page
    }

    /// Where clients attach.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The core of its thread, if it has one.
    pub(crate) fn core(&self) -> Option<usize> {
        self.seat.core
    }

    /// Takes its part of what each user may have.
    pub(crate) fn set_quotas(&self, quotas: &QuotaTable) {
        self.quotas.set(quotas.of_plane(self.plane.count()));
    }

    /// Whether its thread still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.progress.as_ref().is_some_and(ProgressThread::is_running)
    }

    /// It was told to stop: nobody is let in any more, and whoever looks is told.
    pub(crate) fn begin_stop(&self) {
        self.page.set_state(DaemonState::Stopping);
        if let Some(reception) = &self.reception {
            reception.stop_accepting();
        }
    }

    /// Has its thread look what it is told.
    pub(crate) fn wake(&self) {
        self.inbox.wake_server();
    }

    /// Lets nobody in any more; the sessions end.
    pub(crate) fn close_door(&mut self) {
        if let Some(reception) = self.reception.take() {
            reception.stop();
        }
    }

    /// Ends its thread.
    pub(crate) fn end(&mut self) -> Result<(), StartError> {
        self.close_door();
        let Some(progress) = self.progress.take() else { return Ok(()) };
        let ended = progress.stop();
        self.page.set_state(DaemonState::Stopped);
        if self.config.discard {
            let Config { folder, memory_folder, state_folder, .. } = &self.config;
            NodeMemory::discard(memory_folder);
            Files::discard(&Files::folder(state_folder, self.plane.index()));
            StatusPage::discard(folder, memory_folder, self.plane.index());
            if self.plane.index() > 0 {
                // Made for it alone. Whatever else somebody put there keeps it.
                let _ = std::fs::remove_dir(memory_folder);
            }
        }
        Ok(ended?)
    }
}

/// Throws away what planes of earlier daemons left, however many those had. Says so, and throws nothing away, if a daemon
/// works with the files: it may have made their folder when it had run for a while.
pub(crate) fn discard_all(config: &Config) -> Result<(), StateDirError> {
    let planes = || 0..PLANES_MAX as u8;
    let in_files = planes().map(|plane| Files::folder(&config.state_folder, plane)).filter(|folder| folder.exists());
    // Held until they are empty; a plane of this daemon takes its own anew.
    let _locks = in_files.map(|folder| StateDirLock::take_itself(&folder)).collect::<Result<Vec<_>, _>>()?;
    planes().for_each(|plane| discard(config, plane));
    Ok(())
}

fn discard(config: &Config, plane: u8) {
    let memory_folder = plane_folder(&config.memory_folder, plane);
    Files::discard(&Files::folder(&config.state_folder, plane));
    if !memory_folder.exists() {
        return;
    }
    NodeMemory::discard(&memory_folder);
    StatusPage::discard(&config.folder, &memory_folder, plane);
    if plane > 0 {
        // A door that a killed daemon left would have clients wait behind it for one that never comes.
        let _ = std::fs::remove_file(config.folder.join(socket_name(plane)));
        let _ = std::fs::remove_dir(&memory_folder);
    }
}

/// Refuses segments that were shared out among another number of planes: in this one they would be found by nobody.
/// Without such the number may change.
pub(crate) fn check_planes(config: &Config) -> Result<(), PoolError> {
    let registers = |plane: u8| {
        let folders = [plane_folder(&config.memory_folder, plane), Files::folder(&config.state_folder, plane)];
        folders.into_iter().filter(|folder| folder.join(NodeMemory::REGISTER_NAME).exists())
    };
    // Of which format all of it is comes before anything in it is opened.
    (0..PLANES_MAX as u8).flat_map(registers).try_for_each(|folder| NodeMemory::check_register(&folder))?;
    let mut found: Vec<(u8, Option<Name>)> = Vec::new();
    for plane in 0..PLANES_MAX as u8 {
        for folder in registers(plane) {
            let path = folder.join(NodeMemory::REGISTER_NAME);
            if Registry::head(&path).is_ok_and(|head| head == Head::Unclaimed) {
                continue;
            }
            let opened = Registry::open_existing(&path).map_err(|source| PoolError::File { path, source })?;
            found.extend(opened.entries().filter_map(|entry| match entry {
                Entry::Live(record) => Some((plane, Some(record.name))),
                // Of what makes no sense nobody knows the name: it stays where it is, for who takes it in.
                Entry::Broken => Some((plane, None)),
                Entry::Free(_) => None,
            }));
        }
    }
    let fits = |count: u8| {
        found.iter().all(|&(plane, name)| match name {
            Some(name) => Shard::index_of(&name, count) == plane,
            None => plane < count,
        })
    };
    if !fits(config.progress_threads) {
        let before = (1..=PLANES_MAX as u8).find(|&count| fits(count));
        let (path, segments) = (config.memory_folder.clone(), found.len());
        return Err(PoolError::OtherPlanes { path, before: before.unwrap_or(PLANES_MAX as u8), segments });
    }
    Ok(())
}

/// Throws away what planes left that are no more, which is nothing that anybody could find.
pub(crate) fn discard_other_planes(config: &Config) {
    (config.progress_threads..PLANES_MAX as u8).for_each(|plane| discard(config, plane));
}
