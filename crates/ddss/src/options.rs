//! Options of calls.

use crate::deadline::Deadline;
use ddss_core::limits::{LEASE_DEFAULT_US, LEASE_MAX_US};
use ddss_core::{BadArgument, Failure, LockRequest};
use std::time::Duration;

/// Options of a lock request.
///
/// ```
/// use ddss::{ErrorKind, LockOptions};
/// use std::time::Duration;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let account = client.allocate("account", ddss::Spec::new(64))?;
/// let held = account.lock_with(LockOptions::new().lease(Duration::from_millis(500)))?;
/// let busy = account.lock_with(LockOptions::new().no_wait()).expect_err("it is held alone");
/// assert_eq!(busy.kind(), ErrorKind::Locked);
/// let late = account.lock_with(LockOptions::new().timeout(Duration::from_millis(20))).expect_err("it still is");
/// assert_eq!(late.kind(), ErrorKind::TimedOut);
/// # held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct LockOptions {
    shared: bool,
    no_wait: bool,
    pub(crate) lease: Duration,
    pub(crate) keep_alive: bool,
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

    /// Sets the lease: 1 µs to 600 s, else the request fails with [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument). After the lease the home
    /// grants the lock to the next request and refuses operations under the old one.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Renews the lease while the guard lives, three times per lease, by a thread of the client. A short lease then means
    /// that the lock is free soon after its holder dies or hangs, and a holder that lives keeps it.
    ///
    /// A holder that was stopped for longer than the lease has lost the lock; so has one whose home restarted or moved.
    /// [`LockGuard::lease_left`](crate::LockGuard::lease_left) is zero from then on. Each call through the guard is refused with
    /// [`ErrorKind::LockLost`](crate::ErrorKind::LockLost), whether the holder knows of the loss or not.
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
