//! Lock requests as futures, and the guard of a lock that a task holds.

use super::call::{CallPlan, as_given};
use super::client::empty_plan;
use super::reactor::Reactor;
use super::segment::AsyncSegment;
use crate::api::atomics::{AtomicResult, first_word};
use crate::api::lock::LockOptions;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::value::{Stamp, Value};
use ddss_core::{AtomicOp, Failure, LockToken, Operation, Version};
use std::ops::RangeBounds;
use std::sync::Arc;

/// A segment's lock: [`LockGuard`](crate::LockGuard) for tasks.
///
/// Dropping the guard releases the lock, as does the death of its process or node. A dropped future of
/// [`AsyncSegment::lock`] returns a lock that is still granted to it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let account = client.to_async()?.allocate("account", ddss::Spec::new(64)).await?;
/// let held = account.lock().await?;
/// let balance = held.get(0..8).await?;
/// held.put(0, &balance).await?;
/// held.unlock().await?;
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncLockGuard {
    segment: AsyncSegment,
    token: LockToken,
    stamp: Stamp,
    /// Reactor of the channel on which the lock was granted.
    reactor: Arc<Reactor>,
    open: bool,
}

impl std::fmt::Debug for AsyncLockGuard {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AsyncLockGuard")
            .field("segment", &self.segment)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl AsyncSegment {
    /// Takes the segment's lock exclusively, waiting in the lock queue until this call's deadline:
    /// [`Segment::lock`](crate::Segment::lock).
    pub async fn lock(&self) -> Result<AsyncLockGuard, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Takes the lock with these options.
    pub async fn lock_with(&self, options: LockOptions) -> Result<AsyncLockGuard, Error> {
        let lock_request = options.lock_request().map_err(Error::argument("lock", self.name()))?;
        let operation = Operation::Lock { segment: self.id(), lock_request };
        let (client, plan) = (self.client(), CallPlan { operation, ..empty_plan() });
        let deadline = options.time(Deadline::until(self.deadline())).deadline();
        let ended = client.call_by(deadline, "lock", self.name(), plan, as_given, &mut |_| {}).await;
        let (completion, reactor) = ended?;
        let (segment, token) = (self.clone(), LockToken(first_word(&completion)));
        Ok(AsyncLockGuard { segment, token, stamp: Stamp::of(&completion), reactor, open: true })
    }
}

impl AsyncLockGuard {
    /// Returns the fencing token: greater than those of all earlier holders, for systems outside of DDSS.
    pub fn token(&self) -> u64 {
        self.token.0
    }

    /// Returns the version that the segment had when the lock was granted.
    pub fn version(&self) -> Version {
        self.stamp.version
    }

    /// Reads a range.
    pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        self.segment.get(range).await
    }

    /// Writes bytes if the guard still has the lock: [`LockGuard::put`](crate::LockGuard::put).
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_with(offset, bytes, self.segment.location().put_conditions(None, Some(self.token))).await
    }

    /// Writes bytes if the guard still has the lock and the segment that version:
    /// [`LockGuard::put_if`](crate::LockGuard::put_if).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let spec = ddss::Spec { model: ddss::Model::Version, ..ddss::Spec::new(64) };
    /// let account = client.to_async()?.allocate("account", spec).await?;
    /// let held = account.lock().await?;
    /// let put = held.put_if(held.version(), 0, b"first").await?;
    /// held.put_many_if(put.version, &[(0, b"FIRST"), (8, b"and more")]).await?;
    /// # Ok::<(), ddss::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment
            .put_with(offset, bytes, self.segment.location().put_conditions(Some(version), Some(self.token)))
            .await
    }

    /// Writes several ranges as one version if the guard still has the lock.
    pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        let conditions = self.segment.location().put_conditions(None, Some(self.token));
        self.segment.put_many_with(parts, conditions).await
    }

    /// Writes several ranges if the guard still has the lock and the segment that version:
    /// [`LockGuard::put_many_if`](crate::LockGuard::put_many_if).
    pub async fn put_many_if(&self, version: Version, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        let conditions = self.segment.location().put_conditions(Some(version), Some(self.token));
        self.segment.put_many_with(parts, conditions).await
    }

    /// Adds to a word if the guard still has the lock.
    pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("add to", offset, AtomicOp::Add(add), Some(self.token)).await
    }

    /// Replaces a word if the guard still has the lock.
    pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.segment.run_atomic("swap a word of", offset, AtomicOp::Swap(new), Some(self.token)).await
    }

    /// Compares and swaps a word if the guard still has the lock.
    pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        let change = AtomicOp::CompareSwap { expected, new };
        self.segment.run_atomic("compare and swap a word of", offset, change, Some(self.token)).await
    }

    /// Releases the lock; fails if the guard had already lost it. The lock is released even if this future is dropped.
    pub async fn unlock(mut self) -> Result<(), Error> {
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
        // does not know it.
        let ended = if self.reactor.session.attachment.is_draining() {
            let plan = CallPlan { operation, ..empty_plan() };
            self.segment.client().call_on(&self.reactor, "unlock", self.segment.name(), plan).await
        } else {
            self.segment.run_operation("unlock", operation).await
        };
        // A release that found neither time nor capacity is still owed.
        self.open = matches!(ended, Err(Error::Failed { failure: Failure::TimedOut | Failure::Busy, .. }));
        ended.map(drop)
    }
}

impl Drop for AsyncLockGuard {
    fn drop(&mut self) {
        if self.open {
            // Drop cannot report an error; the lease ends the lock in any case.
            if !self.reactor.dispatcher.release_lock(self.segment.id(), self.token) {
                self.reactor.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on, poll_once};
    use crate::{Failure, LockOptions, Spec};

    #[test]
    fn async_lock_is_released_however_the_task_ends() {
        // If this broke, a cancelled task would leave a lock without a holder until its lease ends.
        let node = TestNode::start();
        let (mine, theirs) = (node.client().to_async().unwrap(), node.client().to_async().unwrap());
        let segment = block_on(mine.allocate("locked", Spec::new(64))).unwrap();
        let other = block_on(theirs.open("locked")).unwrap();
        let at_once = LockOptions::new().no_wait();
        let free = || block_on(other.lock_with(at_once)).map(|held| block_on(held.unlock()).unwrap());
        let held = block_on(segment.lock()).unwrap();
        block_on(held.put(0, b"mine")).unwrap();
        block_on(held.put_many(&[(8, b"a"), (20, b"b")])).unwrap();
        assert_eq!(block_on(held.fetch_add(32, 5)).unwrap().before, 0);
        assert_eq!(block_on(held.get(0..4)).unwrap()[..], *b"mine");
        assert_eq!(free().unwrap_err().failure(), Some(Failure::Locked));
        block_on(held.unlock()).unwrap();
        free().unwrap();
        // A guard that is only dropped.
        drop(block_on(segment.lock()).unwrap());
        while free().is_err() {}
        // Futures dropped while the request is in transit, while it waits, and with the grant unseen.
        for turn in 0..60 {
            let blocker = (turn % 3 == 1).then(|| block_on(other.lock()).unwrap());
            let mut waits = Box::pin(segment.lock());
            let _ = poll_once(&mut waits);
            if turn % 3 == 2 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            drop(waits);
            drop(blocker);
            // A lock that was granted to a dropped future is released although no further call is made.
            while free().is_err() {}
        }
        let late = block_on(segment.lock_with(LockOptions::new().lease(std::time::Duration::from_millis(1)))).unwrap();
        while free().is_err() {}
        assert_eq!(block_on(late.put(0, b"late")).unwrap_err().failure(), Some(Failure::LockLost));
    }
}
