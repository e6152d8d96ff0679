//! A session with one run of the node's daemon, and the way from one session to the next.
//!
//! A daemon that dies takes the channels with it; the segments stay. The next call attaches to the next daemon in the
//! same folder, and waits for it until its own deadline. A call in flight is repeated if it has no side effects;
//! otherwise its outcome is unknown.

use crate::api::mapped_areas::MappedAreas;
use crate::call::channels::ChannelPool;
use crate::deadline::Deadline;
use crate::error::Error;
use arc_swap::{ArcSwap, Guard};
use ddss_ipc::{AttachError, AttachOptions, Attachment, socket_name};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// The channels to one daemon.
pub(crate) struct Session {
    pub(crate) channels: ChannelPool,
    pub(crate) attachment: Attachment,
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
            AttachError::NoDaemon { source, .. } => {
                Error::NoDaemon { socket: socket.clone(), folder: folder.clone(), source }
            }
            AttachError::Version { ours, theirs } => Error::VersionMismatch { ours, theirs },
            other => Error::Attach(other),
        })?;
        let now = attachment.shards();
        if let Some(before) = shard_count.filter(|&before| before != now) {
            return Err(Error::ShardsChanged { before, now });
        }
        Ok(Session { channels: ChannelPool::new(&attachment), attachment })
    }
}

/// State that all clones of a client share.
pub(crate) struct Inner {
    current: ArcSwap<Session>,
    /// Taken by the thread that searches for the next daemon.
    turn: Mutex<()>,
    /// True if the last attempt found no socket: the daemon was stopped.
    stopped: AtomicBool,
    pub(crate) plan: AttachPlan,
    pub(crate) timeout: Duration,
    /// Mapped areas of this node, unless local reads are disabled.
    pub(crate) areas: MappedAreas,
    pub(crate) local_reads: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inner").field("plan", &self.plan).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Inner {
    /// Delay between two attempts to find the next daemon.
    pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(2);
    /// Maximum wait of a call with side effects for a daemon whose socket does not exist.
    const STOPPED_WAIT_MAX: Duration = Duration::from_millis(50);

    pub(crate) fn new(mut plan: AttachPlan, timeout: Duration, local_reads: bool) -> Result<Self, Error> {
        let session = plan.attach(Instant::now() + plan.options.timeout)?;
        plan.shard_count = Some(session.attachment.shards());
        let current = ArcSwap::from_pointee(session);
        let (turn, stopped, areas) = (Mutex::new(()), AtomicBool::new(false), MappedAreas::default());
        Ok(Self { current, turn, stopped, plan, timeout, areas, local_reads })
    }

    /// Returns the last session, whether or not its daemon still runs.
    pub(crate) fn last_session(&self) -> Guard<Arc<Session>> {
        self.current.load()
    }

    /// Returns a session with a daemon that is not known to be gone. Waits for the next daemon until the deadline,
    /// which is computed when needed. `harmless` marks a call without side effects, which any daemon may run.
    #[inline(always)]
    pub(crate) fn session(&self, time: &mut Deadline, harmless: bool) -> Result<Guard<Arc<Session>>, Error> {
        let current = self.current.load();
        if !current.attachment.is_unusable() {
            return Ok(current);
        }
        drop(current);
        self.attach_again(time.deadline(), harmless)
    }

    /// Returns the present session without waiting, for tasks.
    #[inline]
    pub(crate) fn current_session(&self) -> Option<Guard<Arc<Session>>> {
        Some(self.current.load()).filter(|current| !current.attachment.is_unusable())
    }

    #[cold]
    fn attach_again(&self, deadline: Instant, harmless: bool) -> Result<Guard<Arc<Session>>, Error> {
        let since = Instant::now();
        loop {
            let looked = self.try_attach(deadline);
            if let Some(current) = self.current_session() {
                return Ok(current);
            }
            let error = looked.err().flatten();
            if Instant::now() + Self::RETRY_INTERVAL >= self.retry_until(error.as_ref(), since, deadline, harmless) {
                return Err(error.unwrap_or_else(|| self.no_daemon_error(ErrorKind::TimedOut)));
            }
            if error.is_none() {
                std::thread::sleep(Self::RETRY_INTERVAL);
            }
        }
    }

    /// Makes one attempt to find the next daemon, and a pause if there is none. No error: another thread is searching.
    pub(crate) fn try_attach(&self, by: Instant) -> Result<(), Option<Error>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(None),
        };
        if self.current_session().is_some() {
            return Ok(());
        }
        let found = self.plan.attach(by);
        let is_stopped = matches!(&found, Err(Error::NoDaemon { source, .. }) if source.kind() == ErrorKind::NotFound);
        self.stopped.store(is_stopped, Ordering::Relaxed);
        match found {
            Ok(session) => {
                self.areas.forget();
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
    pub(crate) fn retry_until(
        &self,
        error: Option<&Error>,
        since: Instant,
        deadline: Instant,
        harmless: bool,
    ) -> Instant {
        match error {
            Some(Error::VersionMismatch { .. } | Error::ShardsChanged { .. }) => since,
            // A killed daemon leaves its socket; a stopped daemon removes it, and a successor is not certain: the
            // caller decides about calls with side effects. A starting daemon removes the old socket for a moment.
            // Another thread may search all the time: its result counts.
            None | Some(Error::NoDaemon { .. }) if !harmless && self.stopped.load(Ordering::Relaxed) => {
                deadline.min(since + Self::STOPPED_WAIT_MAX)
            }
            _ => deadline,
        }
    }

    /// Builds the error of a search that found no daemon.
    pub(crate) fn no_daemon_error(&self, kind: ErrorKind) -> Error {
        let AttachPlan { socket, folder, .. } = &self.plan;
        Error::NoDaemon { socket: socket.clone(), folder: folder.clone(), source: kind.into() }
    }

    pub(crate) fn gone(&self) -> Error {
        Error::DaemonGone { path: self.plan.socket.clone() }
    }
}
