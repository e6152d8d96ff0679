//! Tables: many rows under one name, each with a version of its own.
//!
//! A table is a segment whose [`Spec`] has a [row length](Spec::row_len). Each call stays inside one row, and is atomic with
//! all other calls of that row. A snapshot over several rows does not exist.

use super::super::named::{Handle, Named, Seal};
use super::super::segment::Segment;
use super::{Client, twin};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::spec::Spec;
use crate::value::{AtomicResult, Stamp, Value};
use ddss_core::{BadArgument, Failure, Version};

/// A table of rows.
///
/// ```
/// use ddss::{ErrorKind, Spec};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let sessions = client.table("sessions").allocate(Spec::new(1000).row_len(64))?;
/// let seen = sessions.put(7, 0, b"alice")?;
/// sessions.put(8, 0, b"bob")?;
/// // The put of row 8 does not disturb a conditional put of row 7.
/// sessions.put_if(7, seen.version, 0, b"carol")?;
/// assert_eq!(&sessions.get(7)?[..5], b"carol");
/// let late = sessions.put_if(7, seen.version, 0, b"dave").expect_err("the row has changed");
/// assert_eq!(late.kind(), ErrorKind::VersionMismatch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Clone, Debug)]
pub struct Table {
    segment: Segment,
    rows: u64,
    row_bytes: u64,
}

impl Handle for Table {
    fn check(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<(), Error> {
        if spec.wire().layout().is_some() {
            return Ok(());
        }
        let refused = BadArgument::new("spec", "of a plain segment", "one with a row length", Failure::BadSize);
        Err(Error::bad_argument(action, name, refused))
    }

    fn of(segment: Segment, _: Seal) -> Result<Self, Error> {
        Self::new(segment)
    }
}

#[twin]
impl Client {
    /// Names a table, a segment of rows; sends nothing.
    pub fn table<'c>(&'c self, name: &'c str) -> Named<'c, Table> {
        Named::new(self, name)
    }
}

#[twin]
impl Table {
    /// Makes the table of a segment that is one. A plain segment is refused with [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
    pub fn new(segment: Segment) -> Result<Self, Error> {
        let location = segment.location();
        let row_bytes = u64::from(location.row_bytes);
        let rows = location
            .bytes
            .checked_div(row_bytes)
            .ok_or_else(|| Error::wrong_shape("view as a table", &location.name, "a plain segment", "a table"))?;
        Ok(Self { segment, rows, row_bytes })
    }

    /// Returns the segment behind the table: for its lock, permissions and release.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Returns the offset of a range of a row in the table.
    pub(crate) fn at(&self, action: &'static str, row: u64, offset: u64, bytes: usize) -> Result<u64, Error> {
        if row >= self.rows {
            let refused = BadArgument::new("row", row, format_args!("0 to {}", self.rows - 1), Failure::OutOfRange);
            return Err(Error::bad_argument(action, self.segment.name(), refused));
        }
        let end = u128::from(offset) + bytes as u128;
        if end > u128::from(self.row_bytes) {
            let target = format!("row {row} of {}", self.segment.name());
            return Err(Reason::OutOfRange { action, target, offset, end, bytes: self.row_bytes }.into());
        }
        Ok(row * self.row_bytes + offset)
    }

    /// Reads a whole row.
    pub async fn get(&self, row: u64) -> Result<Value, Error> {
        let place = self.at("get", row, 0, 0)?;
        let mut bytes = vec![0; usize::try_from(self.row_bytes).unwrap_or(usize::MAX)];
        let stamp = self.segment.get_into(place, &mut bytes).await?;
        Ok(Value::new(bytes, stamp))
    }

    /// Reads `into.len()` bytes of a row, from `offset` in the row on. All are of the version that is returned.
    #[inline]
    pub async fn get_into(&self, row: u64, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        let place = self.at("get", row, offset, into.len())?;
        self.segment.get_into(place, into).await
    }

    /// Writes bytes of a row, from `offset` in the row on.
    pub async fn put(&self, row: u64, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", row, offset, bytes.len())?, bytes).await
    }

    /// Writes bytes of a row if the row still has that version. Otherwise the put does nothing and fails with
    /// [`ErrorKind::VersionMismatch`](crate::ErrorKind::VersionMismatch). Puts of other rows do not matter.
    pub async fn put_if(&self, row: u64, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.at("put", row, offset, bytes.len())?, bytes).await
    }

    /// Adds to the word at `offset` in a row (a multiple of 8), wrapping around, and returns the previous value.
    pub async fn fetch_add(&self, row: u64, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.segment.fetch_add(self.at("add to", row, offset, 8)?, add).await
    }

    /// Replaces the word at `offset` in a row (a multiple of 8) and returns the previous value.
    pub async fn swap(&self, row: u64, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.segment.swap(self.at("swap a word of", row, offset, 8)?, new).await
    }

    /// Writes `new` at `offset` in a row (a multiple of 8) if the word equals `expected`; returns the previous
    /// value. The version of the result is that of the row.
    pub async fn compare_swap(&self, row: u64, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        let place = self.at("compare and swap a word of", row, offset, 8)?;
        self.segment.compare_swap(place, expected, new).await
    }

    /// Raises the word at `offset` in a row (a multiple of 8) to `value`, and returns the previous value. A word that
    /// is not less stays unchanged, and so does the version of the row.
    pub async fn fetch_max(&self, row: u64, offset: u64, value: u64) -> Result<AtomicResult, Error> {
        self.segment.fetch_max(self.at("raise a word of", row, offset, 8)?, value).await
    }

    /// Subtracts from the word at `offset` in a row (a multiple of 8), and returns the previous value. If that is less
    /// than `sub`, the word and the version of the row stay unchanged.
    pub async fn checked_sub(&self, row: u64, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
        self.segment.checked_sub(self.at("subtract from a word of", row, offset, 8)?, sub).await
    }

    /// Waits until the version of a row is above `version`, and returns the stamp of the version that it then has. Puts
    /// of other rows do not end the wait, and do not cost more for it.
    ///
    /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// use ddss::{Spec, Version};
    /// let orders = client.table("orders").allocate(Spec::new(100).row_len(64))?;
    /// let put = orders.put(7, 0, b"new")?;
    /// assert_eq!(orders.wait_newer_than(7, Version(0))?, put);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_newer_than(&self, row: u64, version: Version) -> Result<Stamp, Error> {
        let place = self.at("watch", row, 0, 0)?;
        self.segment.wait_at(self.segment.time(), place, version).await
    }

    /// Frees the table in the whole cluster: [`Segment::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.segment.release().await
    }
}
