//! Atomic operations on words of 64 bits.

use super::segment::Segment;
use super::twin;
use crate::error::Error;
use crate::value::{Atomic, AtomicResult, Versioned};
use ddss_core::Operation;

/// An aligned word of 64 bits in a segment or a row, little-endian: [`Segment::word`], [`Row::word`](crate::Row::word).
///
/// Each operation is atomic, and returns the word's previous value.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let counters = client.segment("counters").allocate(64)?;
/// let ticket = counters.word(8).fetch_add(1)?.before;
/// assert_eq!((ticket, counters.word(8).get()?.value), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Clone, Copy, Debug)]
#[must_use = "a word does nothing until it is read or changed"]
pub struct Word<'a> {
    segment: &'a Segment,
    /// Row of a table that the offset is in.
    row: Option<u64>,
    offset: u64,
}

#[twin]
impl Segment {
    /// Names the word at `offset`, a multiple of 8; sends nothing.
    pub fn word(&self, offset: u64) -> Word<'_> {
        Word { segment: self, row: None, offset }
    }
}

#[twin]
impl<'a> Word<'a> {
    /// Names a word at `offset` in a row.
    pub(super) fn in_row(segment: &'a Segment, row: u64, offset: u64) -> Self {
        Self { segment, row: Some(row), offset }
    }

    /// Reads the word.
    pub async fn get(self) -> Result<Versioned<u64>, Error> {
        let offset = self.segment.location().place_of_word("get a word of", self.row, self.offset)?;
        let mut bytes = [0; 8];
        let stamp = self.segment.get_into(offset, &mut bytes).await?;
        Ok(Versioned::new(u64::from_le_bytes(bytes), stamp))
    }

    /// Adds to the word, wrapping around.
    pub async fn fetch_add(self, add: u64) -> Result<AtomicResult, Error> {
        self.run(Atomic::Add(add)).await
    }

    /// Raises the word to `value`. A word that is not less stays unchanged, and so does the version.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let segment = client.segment("peak").allocate(8)?;
    /// let peak = segment.word(0);
    /// assert_eq!(peak.fetch_max(7)?.before, 0);
    /// let smaller = peak.fetch_max(5)?;
    /// assert_eq!((smaller.before, smaller.stamp.version.0), (7, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn fetch_max(self, value: u64) -> Result<AtomicResult, Error> {
        self.run(Atomic::Max(value)).await
    }

    /// Subtracts from the word. If it is less than `sub`, the word and the version stay unchanged.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let segment = client.segment("stock").allocate(8)?;
    /// let stock = segment.word(0);
    /// stock.fetch_add(3)?;
    /// let has_sold = |wanted| Ok::<_, ddss::Error>(stock.checked_sub(wanted)?.before >= wanted);
    /// assert!(has_sold(2)? && !has_sold(2)? && has_sold(1)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn checked_sub(self, sub: u64) -> Result<AtomicResult, Error> {
        self.run(Atomic::CheckedSub(sub)).await
    }

    /// Replaces the word.
    pub async fn swap(self, new: u64) -> Result<AtomicResult, Error> {
        self.run(Atomic::Swap(new)).await
    }

    /// Replaces the word by `new` if it equals `expected`.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let segment = client.segment("leader").allocate(8)?;
    /// let won = segment.word(0).compare_and_swap(0, 17)?.before == 0;
    /// assert!(won);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn compare_and_swap(self, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run(Atomic::CompareAndSwap { expected, new }).await
    }

    async fn run(self, change: Atomic) -> Result<AtomicResult, Error> {
        let (action, location) = (change.action(), self.segment.location());
        let offset = location.place_of_word(action, self.row, self.offset)?;
        let operation = Operation::Atomic { segment: location.id, offset, change: change.op(), token: location.token };
        self.segment.run_operation(action, operation, AtomicResult::of).await
    }
}
