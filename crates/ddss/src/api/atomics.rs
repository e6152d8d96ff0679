//! Atomics, conditions and versions of a [`Segment`].

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

/// What was in the word before, and the stamp of the segment after.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let tickets = client.allocate("tickets", ddss::Spec::new(8))?;
/// tickets.fetch_add(0, 10)?;
/// let changed = tickets.fetch_add(0, 1)?;
/// assert_eq!((changed.before, changed.stamp.version.0), (10, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResult {
    /// What was there.
    pub before: u64,
    /// Version and timestamp after the change (or as they are, if a comparison failed).
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
    /// Adds to the word at `offset` (a multiple of 8), wrapping around; tells what was there.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.change("add to", offset, AtomicOp::Add(add), None)
    }

    /// Puts a word at `offset` (a multiple of 8) and tells what was there.
    pub fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.change("swap a word of", offset, AtomicOp::Swap(new), None)
    }

    /// Puts `new` at `offset` (a multiple of 8) if `expected` is there; tells what was there.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let segment = client.allocate("leader", ddss::Spec::new(8))?;
    /// let won = segment.compare_swap(0, 0, 17)?.before == 0;
    /// assert!(won);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        self.change("compare and swap a word of", offset, AtomicOp::CompareSwap { expected, new }, None)
    }

    pub(crate) fn change(
        &self,
        action: &'static str,
        offset: u64,
        change: AtomicOp,
        token: Option<LockToken>,
    ) -> Result<AtomicResult, Error> {
        self.place().check(action, offset, u128::from(offset) + 8)?;
        let operation = Operation::Atomic { segment: self.id(), offset, change, token };
        self.ask(action, operation, WaitClass::Polling).map(|completion| AtomicResult::of(&completion))
    }

    /// Writes bytes if the segment still has that version; else
    /// [`Failure::VersionMismatch`](crate::Failure::VersionMismatch), and nothing happened.
    pub fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_on(offset, bytes, self.place().terms(Some(version), None))
    }

    /// Waits until the segment's version is above `version`; tells which one it is then. Nothing is asked again and
    /// again: the home answers when it happens, or the deadline passes ([`Failure::TimedOut`](crate::Failure::TimedOut)).
    pub fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        self.wait_by(self.time(), version)
    }

    fn wait_by(&self, time: Deadline, version: Version) -> Result<Stamp, Error> {
        let operation = Operation::Await { segment: self.id(), above: version };
        self.ask_by(time, "watch", operation, WaitClass::Sleeping).map(|completion| Stamp::of(&completion))
    }

    /// Waits like [`wait_newer_than`](Self::wait_newer_than), then reads: what comes is newer than `version` under every
    /// model. Both together have the time of one call.
    pub fn get_newer_than(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let time = self.time().begun();
        self.wait_by(time, version)?;
        let value = self.get_value(time, range, None)?;
        if value.version() > version {
            return Ok(value);
        }
        // A copy that is young enough for the model may be older than what was waited for.
        self.asking(Model::Write).get_value(time, range, None)
    }

    /// Takes the segment's lock alone, waiting in line until this call's deadline.
    ///
    /// While it is held, gets of this client go on. Puts and atomics that change what the lock protects have to be made
    /// through [`LockGuard`]: made through the segment they would wait for their own client, so they end at once with
    /// [`Failure::OwnLock`](crate::Failure::OwnLock).
    ///
    /// A lock belongs to the [`LockGuard`] that it came as, and not to the client: threads of one client that want to exclude
    /// each other each take the lock, and stand in line like anybody. So a second call of this by who holds the lock
    /// already waits for itself, as a mutex does, and ends with [`Failure::TimedOut`](crate::Failure::TimedOut) at its
    /// deadline; with [`LockOptions::no_wait`] at once with [`Failure::Locked`](crate::Failure::Locked).
    pub fn lock(&self) -> Result<LockGuard, Error> {
        self.lock_with(LockOptions::new())
    }

    /// Takes the lock as the options say.
    pub fn lock_with(&self, options: LockOptions) -> Result<LockGuard, Error> {
        let wish = options.wish().map_err(Error::argument("lock", self.name()))?;
        let operation = Operation::Lock { segment: self.id(), wish };
        let completion = self.ask_by(options.time(self.time()), "lock", operation, WaitClass::LockQueue)?;
        Ok(LockGuard::new(self.clone(), LockToken(first_word(&completion)), Stamp::of(&completion)))
    }

    pub(crate) fn unlock(&self, token: LockToken) -> Result<(), Error> {
        /// Others wait for it: it goes out even if its holder has no time at all.
        const AT_LEAST: Duration = Duration::from_millis(1);
        let mut time = Deadline::of(self.time().left().max(AT_LEAST));
        let operation = Operation::Unlock { segment: self.id(), token };
        let client = self.client();
        let last = client.0.last();
        if !last.attachment.is_draining() {
            return self.ask_by(time, "unlock", operation, WaitClass::Polling).map(drop);
        }
        // A daemon that takes nothing new takes this: others wait for it, and the next daemon does not know the lock.
        let run = |call: Call<'_>| call.run(operation, None, WaitClass::Polling, |completion, _| completion.outcome);
        let ended = last.lanes.call(Priority::Holder, &mut time).and_then(run);
        let outcome = ended.map_err(|none| client.explain(none, "unlock", self.name()))?;
        Error::of(outcome, "unlock", self.name())
    }

    /// An operation that carries no bytes.
    pub(crate) fn ask(
        &self,
        action: &'static str,
        operation: Operation,
        class: WaitClass,
    ) -> Result<Completion, Error> {
        self.ask_by(self.time(), action, operation, class)
    }

    fn ask_by(
        &self,
        time: Deadline,
        action: &'static str,
        operation: Operation,
        class: WaitClass,
    ) -> Result<Completion, Error> {
        let client: &Client = self.client();
        let priority = Priority::of(&operation);
        // A lock that the next daemon gives is another one, but so is it to the caller.
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
    fn words_change_atomically_and_step_the_version() {
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
    fn a_put_for_another_version_does_nothing() {
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
    fn who_waits_for_a_version_is_told_when_it_comes() {
        // If this broke, a follower would poll, or sleep for ever.
        let node = TestNode::start();
        let client = node.client();
        let segment = client.allocate("watched", Spec::new(8)).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| segment.get_newer_than(Version(0), ..).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            segment.put(0, &7u64.to_le_bytes()).unwrap();
            assert_eq!(&waits.join().unwrap()[..], &7u64.to_le_bytes());
        });
        let impatient = node.impatient_client();
        let waited = impatient.open("watched").unwrap().wait_newer_than(Version(1)).unwrap_err();
        assert_eq!(waited.failure(), Some(Failure::TimedOut));
    }

    #[test]
    fn a_lock_excludes_ends_with_its_lease_and_fences_what_comes_late() {
        // If this broke, two holders could write at the same time, or a dead one would block everybody.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.impatient_client());
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
        // A second lock of one client stands in line like anybody's, and is had when the first one is let go.
        let again = node.impatient_client().open("locked").unwrap();
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
