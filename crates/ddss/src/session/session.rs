//! A session with one run of the node's daemon, and the way from one session to the next.
//!
//! A daemon that dies takes the channels with it; the segments stay. The next call attaches to the next daemon in the
//! same folder, and waits for it until its own deadline. A call in flight is repeated if it has no side effects;
//! otherwise its outcome is unknown. A crash, a stop and an upgrade look the same.

use crate::call::channels::ChannelPool;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::session::mapped_areas::MappedAreas;
use crate::session::of_process::PerProcess;
use arc_swap::{ArcSwap, Guard};
use ddss_core::{OpenedSegment, area_of};
use ddss_ipc::{AttachError, AttachOptions, Attachment, SharedMemory, socket_name};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// The channels to one daemon.
pub(crate) struct Session {
    pub(crate) channels: ChannelPool,
    pub(crate) attachment: Attachment,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.attachment.fmt(out)
    }
}

/// Parameters of attaching to a daemon.
#[derive(Clone, Debug)]
pub(crate) struct AttachPlan {
    pub(crate) folder: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) options: AttachOptions,
    /// Shard of the daemon to attach to.
    pub(crate) shard: u8,
    /// The daemon's number of shards, once known: names are distributed by it.
    pub(crate) shard_count: Option<u8>,
}

impl AttachPlan {
    /// Returns the plan for another shard of the same daemon.
    pub(crate) fn to_shard(&self, shard: u8) -> Self {
        Self { socket: self.folder.join(socket_name(shard)), shard, ..self.clone() }
    }

    /// Attaches if the daemon accepts this client by then.
    pub(crate) fn attach(&self, by: Instant) -> Result<Session, Error> {
        let Self { folder, socket, options, shard_count, .. } = self;
        let mut options = options.clone();
        options.timeout = options.timeout.min(by.saturating_duration_since(Instant::now()));
        let attachment = Attachment::connect(socket, &options).map_err(|error| match error {
            AttachError::NoDaemon { source, .. } => self.shards_changed().unwrap_or_else(|| Reason::NoDaemon {
                socket: socket.clone(),
                folder: folder.clone(),
                source,
            }),
            AttachError::Version { ours, theirs, text } => Reason::VersionMismatch { ours, theirs, text },
            other => Reason::Attach(other),
        })?;
        let now = attachment.shards();
        if let Some(before) = shard_count.filter(|&before| before != now) {
            return Err(Reason::ShardsChanged { before, now }.into());
        }
        Ok(Session { channels: ChannelPool::new(&attachment), attachment })
    }

    /// Returns the reason why a daemon does not listen for another shard than its first: it has fewer of them now.
    fn shards_changed(&self) -> Option<Reason> {
        let before = self.shard_count.filter(|_| self.shard > 0)?;
        let now = ddss_ipc::read_status(&self.folder).ok()?.daemon.shard.count();
        (now <= self.shard).then_some(Reason::ShardsChanged { before, now })
    }

    /// Builds the error of a search that found no daemon.
    pub(crate) fn no_daemon_error(&self, kind: ErrorKind) -> Error {
        let Self { socket, folder, .. } = self;
        Reason::NoDaemon { socket: socket.clone(), folder: folder.clone(), source: kind.into() }.into()
    }
}

/// Options of a client's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    pub(crate) local_reads: bool,
    /// True if calls that did nothing are repeated while a daemon or a home is away.
    pub(crate) retries: bool,
}

/// State that all clones of a client share.
pub(crate) struct Inner {
    current: ArcSwap<Session>,
    /// Taken by the thread that searches for the next daemon.
    turn: PerProcess<Mutex<()>>,
    pub(crate) plan: AttachPlan,
    pub(crate) settings: CallSettings,
    /// Mapped areas of this node, unless local reads are disabled.
    pub(crate) areas: PerProcess<MappedAreas>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inner").field("plan", &self.plan).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Inner {
    /// Time for which a call that does not wait looks for the next daemon.
    const START_MAX: Duration = Duration::from_millis(50);
    /// Delay between two attempts to find the next daemon.
    pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(2);

    /// Attaches to a daemon that accepts this client by then.
    pub(crate) fn new(mut plan: AttachPlan, settings: CallSettings, by: Instant) -> Result<Self, Error> {
        let session = plan.attach(by)?;
        plan.shard_count = Some(session.attachment.shards());
        let current = ArcSwap::from_pointee(session);
        Ok(Self { current, turn: PerProcess::default(), plan, settings, areas: PerProcess::default() })
    }

    /// Returns the number of the area that holds a segment, if it may be read in place.
    pub(crate) fn area_of(&self, opened: &OpenedSegment) -> Option<usize> {
        opened.at.filter(|_| self.settings.local_reads).map(area_of)
    }

    /// Returns the memory of an area if this process may map it, and can do so by then.
    pub(crate) fn map_area(&self, area: usize, by: Instant) -> Option<SharedMemory> {
        self.areas.get().ok()?.map(&self.plan.socket, area, by)
    }

    /// Returns the last session, whether or not its daemon still runs.
    pub(crate) fn last_session(&self) -> Guard<Arc<Session>> {
        self.current.load()
    }

    /// Returns a session with a daemon that is not known to be gone. Waits for the next daemon until the deadline,
    /// which is computed when needed, if the call `waits` for one.
    #[inline(always)]
    pub(crate) fn session(
        &self,
        time: &mut Deadline,
        waits: impl FnOnce() -> bool,
    ) -> Result<Guard<Arc<Session>>, Error> {
        let current = self.current.load();
        if !current.attachment.is_unusable() {
            return Ok(current);
        }
        drop(current);
        self.attach_again(time.deadline(), waits())
    }

    /// Returns the present session without waiting, for tasks.
    #[inline]
    pub(crate) fn current_session(&self) -> Option<Guard<Arc<Session>>> {
        Some(self.current.load()).filter(|current| !current.attachment.is_unusable())
    }

    #[cold]
    fn attach_again(&self, deadline: Instant, waits: bool) -> Result<Guard<Arc<Session>>, Error> {
        let since = Instant::now();
        loop {
            let looked = self.try_attach(deadline);
            if let Some(current) = self.current_session() {
                return Ok(current);
            }
            let error = looked.err().flatten();
            if Instant::now() + Self::RETRY_INTERVAL >= self.retry_until(error.as_ref(), since, deadline, waits) {
                return Err(error.unwrap_or_else(|| self.no_daemon_error(ErrorKind::TimedOut)));
            }
            if error.is_none() {
                std::thread::sleep(Self::RETRY_INTERVAL);
            }
        }
    }

    /// Attaches in place of a parent of this process, if the daemon is there.
    pub(crate) fn leave_parent(&self) {
        if self.current.load().attachment.is_inherited() {
            let _ = self.try_attach(Instant::now() + Self::START_MAX);
        }
    }

    /// Makes one attempt to find the next daemon, and a pause if there is none. No error: another thread is searching.
    pub(crate) fn try_attach(&self, by: Instant) -> Result<(), Option<Error>> {
        let failed = |error| -> Option<Error> { Some(Reason::Thread(error).into()) };
        let (turn, areas) = (self.turn.get().map_err(failed)?, self.areas.get().map_err(failed)?);
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(None),
        };
        if self.current_session().is_some() {
            return Ok(());
        }
        match self.plan.attach(by) {
            Ok(session) => {
                areas.forget();
                self.current.store(Arc::new(session));
                Ok(())
            }
            Err(error) => {
                std::thread::sleep(Self::RETRY_INTERVAL.min(by.saturating_duration_since(Instant::now())));
                Err(Some(error))
            }
        }
    }

    /// Returns how long further attempts are worthwhile after this error, for a caller that has searched since `since`.
    pub(crate) fn retry_until(&self, error: Option<&Error>, since: Instant, deadline: Instant, waits: bool) -> Instant {
        match error.map(Error::reason) {
            Some(Reason::VersionMismatch { .. } | Reason::ShardsChanged { .. }) => since,
            _ if waits && self.settings.retries => deadline,
            // A starting daemon removes the old socket for a moment.
            _ => deadline.min(since + Self::START_MAX),
        }
    }

    /// Builds the error of a search that found no daemon.
    pub(crate) fn no_daemon_error(&self, kind: ErrorKind) -> Error {
        self.plan.no_daemon_error(kind)
    }

    pub(crate) fn gone(&self) -> Error {
        Reason::DaemonGone { path: self.plan.socket.clone() }.into()
    }
}
