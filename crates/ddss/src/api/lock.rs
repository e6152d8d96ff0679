//! Guard of a segment's lock. The home checks each operation made under the lock; dropping the guard releases it.

use super::segment::Segment;
use super::{LockGuard, twin};
use crate::error::Error;
use crate::lease::lease_state::Renewal;
use crate::options::{LockOptions, PutOptions};
use crate::value::{AtomicResult, Stamp, Value, first_word};
use ddss_core::{AtomicOp, LockToken, Operation, PutConditions, Version};
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

#[twin]
impl Segment {
    /// Takes the segment's lock exclusively, waiting in the lock queue until this call's deadline.
    ///
    /// While the lock is taken, gets of this client proceed. Puts and atomics that change the protected bytes must
    /// go through the [`LockGuard`]. Made through the segment they would wait for their own client, so they fail at
    /// once with [`ErrorKind::OwnLock`](crate::ErrorKind::OwnLock).
    ///
    /// A lock belongs to its [`LockGuard`], not to the client. Threads of one client that exclude each other each
    /// take the lock and wait in the lock queue. A second `lock` by the holder therefore waits for itself, as with
    /// a mutex. The call fails with [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) at its deadline, or at once with [`ErrorKind::Locked`](crate::ErrorKind::Locked)
    /// under a [`LockOptions::timeout`] of zero.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Takes the lock with these options.
    pub async fn lock_with(&self, options: LockOptions) -> Result<LockGuard, Error> {
        self.lock_at("lock", options, None).await
    }

    /// Takes the lock of the segment, or of the row of a table that begins at that offset.
    pub(crate) async fn lock_at(
        &self,
        action: &'static str,
        options: LockOptions,
        row_offset: Option<u64>,
    ) -> Result<LockGuard, Error> {
        let lock_request = options.lock_request(row_offset).map_err(Error::argument(action, self.name()))?;
        let plan = self.location().plan(action, Operation::Lock { segment: self.id(), lock_request });
        let call = plan.returns(|completion, _| (LockToken(first_word(completion)), Stamp::of(completion)));
        let asked = Instant::now();
        let mut guard = self.take_lock(options.time(self.time()), (options.lease, asked), call).await?;
        if options.keep_alive {
            guard.keep_lease(asked)?;
        }
        Ok(guard)
    }
}

#[twin]
impl LockGuard {
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

    /// Reads a range.
    pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        self.segment.get(range).await
    }

    /// Writes bytes if the guard still has the lock. Otherwise the put does nothing and fails with
    /// [`ErrorKind::LockLost`](crate::ErrorKind::LockLost); under a shared lock with [`ErrorKind::SharedLock`](crate::ErrorKind::SharedLock).
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_by(self.segment.time(), offset, bytes, self.conditions(None)).await
    }

    /// Writes bytes if the guard still has the lock and the segment still has that version: [`Segment::put_if`].
    /// Under [`Model::Version`](crate::Model::Version) each put names a version, so the lock holder must use this
    /// method.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// let spec = ddss::Spec::new(64).model(ddss::Model::Version);
    /// let account = client.segment("account").allocate(spec)?;
    /// let held = account.lock()?;
    /// let put = held.put_if(held.version(), 0, b"first")?;
    /// let parts: [(u64, &[u8]); 2] = [(0, b"FIRST"), (8, b"and more")];
    /// held.put_with(&parts, ddss::PutOptions::new().if_version(put.version))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_by(self.segment.time(), offset, bytes, self.conditions(Some(version))).await
    }

    /// Writes several ranges as one version if the guard still has the lock: [`Segment::put_many`].
    pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        self.segment.put_many_with(parts, self.conditions(None)).await
    }

    /// Writes bytes with these options if the guard still has the lock: [`Segment::put_with`].
    pub async fn put_with(&self, parts: &[(u64, &[u8])], options: PutOptions<'_>) -> Result<Stamp, Error> {
        self.segment.put_parts(parts, self.conditions(options.if_version), options.progress).await
    }

    /// Adds to a word if the guard still has the lock: [`Segment::fetch_add`].
    pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("add to", offset, AtomicOp::Add(add), Some(self.token)).await
    }

    /// Replaces a word if the guard still has the lock: [`Segment::swap`].
    pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("swap a word of", offset, AtomicOp::Swap(new), Some(self.token)).await
    }

    /// Compares and swaps a word if the guard still has the lock: [`Segment::compare_swap`].
    pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        let change = AtomicOp::CompareSwap { expected, new };
        self.segment.run_atomic("compare and swap a word of", offset, change, Some(self.token)).await
    }

    /// Raises a word if the guard still has the lock: [`Segment::fetch_max`].
    pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("raise a word of", offset, AtomicOp::Max(value), Some(self.token)).await
    }

    /// Subtracts from a word if the guard still has the lock: [`Segment::checked_sub`].
    pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("subtract from", offset, AtomicOp::CheckedSub(sub), Some(self.token)).await
    }

    /// Extends the lease to its whole length, counted from now. A lock that is lost is not taken again: the call
    /// fails with [`ErrorKind::LockLost`](crate::ErrorKind::LockLost).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// # let account = client.segment("account").allocate(64)?;
    /// let held = account.lock()?;
    /// held.renew()?;
    /// account.break_lock()?;
    /// assert_eq!(held.renew().expect_err("it is broken").kind(), ddss::ErrorKind::LockLost);
    /// assert!(held.lease_left().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        let lease = self.lease.current();
        let plan = self.segment.location().plan_renewal(self.token, lease.duration());
        let sent = Instant::now();
        let renewed = self.segment.client().run(self.segment.time(), plan.returns(|_, _| ())).await;
        lease.record(sent, Renewal::of(&renewed));
        renewed
    }

    /// Releases the lock; fails if the guard had already lost it.
    pub async fn unlock(mut self) -> Result<(), Error> {
        self.release().await
    }
}
