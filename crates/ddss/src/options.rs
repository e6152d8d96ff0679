//! Options of calls.

use crate::deadline::Deadline;
use crate::map::entry::Expiry;
use crate::plan::transfer::Progress;
use ddss_core::limits::{LEASE_DEFAULT_US, LEASE_MAX_US};
use ddss_core::{BadArgument, Failure, LockRequest, Version};
use std::time::Duration;

/// Options of a lock request.
///
/// ```
/// use ddss::{ErrorKind, LockOptions};
/// use std::time::Duration;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let account = client.segment("account").allocate(64)?;
/// let held = account.lock_with(LockOptions::new().lease(Duration::from_millis(500)))?;
/// let busy = account.lock_with(LockOptions::new().timeout(Duration::ZERO)).expect_err("it is held alone");
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
    pub(crate) lease: Duration,
    pub(crate) keep_alive: bool,
    timeout: Option<Duration>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LockOptions {
    /// Creates options for an exclusive lock with a lease of at most 10 s.
    pub const fn new() -> Self {
        let lease = Duration::from_micros(LEASE_DEFAULT_US as u64);
        Self { shared: false, lease, keep_alive: false, timeout: None }
    }

    /// Asks for a shared lock.
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Sets the lease: 1 µs to 600 s, else the request fails with [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument). After the lease the home
    /// grants the lock to the next request and refuses operations under the old one.
    pub const fn lease(mut self, lease: Duration) -> Self {
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
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::LockOptions;
    /// use std::time::Duration;
    ///
    /// let leader = client.segment("leader").allocate(64)?;
    /// let term = leader.lock_with(LockOptions::new().lease(Duration::from_secs(3)).keep_alive())?;
    /// while !term.lease_left().is_zero() {
    ///     // The work of a leader.
    /// #   break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn keep_alive(mut self) -> Self {
        self.keep_alive = true;
        self
    }

    /// Sets the maximum wait in the lock queue, up to 600 s. The default is the timeout of the segment's calls. With zero
    /// the call does not queue: a lock that is not free fails with [`ErrorKind::Locked`](crate::ErrorKind::Locked), and the
    /// home has the timeout of the segment's calls to answer.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the deadline of the lock request, given the usual one.
    pub(crate) fn time(self, usual: Deadline) -> Deadline {
        self.timeout.filter(|timeout| !timeout.is_zero()).map_or(usual, Deadline::of)
    }

    /// Builds the lock request, or refuses an invalid lease.
    pub(crate) fn lock_request(self, row_offset: Option<u64>) -> Result<LockRequest, BadArgument> {
        let Self { shared, lease, timeout, .. } = self;
        let no_wait = timeout == Some(Duration::ZERO);
        match u32::try_from(lease.as_micros()) {
            Ok(lease_us @ 1..=LEASE_MAX_US) => Ok(LockRequest { shared, no_wait, lease_us, row_offset }),
            _ => {
                let range = format!("1µs to {:?}", Duration::from_micros(LEASE_MAX_US.into()));
                Err(BadArgument::new("lease", format!("{lease:?}"), range, Failure::Malformed))
            }
        }
    }
}

/// Options of a get.
///
/// ```
/// use ddss::GetOptions;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let steps = client.segment("steps").allocate(ddss::Spec::new(64).history(1))?;
/// let (first, second) = (steps.put(0, b"1")?, steps.put(0, b"2")?);
/// let before = steps.get_with(0..1, GetOptions::new().at_version(first.version))?;
/// let after = steps.get_with(0..1, GetOptions::new().newer_than(first.version))?;
/// assert_eq!((&before[..], &after[..], after.version()), (&b"1"[..], &b"2"[..], second.version));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct GetOptions<'p> {
    pub(crate) at_version: Option<Version>,
    pub(crate) newer_than: Option<Version>,
    pub(crate) progress: Option<&'p mut Progress<'p>>,
}

impl std::fmt::Debug for GetOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("GetOptions");
        out.field("at_version", &self.at_version).field("newer_than", &self.newer_than).finish_non_exhaustive()
    }
}

impl<'p> GetOptions<'p> {
    /// Creates options for a get of the present version.
    pub const fn new() -> Self {
        Self { at_version: None, newer_than: None, progress: None }
    }

    /// Asks for a version that was committed earlier. The segment's history must still contain it
    /// ([`Spec::history`](crate::Spec), or the `x` of [`Model::Delta`](crate::Model::Delta)); otherwise the call
    /// fails with [`ErrorKind::VersionGone`](crate::ErrorKind::VersionGone). A version that the segment has not reached
    /// fails with [`ErrorKind::VersionMismatch`](crate::ErrorKind::VersionMismatch).
    pub const fn at_version(mut self, version: Version) -> Self {
        self.at_version = Some(version);
        self
    }

    /// Returns the options of a reader's next read: those of the reader for the first one, then the version that it found.
    pub(crate) fn of_next_read(&self, found: Option<Version>) -> GetOptions<'static> {
        let first = GetOptions { at_version: self.at_version, newer_than: self.newer_than, progress: None };
        found.map_or(first, |version| GetOptions::new().at_version(version))
    }

    /// Waits like [`Segment::wait_newer_than`](crate::Segment::wait_newer_than), then reads. The bytes are newer than
    /// `version` under every model. Both steps share the timeout of one call.
    pub const fn newer_than(mut self, version: Version) -> Self {
        self.newer_than = Some(version);
        self
    }

    /// Calls `progress` after each part, with the bytes read so far and the bytes of the range. A read that begins again
    /// starts from 0.
    pub const fn progress(mut self, progress: &'p mut (dyn FnMut(u64, u64) + Send + 'p)) -> Self {
        self.progress = Some(progress);
        self
    }
}

/// Options of a put.
///
/// ```
/// use ddss::PutOptions;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let image = client.segment("image").allocate(3 << 20)?;
/// let (mut parts, bytes) = (Vec::new(), vec![7; 3 << 20]);
/// let mut progress = |done: u64, total: u64| parts.push((done >> 20, total >> 20));
/// let put = image.put_with(&[(0, &bytes)], PutOptions::new().progress(&mut progress))?;
/// assert_eq!(parts, [(1, 3), (2, 3), (3, 3)]);
/// let head_and_tail: [(u64, &[u8]); 2] = [(0, b"head"), (3_000_000, b"tail")];
/// image.put_with(&head_and_tail, PutOptions::new().if_version(put.version))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct PutOptions<'p> {
    pub(crate) if_version: Option<Version>,
    pub(crate) progress: Option<&'p mut Progress<'p>>,
}

impl std::fmt::Debug for PutOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PutOptions").field("if_version", &self.if_version).finish_non_exhaustive()
    }
}

impl<'p> PutOptions<'p> {
    /// Creates options for a put without conditions.
    pub const fn new() -> Self {
        Self { if_version: None, progress: None }
    }

    /// Writes only if the segment still has that version, like [`Segment::put_if`](crate::Segment::put_if).
    pub const fn if_version(mut self, version: Version) -> Self {
        self.if_version = Some(version);
        self
    }

    /// Calls `progress` after each part, with the bytes sent so far and the bytes of the put. The value is committed after
    /// the last part; nothing of it is visible before.
    pub const fn progress(mut self, progress: &'p mut (dyn FnMut(u64, u64) + Send + 'p)) -> Self {
        self.progress = Some(progress);
        self
    }
}

/// Options of a put into a map.
///
/// ```
/// use ddss::{EntryOptions, Map};
/// use std::time::Duration;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let sessions: Map<u64, u64> = client.map("sessions").allocate(1000)?;
/// let first = sessions.put_with(&4711, &1, EntryOptions::new().ttl(Duration::from_secs(600)))?;
/// let second = sessions.put_with(&4711, &2, EntryOptions::new().if_version(first.version))?;
/// assert_eq!(sessions.get(&4711)?.map(|entry| (entry.value, entry.ttl())), Some((2, None)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct EntryOptions {
    ttl: Option<Duration>,
    pub(crate) if_absent: bool,
    pub(crate) if_version: Option<Version>,
}

impl EntryOptions {
    /// Creates options for a put without conditions of an entry that does not expire.
    pub const fn new() -> Self {
        Self { ttl: None, if_absent: false, if_version: None }
    }

    /// Lets the entry expire after this time. Readers compare the absolute expiry (in milliseconds) with the clock of their
    /// own node.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Writes only if the key is absent, else fails with [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists). Of
    /// several clients that put one key, one succeeds.
    pub const fn if_absent(mut self) -> Self {
        self.if_absent = true;
        self
    }

    /// Writes only if the entry still has that version, like [`Map::put_if`](crate::Map::put_if).
    pub const fn if_version(mut self, version: Version) -> Self {
        self.if_version = Some(version);
        self
    }

    /// Refuses conditions that exclude each other.
    pub(crate) fn check(self) -> Result<(), BadArgument> {
        if !self.if_absent || self.if_version.is_none() {
            return Ok(());
        }
        Err(BadArgument::new("options", "if_absent and if_version", "one of them", Failure::Malformed))
    }

    pub(crate) fn expiry(self) -> Expiry {
        self.ttl.map_or(Expiry::Set(0), Expiry::after)
    }
}
