//! Atomic operations and version waits of a [`Segment`].

use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::{Stamp, Value, first_word};
use ddss_core::{AtomicOp, Completion, LockToken, Model, Operation, Version};
use std::ops::RangeBounds;

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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

calls! {
    impl Segment, AsyncSegment {
        /// Adds to the word at `offset` (a multiple of 8), wrapping around, and returns the previous value.
        pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
            wait!(self.run_atomic("add to", offset, AtomicOp::Add(add), None))
        }

        /// Replaces the word at `offset` (a multiple of 8) and returns the previous value.
        pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
            wait!(self.run_atomic("swap a word of", offset, AtomicOp::Swap(new), None))
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
        pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
            let change = AtomicOp::CompareSwap { expected, new };
            wait!(self.run_atomic("compare and swap a word of", offset, change, None))
        }

        /// Raises the word at `offset` (a multiple of 8) to `value`, and returns the previous value. A word that is not
        /// less stays unchanged, and so does the version.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let peak = client.allocate("peak", ddss::Spec::new(8))?;
        /// assert_eq!(peak.fetch_max(0, 7)?.before, 0);
        /// let smaller = peak.fetch_max(0, 5)?;
        /// assert_eq!((smaller.before, smaller.stamp.version.0), (7, 1));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
            wait!(self.run_atomic("raise a word of", offset, AtomicOp::Max(value), None))
        }

        /// Subtracts from the word at `offset` (a multiple of 8), and returns the previous value. If that is less than
        /// `sub`, the word and the version stay unchanged.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let stock = client.allocate("stock", ddss::Spec::new(8))?;
        /// stock.fetch_add(0, 3)?;
        /// let has_sold = |wanted| Ok::<_, ddss::Error>(stock.checked_sub(0, wanted)?.before >= wanted);
        /// assert!(has_sold(2)? && !has_sold(2)? && has_sold(1)?);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
            wait!(self.run_atomic("subtract from", offset, AtomicOp::CheckedSub(sub), None))
        }

        pub(crate) async fn run_atomic(
            &self,
            action: &'static str,
            offset: u64,
            change: AtomicOp,
            token: Option<LockToken>,
        ) -> Result<AtomicResult, Error> {
            self.location().check(action, offset, u128::from(offset) + 8)?;
            let operation = Operation::Atomic { segment: self.id(), offset, change, token };
            wait!(self.run_operation(action, operation, AtomicResult::of))
        }

        /// Waits until the segment's version is above `version`, and returns the stamp of the version it then has.
        ///
        /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
        /// [`Failure::TimedOut`](crate::Failure::TimedOut).
        pub async fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
            wait!(self.wait_by(self.time(), version))
        }

        pub(crate) async fn wait_by(&self, time: Deadline, version: Version) -> Result<Stamp, Error> {
            if self.location().row_bytes != 0 {
                let wanted = "a plain segment: of a table only rows have versions (Table::wait_newer_than)";
                return Err(Error::wrong_shape("watch", self.name(), "a table", wanted));
            }
            wait!(self.wait_at(time, 0, version))
        }

        /// Waits for a version of the segment, or of the row of a table at `offset`.
        pub(crate) async fn wait_at(&self, time: Deadline, offset: u64, version: Version) -> Result<Stamp, Error> {
            let operation = Operation::Await { segment: self.id(), offset, above: version };
            let plan = self.location().plan("watch", operation);
            wait!(self.client().run_wait(time, plan.returns(|completion, _| Stamp::of(completion))))
        }

        /// Waits like [`wait_newer_than`](Self::wait_newer_than), then reads. The bytes are newer than `version` under
        /// every model. Both steps share the timeout of one call.
        pub async fn get_newer_than(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
            let (offset, length) = self.location().place(range)?;
            let (mut bytes, time) = (vec![0; length], self.time().started());
            wait!(self.wait_by(time, version))?;
            let mut stamp = wait!(self.get_by(time, offset, &mut bytes))?;
            if stamp.version <= version {
                // A read cache that is fresh enough for the model may be older than the awaited version.
                stamp = wait!(self.with_model(Model::Write).get_by(time, offset, &mut bytes))?;
            }
            Ok(Value::new(bytes, stamp))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Failure, LockOptions, Spec};
    use std::time::Duration;

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
        for refused in [both[0].put(0, b"no").map(drop), both[1].fetch_add(0, 1).map(drop)] {
            assert_eq!(refused.unwrap_err().failure(), Some(Failure::SharedLock));
        }
        let [shared, _] = both;
        segment.break_lock().unwrap();
        assert_eq!(shared.put(0, b"no").unwrap_err().failure(), Some(Failure::LockLost));
    }
}
