//! The client: a process's attachment to the daemon of its node.

use crate::call::arena::ArenaExceeded;
use crate::call::channels::{Call, NoCompletion};
use crate::call::retry::Retry;
use crate::deadline::{Deadline, check_timeout};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::lease::keeper::LeaseKeeper;
use crate::plan::{CallPlan, Decoder, PlannedCall};
use crate::reactor::tasks::Tasks;
use crate::session::Inner;
use crate::shards::Shards;
use ddss_core::limits::RING_SLOTS;
use ddss_core::{BadArgument, Completion, Failure, Limit, Name, NodeId, OpenedSegment, Outcome, Shard};
use ddss_ipc::{SharedMemory, Strategy};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A process's attachment to the daemon of its node. Clones share it.
///
/// A child that `fork` has made may use the handles of its parent: its first call attaches by itself, and the calls of both do
/// not mix. Locks stay with the parent. Calls of other threads must not be in progress during the `fork`. Until a child makes its
/// first call, the daemon cannot see that its parent has ended: the parent's locks end with their leases.
///
/// ```
/// use ddss::{Client, ConnectOptions};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let directory = node.directory();
/// // `Client::connect()` finds this user's own daemon; here it is another one's directory.
/// let client = Client::connect_with(ConnectOptions::new().directory(directory))?;
/// let segment = client.segment("counters").allocate(64)?;
/// assert_eq!(client.clone().segment("counters").open()?.id(), segment.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    /// Attachment to the shard of this clone.
    pub(crate) inner: Arc<Inner>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) tasks: Arc<Tasks>,
    /// Timeout of each call.
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.describe(out, "Client")
    }
}

impl Client {
    /// Returns true if both are handles of one client.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shards, &other.shards)
    }

    /// Returns the client with blocking calls, as that of tasks does.
    pub(crate) const fn blocking(&self) -> &Self {
        self
    }

    /// Returns a client whose calls have this timeout instead of [`ConnectOptions::timeout`](crate::ConnectOptions::timeout). It
    /// shares the channels of this one, and the segments that it opens have its timeout.
    ///
    /// A call with more than 600 s fails with [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let hasty = client.with_timeout(Duration::from_millis(20));
    /// let late = hasty.segment("jobs").wait().expect_err("no process allocates it");
    /// assert_eq!(late.kind(), ddss::ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Returns the id of this client's node.
    pub fn node(&self) -> NodeId {
        self.inner.last_session().attachment.node()
    }

    /// Returns the IPC strategy of this client. For the tools of DDSS.
    #[doc(hidden)]
    pub fn strategy(&self) -> Strategy {
        self.inner.last_session().attachment.strategy()
    }

    /// Returns the socket to which this client is attached.
    pub(crate) fn socket(&self) -> &Path {
        &self.inner.plan.socket
    }

    /// Writes the identity of this client: its node and its socket.
    pub(crate) fn describe(&self, out: &mut std::fmt::Formatter<'_>, name: &str) -> std::fmt::Result {
        out.debug_struct(name).field("node", &self.node()).field("socket", &self.socket()).finish()
    }

    pub(crate) fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns the number of the daemon's progress threads (shards), over which it distributes segments by name. A
    /// client attaches to each when it first needs it. For the tools of DDSS.
    #[doc(hidden)]
    pub fn shard_count(&self) -> u8 {
        self.shards.count()
    }

    /// Returns the keeper of the client's leases in this process.
    pub(crate) fn keeper(&self) -> Result<Arc<LeaseKeeper>, Error> {
        self.shards.keeper().map_err(|error| Reason::Thread(error).into())
    }

    /// Releases locks that are granted to callers who have given up, now or later.
    pub(crate) fn release_late_locks(&self) {
        let session = self.inner.last_session();
        if session.channels.may_have_late_locks()
            && let Ok(keeper) = self.keeper()
        {
            keeper.release_late_locks(&session);
        }
    }

    /// Leaves what a parent of this process has attached: as long as a process has it, the daemon cannot see that the parent has
    /// ended.
    #[cold]
    pub(crate) fn leave_parent(&self) {
        self.tasks.leave_parent();
        self.shards.leave_parent();
    }

    /// Returns the shard to which this clone is attached.
    pub(crate) fn shard(&self) -> u8 {
        self.inner.plan.shard
    }

    /// Returns this client bound to another shard.
    pub(crate) fn at_shard(&self, shard: u8) -> Result<Self, Error> {
        self.at_shard_by(shard, &mut self.time())
    }

    /// Returns this client bound to another shard, to which it attaches by then.
    pub(crate) fn at_shard_by(&self, shard: u8, time: &mut Deadline) -> Result<Self, Error> {
        if shard == self.shard() {
            return Ok(self.clone());
        }
        Ok(Self { inner: self.shards.at(shard, time.deadline())?, ..self.clone() })
    }

    /// Returns the memory of the area that holds a segment, if this process may read it in place.
    pub(crate) fn area_of(&self, mut time: Deadline, opened: &OpenedSegment) -> Option<SharedMemory> {
        self.inner.map_area(self.inner.area_of(opened)?, time.deadline())
    }

    /// Returns the shard that serves a name.
    pub(crate) fn shard_of(&self, name: &Name) -> u8 {
        Shard::index_of(name, self.shard_count())
    }

    /// Returns this client bound to the shard that serves a name.
    pub(crate) fn at_shard_of(&self, name: &Name) -> Result<Self, Error> {
        self.at_shard(self.shard_of(name))
    }

    /// Returns true if calls that did nothing are repeated while a daemon or a home is away.
    pub(crate) fn retries(&self) -> bool {
        self.inner.settings.retries
    }

    /// Returns the default deadline of a call.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.timeout)
    }

    /// Runs a planned call.
    #[inline(always)]
    pub(crate) fn execute<T>(&self, time: Deadline, call: PlannedCall<'_, impl Decoder<T>>) -> Result<T, Error> {
        self.run_while(time, call, &mut None::<fn()>)
    }

    /// Runs a planned call, and `meanwhile` while it is in flight. Until its deadline, which begins once, the call waits for
    /// a daemon and for the home. It is repeated after an attempt that did nothing, and after the end of the daemon if it
    /// has no side effects.
    #[inline(always)]
    pub(crate) fn run_while<T>(
        &self,
        time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
        meanwhile: &mut Option<impl FnOnce()>,
    ) -> Result<T, Error> {
        #[cfg(feature = "tracing")]
        let span = crate::call::span::of_call(&call.plan).entered();
        let result = self.run_planned(time, call, meanwhile);
        #[cfg(feature = "tracing")]
        crate::call::span::record_error(&span, result.as_ref().err());
        result
    }

    #[inline(always)]
    fn run_planned<T>(
        &self,
        mut time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
        meanwhile: &mut Option<impl FnOnce()>,
    ) -> Result<T, Error> {
        let PlannedCall { plan, mut decode } = call;
        let priority = plan.priority;
        let (mut refused, mut retry) = (false, None);
        let ended = loop {
            let without_session = || {
                self.leave_parent();
                plan.waits_for_daemon()
            };
            let session = match self.inner.session(&mut time, without_session) {
                // No daemon has replaced the one that is shutting down.
                Err(_) if refused => return Err(self.explain(NoCompletion::ShuttingDown, plan.action, plan.target)),
                session => session?,
            };
            let execute = |call: Call<'_>| call.execute(&plan, meanwhile, &mut decode);
            match session.channels.call(priority, &mut time).and_then(execute) {
                // The deadline has waited once, so it stands.
                Err(NoCompletion::Gone) if plan.is_harmless && self.retries() => {}
                // The daemon did not begin the call, so the next daemon is asked, if one already listens there.
                Err(NoCompletion::ShuttingDown) => {
                    session.attachment.set_draining();
                    refused = true;
                }
                Ok(Err(completion)) if self.pause_before_retry(&mut retry, &plan, completion.outcome, &mut time) => {}
                ended => break ended,
            }
        };
        self.conclude(ended, plan.action, plan.target)
    }

    /// Waits before the next attempt of a call that ended so. Returns false if there is none: the call has ended.
    #[cold]
    #[inline(never)]
    fn pause_before_retry(
        &self,
        retry: &mut Option<Retry>,
        plan: &CallPlan<'_>,
        outcome: Outcome,
        time: &mut Deadline,
    ) -> bool {
        let retry = retry.get_or_insert_with(|| Retry::new(self.retries()));
        let pause = retry.pause(plan, outcome, time.deadline());
        pause.into_iter().for_each(|pause| self.pause(pause));
        pause.is_some()
    }

    /// Converts the end of a call to its result, with the caller's action.
    #[inline]
    pub(crate) fn conclude<T>(
        &self,
        ended: Result<Result<T, Completion>, NoCompletion>,
        action: &'static str,
        target: &str,
    ) -> Result<T, Error> {
        match ended {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(completion)) => Err(Error::of_completion(&completion, action, target)),
            Err(none) => Err(self.explain(none, action, target)),
        }
    }

    /// Builds the error of a call without a completion, with the caller's action.
    #[cold]
    pub(crate) fn explain(&self, none: NoCompletion, action: &'static str, target: &str) -> Error {
        match none {
            NoCompletion::Gone => self.inner.gone(),
            NoCompletion::TooLong(timeout) => match check_timeout(timeout) {
                Err(refused) => Error::bad_argument(action, target, refused),
                Ok(()) => unreachable!("it was found to be too long"),
            },
            NoCompletion::NeverFits(ArenaExceeded { bytes, room }) => {
                let room = format!("at most {room} with this client's arena_len");
                let refused = BadArgument::new("bytes of the call", bytes, room, Failure::BadSize);
                Error::bad_argument(action, target, refused)
            }
            NoCompletion::NotSent => self.inner.no_daemon_error(std::io::ErrorKind::ConnectionReset),
            NoCompletion::ShuttingDown => Error::failed(action, target, Failure::GoingDown),
            NoCompletion::Busy(limit) => {
                let options = &self.inner.plan.options;
                let value = match limit {
                    Limit::Channels => options.channels,
                    Limit::Arena => options.arena_bytes,
                    _ => RING_SLOTS,
                };
                let (target, failure) = (target.to_owned(), Failure::Busy(limit));
                Reason::LimitReached { action, target, failure, value: value as u64 }.into()
            }
            NoCompletion::Late { harmless: true } => Error::failed(action, target, Failure::TimedOut),
            NoCompletion::Late { harmless: false } => {
                Reason::Indeterminate { action, target: target.to_owned(), failure: Failure::TimedOut }.into()
            }
        }
    }
}
