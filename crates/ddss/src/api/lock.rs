//! Locks of segments, and the guard of a lock. The home checks each operation made under the lock.

use super::segment::Segment;
use super::{HeldLock, twin};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::lease::lease_state::Renewal;
use crate::options::LockOptions;
use crate::value::{Stamp, Token, first_word};
use ddss_core::{Failure, LockToken, Operation, Version};
use std::ops::Deref;
use std::time::{Duration, Instant};

/// The lock of a segment or a row, which the guard dereferences to. Dropping the guard releases the lock, as does the death
/// of its process or node.
///
/// Puts and atomics through the guard, and through clones of what it dereferences to, are made under the lock. Once it is
/// lost or released, they do nothing and fail with [`ErrorKind::LockLost`](crate::ErrorKind::LockLost); under a shared lock
/// with [`ErrorKind::SharedLock`](crate::ErrorKind::SharedLock).
///
/// Under [`Model::Version`](crate::Model::Version) each put names a version, so the holder puts with
/// [`put_if`](Segment::put_if).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let account = client.segment("account").allocate(64)?;
/// let held = account.lock()?;
/// let balance = held.get(0..8)?;
/// let put = held.put_if(held.version(), 0, &balance)?;
/// let parts: [(u64, &[u8]); 2] = [(0, b"FIRST"), (8, b"and more")];
/// held.put_with(&parts, ddss::PutOptions::new().if_version(put.version))?;
/// held.word(24).fetch_add(1)?;
/// held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
pub struct LockGuard<H> {
    handle: H,
    pub(crate) lock: HeldLock,
}

impl<H> Deref for LockGuard<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.handle
    }
}

impl<H: std::fmt::Debug> std::fmt::Debug for LockGuard<H> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.lock.token.0;
        out.debug_struct("LockGuard").field("handle", &self.handle).field("token", &token).finish_non_exhaustive()
    }
}

#[twin]
impl Segment {
    /// Takes the segment's lock exclusively, waiting in the lock queue until this call's deadline.
    ///
    /// While the lock is taken, gets of this client proceed. Puts and atomics that change the protected bytes must
    /// go through the [`LockGuard`]. Made through another handle they would wait for their own client, so they fail at
    /// once with [`ErrorKind::OwnLock`](crate::ErrorKind::OwnLock).
    ///
    /// A lock belongs to its [`LockGuard`], not to the client. Threads of one client that exclude each other each
    /// take the lock and wait in the lock queue. A second `lock` by the holder therefore waits for itself, as with
    /// a mutex, and fails with [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) at its deadline.
    pub async fn lock(&self) -> Result<LockGuard<Segment>, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Takes the segment's lock exclusively, or returns `None` if it is not free.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let account = client.segment("account").allocate(64)?;
    /// let held = account.try_lock()?.expect("nobody has it");
    /// assert!(account.try_lock()?.is_none());
    /// # held.unlock()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn try_lock(&self) -> Result<Option<LockGuard<Segment>>, Error> {
        if_free(self.lock_with(LockOptions::new().timeout(Duration::ZERO)).await)
    }

    /// Takes the lock with these options.
    pub async fn lock_with(&self, options: LockOptions) -> Result<LockGuard<Segment>, Error> {
        let lock = self.lock_at("lock", options, None).await?;
        Ok(LockGuard::new(lock.segment.clone(), lock))
    }

    /// Takes the lock of the segment, or of the row of a table that begins at that offset.
    pub(crate) async fn lock_at(
        &self,
        action: &'static str,
        options: LockOptions,
        row_offset: Option<u64>,
    ) -> Result<HeldLock, Error> {
        let lock_request = options.lock_request(row_offset).map_err(Error::argument(action, self.name()))?;
        let plan = self.location().plan(action, Operation::Lock { segment: self.id(), lock_request });
        let call = plan.returns(|completion, _| (LockToken(first_word(completion)), Stamp::of(completion)));
        let asked = Instant::now();
        let time = options.time(self.time()).started();
        let mut lock = self.take_lock(time, (options.lease, asked), call).await?;
        if lock.lease.current().is_old() {
            // Whoever uses a lock whose lease has ended learns it then, as with a lease that ends later.
            let _ = lock.renew_by(time).await;
        }
        if options.keep_alive {
            lock.keep_lease()?;
        }
        Ok(lock)
    }

    /// Returns a handle whose calls are made under this lock.
    pub(crate) fn under(&self, token: LockToken) -> Self {
        Self::at(self.client().clone(), self.location().with_token(token))
    }
}

#[twin]
impl HeldLock {
    /// Renews the lease by then.
    async fn renew_by(&self, time: Deadline) -> Result<(), Error> {
        let (segment, lease) = (&self.segment, self.lease.current());
        let plan = segment.location().plan_renewal(self.token, lease.duration());
        let sent = Instant::now();
        let renewed = segment.client().execute(time, plan.returns(|_, _| ())).await;
        lease.record(sent, Renewal::of(&renewed));
        if renewed.is_ok() && lease.is_lost() {
            // The holder may have acted on the loss already. The home has counted the lease a little longer.
            return Err(Error::failed("renew the lock of", segment.name(), Failure::LockLost));
        }
        renewed
    }
}

/// Returns `None` for a lock that is not free.
pub(super) fn if_free<G>(ended: Result<G, Error>) -> Result<Option<G>, Error> {
    match ended {
        Err(error) if error.kind() == ErrorKind::Locked => Ok(None),
        ended => ended.map(Some),
    }
}

#[twin]
impl<H> LockGuard<H> {
    /// Makes the guard of a lock; `handle` has its token.
    pub(super) fn new(handle: H, lock: HeldLock) -> Self {
        Self { handle, lock }
    }

    /// Returns the fencing token, for systems outside of DDSS.
    pub fn token(&self) -> Token {
        Token(self.lock.token.0)
    }

    /// Returns the version of the segment or row when the lock was granted.
    pub fn version(&self) -> Version {
        self.lock.stamp.version
    }

    /// Returns the remaining time of the lease; zero once the lock is lost, and from then on.
    ///
    /// The time is counted from before the lock request or its last renewal, so that the home ends the lease no
    /// sooner. A lock that waited in the queue is renewed before its guard is returned. A lock can be lost earlier, for
    /// instance with the connection to its home; calls under the lock and renewals find that out.
    pub fn lease_left(&self) -> Duration {
        self.lock.lease.current().left()
    }

    /// Extends the lease to its whole length, counted from now. A lock that is lost is not taken again: the call
    /// fails with [`ErrorKind::LockLost`](crate::ErrorKind::LockLost).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let account = client.segment("account").allocate(64)?;
    /// let held = account.lock()?;
    /// held.renew()?;
    /// account.break_lock()?;
    /// assert_eq!(held.renew().expect_err("it is broken").kind(), ddss::ErrorKind::LockLost);
    /// assert!(held.lease_left().is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.lock.renew_by(self.lock.segment.time()).await
    }

    /// Releases the lock; fails if the guard had already lost it.
    pub async fn unlock(mut self) -> Result<(), Error> {
        self.lock.release().await
    }
}
