//! Values and stamps that calls return: bytes, version and timestamp.

use ddss_core::{AtomicOp, Completion, Timestamp, Version};
use std::ops::Deref;

/// Version that a call read or created, and its timestamp.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let segment = client.segment("steps").allocate(8)?;
/// let (first, second) = (segment.put(0, b"1")?, segment.put(0, b"2")?);
/// assert_eq!(second.version.0, first.version.0 + 1);
/// assert!(second.timestamp > first.timestamp);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    /// Increases by 1 with each put.
    pub version: Version,
    /// Time on the home's hybrid logical clock.
    pub timestamp: Timestamp,
}

impl Stamp {
    pub(crate) fn of(completion: &Completion) -> Self {
        Self { version: completion.version, timestamp: completion.timestamp }
    }
}

/// A value with the stamp of its version.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let limit = client.segment("limit").allocate(8)?.cell::<u64>(0)?;
/// limit.put(&100)?;
/// let seen = limit.get()?;
/// assert_eq!((seen.value, seen.version().0), (100, 1));
/// assert_eq!(seen.count_ones(), 3, "it can be used as the value itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// Version and timestamp.
    pub stamp: Stamp,
}

impl<T> Versioned<T> {
    pub(crate) const fn new(value: T, stamp: Stamp) -> Self {
        Self { value, stamp }
    }

    /// Returns the version of the value.
    pub const fn version(&self) -> Version {
        self.stamp.version
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Bytes that a get returned, with their stamp.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # let segment = client.segment("scores").allocate(64)?;
/// let seen: ddss::Value = segment.get(0..8)?;
/// println!("{:?} are the bytes of {}", &seen[..], seen.version());
/// assert_eq!(seen.value, [0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Value = Versioned<Vec<u8>>;

/// Value of a word before an atomic operation, and the segment's stamp after it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let tickets = client.segment("tickets").allocate(8)?;
/// tickets.word(0).fetch_add(10)?;
/// let changed = tickets.word(0).fetch_add(1)?;
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

/// An atomic operation on a word, for [`Batch::atomic`](crate::Batch::atomic). A [`Word`](crate::Word) has the
/// same operations as calls of their own.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Atomic, Batch};
/// let counters = client.segment("counters").allocate(64)?;
/// let mut batch = Batch::new();
/// let (first, second) = (batch.atomic(&counters, 0, Atomic::Add(5))?, batch.atomic(&counters, 8, Atomic::Max(7))?);
/// let mut replies = client.run(batch)?;
/// assert_eq!((replies.take(first)?.before, replies.take(second)?.before), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Atomic {
    /// [`fetch_add`](crate::Word::fetch_add).
    Add(u64),
    /// [`fetch_max`](crate::Word::fetch_max).
    Max(u64),
    /// [`checked_sub`](crate::Word::checked_sub).
    CheckedSub(u64),
    /// [`swap`](crate::Word::swap).
    Swap(u64),
    /// [`compare_and_swap`](crate::Word::compare_and_swap).
    CompareAndSwap {
        /// Value that the word has to have.
        expected: u64,
        /// Value that replaces it.
        new: u64,
    },
}

impl Atomic {
    /// Returns the attempted action, for errors.
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Atomic::Add(_) => "add to a word of",
            Atomic::Max(_) => "raise a word of",
            Atomic::CheckedSub(_) => "subtract from a word of",
            Atomic::Swap(_) => "swap a word of",
            Atomic::CompareAndSwap { .. } => "compare and swap a word of",
        }
    }

    pub(crate) const fn op(self) -> AtomicOp {
        match self {
            Atomic::Add(add) => AtomicOp::Add(add),
            Atomic::Max(value) => AtomicOp::Max(value),
            Atomic::CheckedSub(sub) => AtomicOp::CheckedSub(sub),
            Atomic::Swap(new) => AtomicOp::Swap(new),
            Atomic::CompareAndSwap { expected, new } => AtomicOp::CompareSwap { expected, new },
        }
    }
}

/// End of a put into a map.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let stock: ddss::Map<u64, u64> = client.map("stock").allocate(100)?;
/// let (first, second) = (stock.put(&4711, &1)?, stock.put(&4711, &2)?);
/// assert!(first.is_new && !second.is_new && second.version > first.version);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Written {
    /// True if the key was absent.
    pub is_new: bool,
    /// The version of the entry.
    pub version: Version,
}

/// Change of an entry, which the closure of [`Map::update`](crate::Map::update) returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Map, Update};
/// let stock: Map<u64, u64> = client.map("stock").allocate(100)?;
/// stock.put(&4711, &1)?;
/// let sell = |left: u64| if left > 1 { Update::Put(left - 1) } else { Update::Remove };
/// let left = stock.update(&4711, |item| item.map_or(Update::Keep, |item| sell(item.value)))?;
/// assert_eq!(left, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update<V> {
    /// Puts this value.
    Put(V),
    /// Leaves the entry, or its absence, as it is.
    Keep,
    /// Removes the entry.
    Remove,
}

/// Fencing token of a lock: greater than those of all earlier holders of a lock of the segment, or of the table and its rows.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # let account = client.segment("account").allocate(64)?;
/// let first = account.lock()?.token();
/// let second = account.lock()?.token();
/// assert!(second > first);
/// println!("a system that has seen {second} refuses {first}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token(pub u64);

impl std::fmt::Display for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// Returns the first word of a completion's data.
pub(crate) fn first_word(completion: &Completion) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| completion.data[i]))
}
