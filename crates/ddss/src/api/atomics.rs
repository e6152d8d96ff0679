//! Atomic operations, conditional puts, version waits and locks of a [`Segment`].

use super::lock::{LockGuard, LockOptions};
use crate::call::channels::Call;
use crate::call::priority::Priority;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::{AtomicOp, Completion, LockToken, Model, Operation, Version};
use ddss_ipc::WaitClass;
use std::ops::RangeBounds;
use std::time::Duration;

/// Value of a word before an atomic operation, and the segment's stamp after it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let tickets = client.allocate("tickets", ddss::Spec::new(8))?;
/// tickets.fetch_add(0, 10)?;
/// let changed = tickets.fetch_add(0, 1)?;
/// assert_eq!((changed.before, changed.stamp.version.0), (10, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResult {
    /// Value of the word before the operation.
    pub before: u64,
    /// Version and timestamp after the operation; unchanged if a comparison failed.
    pub stamp: Stamp,
}

impl AtomicResult {
    pub(crate) fn of(completion: &Completion) -> Self {
        Self { before: first_word(completion), stamp: Stamp::of(completion) }
    }
}

pub(crate) fn first_word(completion: &Completion) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| completion.data[i]))
}

impl Segment {
    /// Adds to the word at `offset` (a multiple of 8), wrapping around, and returns the previous value.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("add to", offset, AtomicOp::Add(add), None)
    }

    /// Replaces the word at `offset` (a multiple of 8) and returns the previous value.
    pub fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("swap a word of", offset, AtomicOp::Swap(new), None)
    }

    /// Writes `new` at `offset` (a multiple of 8) if the word equals `expected`; returns the previous value.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let segment = client.allocate("leader", ddss::Spec::new(8))?;
    /// let won = segment.compare_swap(0, 0, 17)?.before == 0;
    /// assert!(won);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("compare and swap a word of", offset, AtomicOp::CompareSwap { expected, new }, None)
    }

    pub(crate) fn run_atomic(
        &self,
        action: &'static str,
        offset: u64,
        change: AtomicOp,
        token: Option<LockToken>,
    ) -> Result<AtomicResult, Error> {
        self.location().check(action, offset, u128::from(offset) + 8)?;
        let operation = Operation::Atomic { segment: self.id(), offset, change, token };
        self.run_operation(action, operation, WaitClass::Polling).map(|completion| AtomicResult::of(&completion))
    }

    /// Writes bytes if the segment still has that version. Otherwise the put does nothing and fails with
    /// [`Failure::VersionMismatch`](crate::Failure::VersionMismatch).
    pub fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_with(offset, bytes, self.location().put_conditions(Some(version), None))
    }

    /// Waits until the segment's version is above `version`, and returns the stamp of the version it then has.
    ///
    /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
    /// [`Failure::TimedOut`](crate::Failure::TimedOut).
    pub fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        self.wait_by(self.time(), version)
    }

    fn wait_by(&self, time: Deadline, version: Version) -> Result<Stamp, Error> {
        let operation = Operation::Await { segment: self.id(), above: version };
        self.run_operation_by(time, "watch", operation, WaitClass::Sleeping).map(|completion| Stamp::of(&completion))
    }

    /// Waits like [`wait_newer_than`](Self::wait_newer_than), then reads. The bytes are newer than `version` under
    /// every model. Both steps share the timeout of one call.
    pub fn get_newer_than(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let time = self.time().started();
        self.wait_by(time, version)?;
        let value = self.get_value(time, range, None)?;
        if value.version() > version {
            return Ok(value);
        }
        // A read cache that is fresh enough for the model may be older than the awaited version.
        self.with_model(Model::Write).get_value(time, range, None)
    }

    /// Takes the segment's lock exclusively, waiting in the lock queue until this call's deadline.
    ///
    /// While the lock is taken, gets of this client proceed. Puts and atomics that change the protected bytes must go
    /// through the [`LockGuard`]. Made through the segment they would wait for their own client, so they fail at once
    /// with [`Failure::OwnLock`](crate::Failure::OwnLock).
    ///
    /// A lock belongs to its [`LockGuard`], not to the client. Threads of one client that exclude each other each take
    /// the lock and wait in the lock queue. A second `lock` by the holder therefore waits for itself, as with a mutex.
    /// The call fails with [`Failure::TimedOut`](crate::Failure::TimedOut) at its deadline, or at once with
    /// [`Failure::Locked`](crate::Failure::Locked) under [`LockOptions::no_wait`].
    pub fn lock(&self) -> Result<LockGuard, Error> {
        self.lock_with(LockOptions::new())
    }

    /// Takes the lock with these options.
    pub fn lock_with(&self, options: LockOptions) -> Result<LockGuard, Error> {
        let lock_request = options.lock_request().map_err(Error::argument("lock", self.name()))?;
        let operation = Operation::Lock { segment: self.id(), lock_request };
        let completion = self.run_operation_by(options.time(self.time()), "lock", operation, WaitClass::LockQueue)?;
        Ok(LockGuard::new(self.clone(), LockToken(first_word(&completion)), Stamp::of(&completion)))
    }

    pub(crate) fn unlock(&self, token: LockToken) -> Result<(), Error> {
        /// Minimum time of an unlock. Other clients wait for the lock, so the unlock goes out even if its holder has no
        /// time left.
        const UNLOCK_TIME_MIN: Duration = Duration::from_millis(1);
        let mut time = Deadline::of(self.time().remaining().max(UNLOCK_TIME_MIN));
        let operation = Operation::Unlock { segment: self.id(), token };
        let client = self.client();
        let last = client.0.last_session();
        if !last.attachment.is_draining() {
            return self.run_operation_by(time, "unlock", operation, WaitClass::Polling).map(drop);
        }
        // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
        // does not know it.
        let run = |call: Call<'_>| call.run(operation, None, WaitClass::Polling, |completion, _| completion.outcome);
        let ended = last.channels.call(Priority::Holder, &mut time).and_then(run);
        let outcome = ended.map_err(|none| client.explain(none, "unlock", self.name()))?;
        Error::of(outcome, "unlock", self.name())
    }

    /// Runs an operation that carries no bytes.
    pub(crate) fn run_operation(
        &self,
        action: &'static str,
        operation: Operation,
        class: WaitClass,
    ) -> Result<Completion, Error> {
        self.run_operation_by(self.time(), action, operation, class)
    }

    fn run_operation_by(
        &self,
        time: Deadline,
        action: &'static str,
        operation: Operation,
        class: WaitClass,
    ) -> Result<Completion, Error> {
        let client: &Client = self.client();
        let priority = Priority::of(&operation);
        // A lock that the next daemon grants is a different lock, but the caller has not seen the first one.
        let completion = client.with_call(time, priority, action, self.name(), operation.is_harmless(), |call| {
            call.run(operation, None, class, |completion, _| *completion)
        })?;
        Error::of(completion.outcome, action, self.name())?;
        Ok(completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Failure, Spec};

    #[test]
    fn atomics_are_atomic_and_increment_version() {
        // If this broke, two services could both believe that they are the leader.
        let node = TestNode::start();
        let client = node.client();
        let words = client.allocate("words", Spec::new(32)).unwrap();
        assert_eq!(words.fetch_add(8, 5).unwrap().before, 0);
        assert_eq!(words.swap(8, 9).unwrap().before, 5);
        let lost = words.compare_swap(8, 1, 2).unwrap();
        assert_eq!((lost.before, lost.stamp.version.0), (9, 2));
        let won = words.compare_swap(8, 9, u64::MAX).unwrap();
        assert_eq!((won.before, won.stamp.version.0), (9, 3));
        assert_eq!(words.fetch_add(8, 2).unwrap().before, u64::MAX);
        assert_eq!(&words.get(8..16).unwrap()[..], &1u64.to_le_bytes());
        assert_eq!(words.fetch_add(4, 1).unwrap_err().failure(), Some(Failure::Unaligned));
        assert_eq!(words.fetch_add(32, 1).unwrap_err().failure(), Some(Failure::OutOfRange));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        words.fetch_add(0, 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(&words.get(0..8).unwrap()[..], &1000u64.to_le_bytes());
    }

    #[test]
    fn put_if_does_nothing_when_version_differs() {
        // If this broke, a checkpoint could overwrite a newer one.
        let node = TestNode::start();
        let segment = node.client().allocate("versions", Spec::new(64)).unwrap();
        let first = segment.put_if(Version(0), 0, b"one").unwrap();
        let stale = segment.put_if(Version(0), 0, b"two").unwrap_err();
        assert_eq!((stale.failure(), stale.is_indeterminate()), (Some(Failure::VersionMismatch), false));
        assert_eq!(segment.put_if(first.version, 0, b"three").unwrap().version, Version(2));
        assert_eq!(&segment.get(0..5).unwrap()[..], b"three");
        let strict = Spec { model: Model::Version, ..Spec::new(8) };
        let versioned = node.client().allocate("model-version", strict).unwrap();
        assert_eq!(versioned.put(0, &[1]).unwrap_err().failure(), Some(Failure::VersionMismatch));
        assert_eq!(versioned.put_if(Version(0), 0, &[1]).unwrap().version, Version(1));
    }

    #[test]
    fn wait_newer_than_returns_when_version_comes() {
        // If this broke, a follower would poll, or sleep forever.
        let node = TestNode::start();
        let client = node.client();
        let segment = client.allocate("watched", Spec::new(8)).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| segment.get_newer_than(Version(0), ..).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            segment.put(0, &7u64.to_le_bytes()).unwrap();
            assert_eq!(&waits.join().unwrap()[..], &7u64.to_le_bytes());
        });
        let impatient = node.short_timeout_client();
        let waited = impatient.open("watched").unwrap().wait_newer_than(Version(1)).unwrap_err();
        assert_eq!(waited.failure(), Some(Failure::TimedOut));
    }

    #[test]
    fn lock_excludes_expires_with_lease_and_fences_late_puts() {
        // If this broke, two holders could write at the same time, or a dead holder would block every client.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.short_timeout_client());
        let segment = mine.allocate("locked", Spec::new(64)).unwrap();
        let other = theirs.open("locked").unwrap();
        let held = segment.lock().unwrap();
        held.put(0, b"mine").unwrap();
        assert_eq!(&held.get(0..4).unwrap()[..], b"mine");
        let no_wait = other.lock_with(LockOptions::new().no_wait()).unwrap_err();
        assert_eq!(no_wait.failure(), Some(Failure::Locked));
        assert_eq!(other.lock().unwrap_err().failure(), Some(Failure::TimedOut));
        assert_eq!(other.put(0, b"they").unwrap_err().failure(), Some(Failure::TimedOut));
        assert_eq!(other.get(0..4).unwrap_err().failure(), Some(Failure::TimedOut), "strict gets exclude writers");
        held.unlock().unwrap();
        assert_eq!(&other.get(0..4).unwrap()[..], b"mine");
        let short = segment.lock_with(LockOptions::new().lease(Duration::from_millis(5))).unwrap();
        let next = loop {
            if let Ok(next) = other.lock() {
                break next;
            }
        };
        assert!(next.token() > short.token());
        assert_eq!(short.put(0, b"late").unwrap_err().failure(), Some(Failure::LockLost));
        next.put(0, b"next").unwrap();
        drop(theirs);
        drop((next, other));
        // A second lock of one client waits in the lock queue like any other and is granted when the first one is
        // released.
        let again = node.short_timeout_client().open("locked").unwrap();
        let first = again.lock().unwrap();
        let at_once = again.lock_with(LockOptions::new().no_wait()).unwrap_err();
        assert_eq!(at_once.failure(), Some(Failure::Locked));
        let second = again.lock().unwrap_err();
        assert_eq!((second.failure(), second.is_indeterminate()), (Some(Failure::TimedOut), false));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                loop {
                    if let Ok(held) = again.lock() {
                        break held.token();
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            let token = first.token();
            first.unlock().unwrap();
            assert!(waits.join().unwrap() > token);
        });
        let both = [0, 1].map(|_| segment.lock_with(LockOptions::new().shared()).unwrap());
        assert_ne!(both[0].token(), both[1].token());
        assert_eq!(both[0].put(0, b"no").unwrap_err().failure(), Some(Failure::LockLost));
    }
}
