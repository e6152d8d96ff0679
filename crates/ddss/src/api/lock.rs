//! A segment's lock, held: what is put under it is checked by the home, and it ends with this value.

use super::atomics::AtomicResult;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::limits::{LEASE_DEFAULT_US, LEASE_MAX_US};
use ddss_core::{AtomicOp, BadArgument, Failure, LockRequest, LockToken, Version};
use std::ops::RangeBounds;
use std::time::Duration;

/// How a lock is asked for.
///
/// ```
/// use ddss::{Failure, LockOptions};
/// use std::time::Duration;
///
/// # let node = ddssd::Ephemeral::start()?;
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
    timeout: Option<Duration>,
}

impl Default for LockOptions {
    fn default() -> Self {
        let lease = Duration::from_micros(LEASE_DEFAULT_US.into());
        Self { shared: false, no_wait: false, lease, timeout: None }
    }
}

impl LockOptions {
    /// Alone, waiting for it, for 10 s at the most.
    pub fn new() -> Self {
        Self::default()
    }

    /// Together with others who ask for the same.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Only if it is free now.
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }

    /// How long it may be held: 1 µs to 600 s, or the lock is refused as [`Error::BadArgument`]. After that the home gives it to
    /// the next in line, and refuses what is put under it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long to stand in line for it, 600 s at the most; else as long as any call of the segment may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The time of the call that asks for it, if it is usually that.
    pub(crate) fn time(self, usual: Deadline) -> Deadline {
        self.timeout.map_or(usual, Deadline::of)
    }

    /// The lock as a home is asked for it, if there can be such a lease.
    pub(crate) fn wish(self) -> Result<LockRequest, BadArgument> {
        let Self { shared, no_wait, lease, .. } = self;
        match u32::try_from(lease.as_micros()) {
            Ok(lease_us @ 1..=LEASE_MAX_US) => Ok(LockRequest { shared, no_wait, lease_us }),
            _ => {
                let range = format!("1µs to {:?}", Duration::from_micros(LEASE_MAX_US.into()));
                Err(BadArgument::new("lease", format!("{lease:?}"), range, Failure::Malformed))
            }
        }
    }
}

/// A segment's lock. It is let go when this is dropped, and when its process or node dies.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
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
    open: bool,
}

impl LockGuard {
    pub(crate) fn new(segment: Segment, token: LockToken, stamp: Stamp) -> Self {
        Self { segment, token, stamp, open: true }
    }

    /// A number that is greater than those of all holders before: a fence for things outside of DDSS.
    pub fn token(&self) -> u64 {
        self.token.0
    }

    /// The version that the segment had when the lock was granted.
    pub fn version(&self) -> Version {
        self.stamp.version
    }

    /// Reads a range.
    pub fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        self.segment.get(range)
    }

    /// Writes bytes, if the lock is still held: else [`Failure::LockLost`](crate::Failure::LockLost), and nothing
    /// happened. A shared lock does not admit puts.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_on(offset, bytes, self.segment.place().terms(None, Some(self.token)))
    }

    /// The same if the segment also still has that version: [`Segment::put_if`]. Under
    /// [`Model::Version`](crate::Model::Version) each put names one, so there this is the put of who holds the lock.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// let spec = ddss::Spec { model: ddss::Model::Version, ..ddss::Spec::new(64) };
    /// let account = client.allocate("account", spec)?;
    /// let held = account.lock()?;
    /// let put = held.put_if(held.version(), 0, b"first")?;
    /// held.put_many_if(put.version, &[(0, b"FIRST"), (8, b"and more")])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_on(offset, bytes, self.segment.place().terms(Some(version), Some(self.token)))
    }

    /// Writes several ranges as one version, if the lock is still held: [`Segment::put_many`].
    pub fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        self.segment.put_many_on(parts, self.segment.place().terms(None, Some(self.token)))
    }

    /// The same if the segment also still has that version: [`Segment::put_many_if`].
    pub fn put_many_if(&self, version: Version, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        self.segment.put_many_on(parts, self.segment.place().terms(Some(version), Some(self.token)))
    }

    /// Adds to a word, if the lock is still held: [`Segment::fetch_add`].
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.segment.change("add to", offset, AtomicOp::Add(add), Some(self.token))
    }

    /// Puts a word, if the lock is still held: [`Segment::swap`].
    pub fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.segment.change("swap a word of", offset, AtomicOp::Swap(new), Some(self.token))
    }

    /// Compares and puts a word, if the lock is still held: [`Segment::compare_swap`].
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        let change = AtomicOp::CompareSwap { expected, new };
        self.segment.change("compare and swap a word of", offset, change, Some(self.token))
    }

    /// Lets go, and says whether it was still held.
    pub fn unlock(mut self) -> Result<(), Error> {
        self.open = false;
        self.segment.unlock(self.token)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.open {
            // There is nobody to tell; the lease ends it in any case.
            let _ = self.segment.unlock(self.token);
        }
    }
}
