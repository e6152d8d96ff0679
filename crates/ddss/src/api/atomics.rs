//! Atomic operations and version waits of a [`Segment`].

use super::segment::Segment;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::value::{AtomicResult, Stamp};
use ddss_core::{AtomicOp, LockToken, Operation, Version};

#[twin]
impl Segment {
    /// Adds to the word at `offset` (a multiple of 8), wrapping around, and returns the previous value.
    pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("add to", offset, AtomicOp::Add(add), None).await
    }

    /// Replaces the word at `offset` (a multiple of 8) and returns the previous value.
    pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("swap a word of", offset, AtomicOp::Swap(new), None).await
    }

    /// Writes `new` at `offset` (a multiple of 8) if the word equals `expected`; returns the previous value.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// # let segment = client.segment("leader").allocate(8)?;
    /// let won = segment.compare_swap(0, 0, 17)?.before == 0;
    /// assert!(won);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        let change = AtomicOp::CompareSwap { expected, new };
        self.run_atomic("compare and swap a word of", offset, change, None).await
    }

    /// Raises the word at `offset` (a multiple of 8) to `value`, and returns the previous value. A word that is not
    /// less stays unchanged, and so does the version.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// let peak = client.segment("peak").allocate(8)?;
    /// assert_eq!(peak.fetch_max(0, 7)?.before, 0);
    /// let smaller = peak.fetch_max(0, 5)?;
    /// assert_eq!((smaller.before, smaller.stamp.version.0), (7, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("raise a word of", offset, AtomicOp::Max(value), None).await
    }

    /// Subtracts from the word at `offset` (a multiple of 8), and returns the previous value. If that is less than
    /// `sub`, the word and the version stay unchanged.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// let stock = client.segment("stock").allocate(8)?;
    /// stock.fetch_add(0, 3)?;
    /// let has_sold = |wanted| Ok::<_, ddss::Error>(stock.checked_sub(0, wanted)?.before >= wanted);
    /// assert!(has_sold(2)? && !has_sold(2)? && has_sold(1)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("subtract from", offset, AtomicOp::CheckedSub(sub), None).await
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
        self.run_operation(action, operation, AtomicResult::of).await
    }

    /// Waits until the segment's version is above `version`, and returns the stamp of the version it then has.
    ///
    /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    pub async fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        self.wait_by(self.time(), version).await
    }

    pub(crate) async fn wait_by(&self, time: Deadline, version: Version) -> Result<Stamp, Error> {
        if self.location().row_bytes != 0 {
            let wanted = "a plain segment: of a table only rows have versions (Table::wait_newer_than)";
            return Err(Error::wrong_shape("watch", self.name(), "a table", wanted));
        }
        self.wait_at(time, 0, version).await
    }

    /// Waits for a version of the segment, or of the row of a table at `offset`.
    pub(crate) async fn wait_at(&self, time: Deadline, offset: u64, version: Version) -> Result<Stamp, Error> {
        let operation = Operation::Await { segment: self.id(), offset, above: version };
        let plan = self.location().plan("watch", operation);
        self.client().run_wait(time, plan.returns(|completion, _| Stamp::of(completion))).await
    }
}
