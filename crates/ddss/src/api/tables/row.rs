//! One row of a table, and its lock.

use super::super::lock::{LockGuard, if_free};
use super::super::segment::Segment;
use super::super::word::Word;
use super::super::{Watch, watch_versions};
use super::table::Table;
use super::twin;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::options::{LockOptions, PutOptions};
use crate::value::{Stamp, Versioned};
use ddss_core::Version;
use std::borrow::Cow;
use std::time::Duration;

/// A row of a table: [`Table::row`]. It has a version, a lock and waits of its own.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{PutOptions, Spec, Table};
///
/// let accounts: Table = client.table("accounts").allocate(Spec::new(1000).row_len(32))?;
/// let account = accounts.row(7);
/// let put = account.put(b"alice")?;
/// account.put_with(&[(24, b"seen")], PutOptions::new().if_version(put.version))?;
/// account.word(16).fetch_add(1)?;
/// assert_eq!(account.get()?.version().0, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
#[must_use = "a row does nothing until one of its calls is made"]
pub struct Row<'t, T: ?Sized = [u8]> {
    table: Cow<'t, Table<T>>,
    row: u64,
}

impl<T: ?Sized> Clone for Row<'_, T> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), row: self.row }
    }
}

#[twin]
impl<T: ?Sized> Table<T> {
    /// Names a row; sends nothing. Calls of a row that the table does not have fail with
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange).
    #[inline]
    pub fn row(&self, row: u64) -> Row<'_, T> {
        Row { table: Cow::Borrowed(self), row }
    }
}

#[twin]
impl<T: Encoding + ?Sized> Row<'_, T> {
    /// Reads the value of the row.
    #[inline(always)]
    pub async fn get(&self) -> Result<Versioned<T::Output>, Error> {
        let row = self.row;
        let read = |location: &SegmentLocation, into: &mut [u8]| location.read_row_locally(row, 0, into);
        match self.table.segment().value_in_place::<T>(read).await {
            Some(value) => Ok(value),
            None => self.get_otherwise().await,
        }
    }

    /// Reads a value that cannot be read in place at once.
    #[inline(never)]
    async fn get_otherwise(&self) -> Result<Versioned<T::Output>, Error> {
        let (place, segment) = (self.at("get", 0, 0)?, self.table.segment());
        let time = T::FIRST_READ.map(|_| segment.time().started());
        segment.get_value::<T>(time, place, self.room()).await
    }

    /// Writes the value of the row. Fewer bytes than the row has write its beginning.
    pub async fn put(&self, value: &T::Input) -> Result<Stamp, Error> {
        let (place, segment) = (self.at("put", 0, 0)?, self.table.segment());
        segment.put(place, &segment.encoded::<T>(value, self.room())?).await
    }

    /// Writes the value of the row if the row still has that version. Otherwise the put does nothing and fails with
    /// [`ErrorKind::VersionMismatch`](crate::ErrorKind::VersionMismatch). Puts of other rows do not matter.
    pub async fn put_if(&self, version: Version, value: &T::Input) -> Result<Stamp, Error> {
        let (place, segment) = (self.at("put", 0, 0)?, self.table.segment());
        segment.put_if(version, place, &segment.encoded::<T>(value, self.room())?).await
    }

    /// Reads, changes and writes the value of the row, and retries until no other writer of the row interfered. Returns the
    /// written value. It is otherwise like [`Cell::update`](crate::Cell::update).
    pub async fn update(&self, change: impl FnMut(&mut T::Output)) -> Result<Versioned<T::Output>, Error> {
        let place = self.at("update", 0, 0)?;
        self.table.segment().update_value::<T>(place, self.room(), change).await
    }
}

#[twin]
impl Row<'_> {
    /// Reads `into.len()` bytes from `offset` in the row on. All are of the version that is returned.
    #[inline(always)]
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        let segment = self.table.segment();
        if let Some(stamp) = segment.location().read_row_locally(self.row, offset, into) {
            segment.spend_budget(1, into.len()).await;
            return Ok(stamp);
        }
        self.get_bytes(offset, into).await
    }

    /// Reads what cannot be read in place at once. Never inlined: a read in place has few instructions.
    #[inline(never)]
    async fn get_bytes(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        let place = self.at("get", offset, into.len())?;
        self.table.segment().get_into(place, into).await
    }

    /// Writes parts of the row, each at an offset in it, as one version and with these options.
    pub async fn put_with(&self, parts: &[(u64, &[u8])], options: PutOptions<'_>) -> Result<Stamp, Error> {
        let segment = self.table.segment();
        if let &[(offset, bytes)] = parts {
            return segment.put_with(&[(self.at("put", offset, bytes.len())?, bytes)], options).await;
        }
        let mut placed = Vec::with_capacity(parts.len());
        for &(offset, bytes) in parts {
            placed.push((self.at("put", offset, bytes.len())?, bytes));
        }
        segment.put_with(&placed, options).await
    }
}

#[twin]
impl<T: ?Sized> Row<'_, T> {
    #[inline]
    fn at(&self, action: &'static str, offset: u64, bytes: usize) -> Result<u64, Error> {
        self.table.at(action, self.row, offset, bytes)
    }

    pub(crate) fn segment(&self) -> &Segment {
        self.table.segment()
    }

    pub(crate) fn row(&self) -> u64 {
        self.row
    }

    /// Returns the bytes of the row.
    fn room(&self) -> usize {
        usize::try_from(self.table.row_len()).unwrap_or(usize::MAX)
    }

    /// Names the word at `offset` in the row, a multiple of 8; sends nothing.
    pub fn word(&self, offset: u64) -> Word<'_> {
        Word::in_row(self.table.segment(), self.row, offset)
    }

    /// Waits until the row's version is above `version`, and returns the stamp of the version that it then has. Puts
    /// of other rows do not end the wait, and do not cost more for it.
    ///
    /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{Spec, Table, Version};
    /// let orders: Table = client.table("orders").allocate(Spec::new(100).row_len(64))?;
    /// let put = orders.row(7).put(b"new")?;
    /// assert_eq!(orders.row(7).wait_newer_than(Version(0))?, put);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        let (segment, place) = (self.table.segment(), self.at("watch", 0, 0)?);
        segment.wait_at(segment.time(), place, version).await
    }
}

#[twin]
impl<T: ?Sized> Row<'_, T> {
    /// Watches the versions of the row, beginning with the present one. Versions that follow each other quickly may be merged
    /// into the newest one.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let orders: ddss::Table = client.table("orders").allocate(ddss::Spec::new(100).row_len(64))?;
    /// let mut versions = orders.row(7).watch();
    /// assert_eq!(versions.next().transpose()?.map(|stamp| stamp.version.0), Some(0));
    /// let put = orders.row(7).put(b"new")?;
    /// assert_eq!(versions.next().transpose()?, Some(put));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self) -> Watch<Stamp> {
        watch_versions(self.segment().clone(), Some(self.row))
    }
}

#[twin]
impl<T: Encoding + ?Sized> Row<'_, T> {
    /// Takes the lock of the row exclusively, waiting behind other requests for it until this call's deadline.
    ///
    /// While the lock is taken, calls of the row by other clients wait as those of a locked segment do: see
    /// [`Segment::lock`](crate::Segment::lock). Calls of other rows do not wait. Puts and atomics of the row by this client
    /// must go through the guard; made through the table they fail with
    /// [`ErrorKind::OwnLock`](crate::ErrorKind::OwnLock).
    ///
    /// A lock of the whole table, which [`Table::segment`] has, and locks of its rows exclude each other, shared ones
    /// too. Once the lock of the table is requested, new requests for rows queue behind it. A client that locks
    /// several rows takes them in the order of their numbers, so that no two clients wait for each other.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let accounts: ddss::Table = client.table("accounts").allocate(ddss::Spec::new(1000).row_len(16))?;
    /// let held = accounts.row(7).lock()?;
    /// let balance = held.get()?;
    /// held.put(&balance)?;
    /// // Other rows are free meanwhile.
    /// accounts.row(8).put(b"another")?;
    /// held.unlock()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lock(&self) -> Result<LockGuard<Row<'static, T>>, Error> {
        self.lock_with(LockOptions::new()).await
    }

    /// Takes the lock of the row exclusively, or returns `None` if it is not free.
    pub async fn try_lock(&self) -> Result<Option<LockGuard<Row<'static, T>>>, Error> {
        if_free(self.lock_with(LockOptions::new().timeout(Duration::ZERO)).await)
    }

    /// Takes the lock of the row with these options.
    pub async fn lock_with(&self, options: LockOptions) -> Result<LockGuard<Row<'static, T>>, Error> {
        let place = self.at("lock a row of", 0, 0)?;
        let lock = self.table.segment().lock_at("lock a row of", options, Some(place)).await?;
        let table = Cow::Owned(Table::of_segment(lock.segment.clone()));
        Ok(LockGuard::new(Row { table, row: self.row }, lock))
    }
}
