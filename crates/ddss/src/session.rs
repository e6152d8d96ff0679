//! One life of the node's daemon, as this client sees it, and how the client gets from one to the next.
//!
//! A daemon that dies takes the rings with it; the segments stay. The next call after its end attaches to the next
//! daemon in the same folder, and waits for it until its own deadline. What was under way when it died is done again
//! if that leaves nothing behind, else its end is not known.

use crate::api::local_read::MappedAreas;
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

/// The rings to one daemon.
pub(crate) struct Session {
    pub(crate) lanes: ChannelPool,
    pub(crate) attachment: Attachment,
}

/// Where a client attaches, and how.
#[derive(Clone, Debug)]
pub(crate) struct AttachPlan {
    pub(crate) folder: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) options: AttachOptions,
    /// Which of the daemon's planes.
    pub(crate) plane: u8,
    /// How many it has, as soon as that is known: names are counted by it.
    pub(crate) planes: Option<u8>,
}

impl AttachPlan {
    /// The way to another plane of the same daemon.
    pub(crate) fn to_plane(&self, plane: u8) -> Self {
        Self { socket: self.folder.join(socket_name(plane)), plane, ..self.clone() }
    }

    /// Attaches, if the daemon lets this client in by then.
    pub(crate) fn attach(&self, by: Instant) -> Result<Session, Error> {
        let Self { folder, socket, options, planes, .. } = self;
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
        if let Some(before) = planes.filter(|&before| before != now) {
            return Err(Error::PlanesChanged { before, now });
        }
        Ok(Session { lanes: ChannelPool::new(&attachment), attachment })
    }
}

/// What all clones of a client share.
pub(crate) struct Inner {
    current: ArcSwap<Session>,
    /// Held by the one thread that looks for the next daemon.
    turn: Mutex<()>,
    /// The last look found no socket: the daemon was stopped.
    stopped: AtomicBool,
    pub(crate) plan: AttachPlan,
    pub(crate) timeout: Duration,
    /// What is mapped of this node's memory, unless the near road is not to be used.
    pub(crate) areas: MappedAreas,
    pub(crate) near: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inner").field("plan", &self.plan).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Inner {
    /// How long to wait between two looks for the next daemon.
    pub(crate) const REST: Duration = Duration::from_millis(2);
    /// How long a call that changes something waits for a daemon whose socket is not there.
    const STOPPED: Duration = Duration::from_millis(50);

    pub(crate) fn new(mut plan: AttachPlan, timeout: Duration, near: bool) -> Result<Self, Error> {
        let attached = plan.attach(Instant::now() + plan.options.timeout)?;
        plan.planes = Some(attached.attachment.shards());
        let current = ArcSwap::from_pointee(attached);
        let (turn, stopped, areas) = (Mutex::new(()), AtomicBool::new(false), MappedAreas::default());
        Ok(Self { current, turn, stopped, plan, timeout, areas, near })
    }

    /// The rings, whether or not somebody serves them.
    pub(crate) fn last(&self) -> Guard<Arc<Session>> {
        self.current.load()
    }

    /// The rings to a daemon that is not known to be gone. Waits for one that comes back until the deadline, which
    /// is made when it is needed; `harmless` is whether the call may be made at any time, and so by any daemon.
    #[inline]
    pub(crate) fn attached(&self, time: &mut Deadline, harmless: bool) -> Result<Guard<Arc<Session>>, Error> {
        let current = self.current.load();
        if !current.attachment.is_unusable() {
            return Ok(current);
        }
        drop(current);
        self.attach_again(time.deadline(), harmless)
    }

    /// The same for a task, which must not wait: what is there now.
    #[inline]
    pub(crate) fn attached_now(&self) -> Option<Guard<Arc<Session>>> {
        Some(self.current.load()).filter(|current| !current.attachment.is_unusable())
    }

    #[cold]
    fn attach_again(&self, deadline: Instant, harmless: bool) -> Result<Guard<Arc<Session>>, Error> {
        let since = Instant::now();
        loop {
            let looked = self.look_again(deadline);
            if let Some(current) = self.attached_now() {
                return Ok(current);
            }
            let error = looked.err().flatten();
            if Instant::now() + Self::REST >= self.patience(error.as_ref(), since, deadline, harmless) {
                return Err(error.unwrap_or_else(|| self.nobody(ErrorKind::TimedOut)));
            }
            if error.is_none() {
                std::thread::sleep(Self::REST);
            }
        }
    }

    /// One look for the next daemon, and a rest if there is none. No error: another thread is at it.
    pub(crate) fn look_again(&self, by: Instant) -> Result<(), Option<Error>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(None),
        };
        if self.attached_now().is_some() {
            return Ok(());
        }
        let found = self.plan.attach(by);
        let is_stopped = matches!(&found, Err(Error::NoDaemon { source, .. }) if source.kind() == ErrorKind::NotFound);
        self.stopped.store(is_stopped, Ordering::Relaxed);
        match found {
            Ok(attached) => {
                self.areas.forget();
                self.current.store(Arc::new(attached));
                Ok(())
            }
            Err(error) => {
                std::thread::sleep(Self::REST.min(by.saturating_duration_since(Instant::now())));
                Err(Some(error))
            }
        }
    }

    /// How long it makes sense to look on after that, for somebody who has done so since then.
    pub(crate) fn patience(&self, error: Option<&Error>, since: Instant, deadline: Instant, harmless: bool) -> Instant {
        match error {
            Some(Error::VersionMismatch { .. } | Error::PlanesChanged { .. }) => since,
            // A daemon that was killed leaves its socket; one that was stopped takes it away, and nobody says that
            // there will be another one: the caller decides what becomes of a change. One that starts takes the old one
            // away, for a moment.
            // Another thread may look all the time: what it found counts.
            None | Some(Error::NoDaemon { .. }) if !harmless && self.stopped.load(Ordering::Relaxed) => {
                deadline.min(since + Self::STOPPED)
            }
            _ => deadline,
        }
    }

    /// Nobody was found, in the words of the system.
    pub(crate) fn nobody(&self, kind: ErrorKind) -> Error {
        let AttachPlan { socket, folder, .. } = &self.plan;
        Error::NoDaemon { socket: socket.clone(), folder: folder.clone(), source: kind.into() }
    }

    pub(crate) fn gone(&self) -> Error {
        Error::DaemonGone { path: self.plan.socket.clone() }
    }
}
