//! Guard of a segment's lock. The home checks each operation made under the lock; dropping the guard releases it.

use super::atomics::AtomicResult;
use crate::async_client::{AsyncLockGuard, AsyncSegment};
use crate::call::channels::Call;
use crate::call::priority::Priority;
use crate::calls::calls;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lease::held_lease::HeldLease;
use crate::lease::lease_state::Renewal;
use crate::plan::{Decoder, PlannedCall};
use crate::segment::Segment;
use crate::value::{Stamp, Value, first_word};
use ddss_core::limits::{LEASE_DEFAULT_US, LEASE_MAX_US};
use ddss_core::{AtomicOp, BadArgument, Failure, LockRequest, LockToken, Operation, PutConditions, Version};
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

/// Options of a lock request.
///
/// ```
/// use ddss::{Failure, LockOptions};
/// use std::time::Duration;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let account = client.allocate("account", ddss::Spec::new(64))?;
/// let held = account.lock_with(LockOptions::new().lease(Duration::from_millis(500)))?;
/// let busy = account.lock_with(LockOptions::new().no_wait()).expect_err("it is held alone");
/// assert_eq!(busy.failure(), Some(Failure::Locked));
/// let late = account.lock_with(LockOptions::new().timeout(Duration::from_millis(20))).expect_err("it still is");
/// assert_eq!(late.failure(), Some(Failure::TimedOut));
/// # held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct LockOptions {
    shared: bool,
    no_wait: bool,
    lease: Duration,
    keep_alive: bool,
    timeout: Option<Duration>,
}

impl Default for LockOptions {
    fn default() -> Self {
        let lease = Duration::from_micros(LEASE_DEFAULT_US.into());
        Self { shared: false, no_wait: false, lease, keep_alive: false, timeout: None }
    }
}

impl LockOptions {
    /// Creates options for an exclusive lock with a lease of at most 10 s.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a shared lock.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Fails at once if the lock is not free.
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }

    /// Sets the lease: 1 µs to 600 s, else the request fails with [`Error::BadArgument`]. After the lease the home
    /// grants the lock to the next request and refuses operations under the old one.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Renews the lease while the guard lives, three times per lease, by a thread of the client. A short lease then means
    /// that the lock is free soon after its holder dies or hangs, and a holder that lives keeps it.
    ///
    /// A holder that was stopped for longer than the lease has lost the lock; so has one whose home restarted or moved.
    /// [`LockGuard::lease_left`] is zero from then on. Each call through the guard is refused with
    /// [`Failure::LockLost`], whether the holder knows of the loss or not.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// use ddss::LockOptions;
    /// use std::time::Duration;
    ///
    /// let leader = client.allocate("leader", ddss::Spec::new(64))?;
    /// let term = leader.lock_with(LockOptions::new().lease(Duration::from_secs(3)).keep_alive())?;
    /// while !term.lease_left().is_zero() {
    ///     // The work of a leader.
    /// #   break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_alive(mut self) -> Self {
        self.keep_alive = true;
        self
    }

    /// Sets the maximum wait in the lock queue, up to 600 s. The default is the timeout of the segment's calls.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the deadline of the lock request, given the usual one.
    pub(crate) fn time(self, usual: Deadline) -> Deadline {
        self.timeout.map_or(usual, Deadline::of)
    }

    /// Builds the lock request, or refuses an invalid lease.
    pub(crate) fn lock_request(self, row_offset: Option<u64>) -> Result<LockRequest, BadArgument> {
        let Self { shared, no_wait, lease, .. } = self;
        match u32::try_from(lease.as_micros()) {
            Ok(lease_us @ 1..=LEASE_MAX_US) => Ok(LockRequest { shared, no_wait, lease_us, row_offset }),
            _ => {
                let range = format!("1µs to {:?}", Duration::from_micros(LEASE_MAX_US.into()));
                Err(BadArgument::new("lease", format!("{lease:?}"), range, Failure::Malformed))
            }
        }
    }
}

/// A segment's lock. Dropping the guard releases it, as does the death of its process or node.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let account = client.allocate("account", ddss::Spec::new(64))?;
/// let held = account.lock()?;
/// let balance = held.get(0..8)?;
/// held.put(0, &balance)?;
/// held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LockGuard {
    segment: Segment,
    token: LockToken,
    stamp: Stamp,
    pub(crate) lease: HeldLease,
    open: bool,
}

calls! {
    impl Segment, AsyncSegment {
        /// Takes the segment's lock exclusively, waiting in the lock queue until this call's deadline.
        ///
        /// While the lock is taken, gets of this client proceed. Puts and atomics that change the protected bytes must
        /// go through the [`LockGuard`]. Made through the segment they would wait for their own client, so they fail at
        /// once with [`Failure::OwnLock`].
        ///
        /// A lock belongs to its [`LockGuard`], not to the client. Threads of one client that exclude each other each
        /// take the lock and wait in the lock queue. A second `lock` by the holder therefore waits for itself, as with
        /// a mutex. The call fails with [`Failure::TimedOut`] at its deadline, or at once with [`Failure::Locked`]
        /// under [`LockOptions::no_wait`].
        pub async fn lock(&self) -> Result<LockGuard, Error> | Result<AsyncLockGuard, Error> {
            wait!(self.lock_with(LockOptions::new()))
        }

        /// Takes the lock with these options.
        pub async fn lock_with(&self, options: LockOptions)
            -> Result<LockGuard, Error> | Result<AsyncLockGuard, Error>
        {
            wait!(self.lock_at("lock", options, None))
        }

        /// Takes the lock of the segment, or of the row of a table that begins at that offset.
        pub(crate) async fn lock_at(&self, action: &'static str, options: LockOptions, row_offset: Option<u64>)
            -> Result<LockGuard, Error> | Result<AsyncLockGuard, Error>
        {
            let lock_request = options.lock_request(row_offset).map_err(Error::argument(action, self.name()))?;
            let plan = self.location().plan(action, Operation::Lock { segment: self.id(), lock_request });
            let call = plan.returns(|completion, _| (LockToken(first_word(completion)), Stamp::of(completion)));
            let asked = Instant::now();
            let mut guard = wait!(self.take_lock(options.time(self.time()), (options.lease, asked), call))?;
            if options.keep_alive {
                guard.keep_lease(asked)?;
            }
            Ok(guard)
        }
    }
}

calls! {
    impl LockGuard, AsyncLockGuard {
        /// Returns the fencing token: greater than those of all earlier holders, for systems outside of DDSS.
        pub fn token(&self) -> u64 {
            self.token.0
        }

        /// Returns the version that the segment had when the lock was granted.
        pub fn version(&self) -> Version {
            self.stamp.version
        }

        /// Returns the remaining time of the lease; zero once the lock is lost, and from then on.
        ///
        /// The time is counted from before the lock request or its last renewal, so that the home ends the lease no
        /// sooner. A lock that waited in the queue is the exception until its first renewal: its time is counted from
        /// the answer. A lock can be lost earlier, for instance with the connection to its home; calls under the lock
        /// and renewals find that out.
        pub fn lease_left(&self) -> Duration {
            self.lease.current().left()
        }

        /// Returns the conditions of a put under the lock.
        pub(crate) fn conditions(&self, version: Option<Version>) -> PutConditions {
            self.segment.location().put_conditions(version, Some(self.token))
        }
    }
}

calls! {
    impl LockGuard, AsyncLockGuard {
        /// Reads a range.
        pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
            wait!(self.segment.get(range))
        }

        /// Writes bytes if the guard still has the lock. Otherwise the put does nothing and fails with
        /// [`Failure::LockLost`]; under a shared lock with [`Failure::SharedLock`].
        pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.segment.put_by(self.segment.time(), offset, bytes, self.conditions(None)))
        }

        /// Writes bytes if the guard still has the lock and the segment still has that version: [`Segment::put_if`].
        /// Under [`Model::Version`](crate::Model::Version) each put names a version, so the lock holder must use this
        /// method.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let spec = ddss::Spec { model: ddss::Model::Version, ..ddss::Spec::new(64) };
        /// let account = client.allocate("account", spec)?;
        /// let held = account.lock()?;
        /// let put = held.put_if(held.version(), 0, b"first")?;
        /// held.put_many_if(put.version, &[(0, b"FIRST"), (8, b"and more")])?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.segment.put_by(self.segment.time(), offset, bytes, self.conditions(Some(version))))
        }

        /// Writes several ranges as one version if the guard still has the lock: [`Segment::put_many`].
        pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
            wait!(self.segment.put_many_with(parts, self.conditions(None)))
        }

        /// Writes several ranges if the guard still has the lock and the segment that version:
        /// [`Segment::put_many_if`].
        pub async fn put_many_if(&self, version: Version, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
            wait!(self.segment.put_many_with(parts, self.conditions(Some(version))))
        }

        /// Adds to a word if the guard still has the lock: [`Segment::fetch_add`].
        pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.run_atomic("add to", offset, AtomicOp::Add(add), Some(self.token)))
        }

        /// Replaces a word if the guard still has the lock: [`Segment::swap`].
        pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.run_atomic("swap a word of", offset, AtomicOp::Swap(new), Some(self.token)))
        }

        /// Compares and swaps a word if the guard still has the lock: [`Segment::compare_swap`].
        pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
            let change = AtomicOp::CompareSwap { expected, new };
            wait!(self.segment.run_atomic("compare and swap a word of", offset, change, Some(self.token)))
        }

        /// Raises a word if the guard still has the lock: [`Segment::fetch_max`].
        pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.run_atomic("raise a word of", offset, AtomicOp::Max(value), Some(self.token)))
        }

        /// Subtracts from a word if the guard still has the lock: [`Segment::checked_sub`].
        pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.run_atomic("subtract from", offset, AtomicOp::CheckedSub(sub), Some(self.token)))
        }

        /// Extends the lease to its whole length, counted from now. A lock that is lost is not taken again: the call
        /// fails with [`Failure::LockLost`].
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// # let account = client.allocate("account", ddss::Spec::new(64))?;
        /// let held = account.lock()?;
        /// held.renew()?;
        /// account.break_lock()?;
        /// assert_eq!(held.renew().expect_err("it is broken").failure(), Some(ddss::Failure::LockLost));
        /// assert!(held.lease_left().is_zero());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn renew(&self) -> Result<(), Error> {
            let lease = self.lease.current();
            let plan = self.segment.location().plan_renewal(self.token, lease.duration());
            let sent = Instant::now();
            let renewed = wait!(self.segment.client().run(self.segment.time(), plan.returns(|_, _| ())));
            lease.record(sent, Renewal::of(&renewed));
            renewed
        }

        /// Releases the lock; fails if the guard had already lost it.
        pub async fn unlock(mut self) -> Result<(), Error> {
            wait!(self.release())
        }
    }
}

impl Segment {
    fn take_lock(
        &self,
        time: Deadline,
        (lease, asked): (Duration, Instant),
        call: PlannedCall<'_, impl Decoder<(LockToken, Stamp)>>,
    ) -> Result<LockGuard, Error> {
        let (token, stamp) = self.client().run_wait(time, call)?;
        let lease = HeldLease::granted(lease, asked);
        Ok(LockGuard { segment: self.clone(), token, stamp, lease, open: true })
    }
}

impl LockGuard {
    fn keep_lease(&mut self, asked: Instant) -> Result<(), Error> {
        self.lease.keep(self.segment.client(), self.segment.location(), self.token, asked)
    }

    fn release(&mut self) -> Result<(), Error> {
        /// Minimum time of an unlock. Other clients wait for the lock, so the unlock goes out even if its holder has no
        /// time left.
        const UNLOCK_TIME_MIN: Duration = Duration::from_millis(1);
        self.open = false;
        self.lease.stop();
        let (client, mut time) =
            (self.segment.client(), Deadline::of(self.segment.time().remaining().max(UNLOCK_TIME_MIN)));
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        let mut call = self.segment.location().plan("unlock", operation).returns(|_, _| ());
        let last = client.0.last_session();
        if !last.attachment.is_draining() {
            return client.run(time, call);
        }
        // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
        // does not know it.
        let execute = |on: Call<'_>| on.execute(&call.plan, None::<fn()>, &mut call.decode);
        let ended = last.channels.call(Priority::Holder, &mut time).and_then(execute);
        client.conclude(ended, call.plan.action, call.plan.target)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.open {
            // Drop cannot report an error; the lease ends the lock in any case.
            let _ = self.release();
        }
    }
}
