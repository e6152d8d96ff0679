//! Locks of single rows of a table, and their guard.

use super::table::Table;
use super::{LockGuard, twin};
use crate::error::Error;
use crate::options::LockOptions;
use crate::value::{AtomicResult, Stamp, Value};
use ddss_core::Version;
use std::time::Duration;

/// The lock of one row of a table. Dropping the guard releases it, as does the death of its process or node.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::Spec;
///
/// let accounts = client.table("accounts").allocate(Spec::new(1000).row_len(16))?;
/// let held = accounts.lock_row(7)?;
/// let balance = held.get()?;
/// held.put(0, &balance)?;
/// held.fetch_add(8, 1)?;
/// // Other rows are free meanwhile.
/// accounts.put(8, 0, b"another")?;
/// held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct RowGuard {
    table: Table,
    row: u64,
    guard: LockGuard,
}

#[twin]
impl Table {
    /// Takes the lock of a row exclusively, waiting behind other requests for it until this call's deadline.
    ///
    /// While the lock is taken, calls of that row by other clients wait as those of a locked segment do: see
    /// [`Segment::lock`](crate::Segment::lock). Calls of other rows do not wait. Puts and atomics of the row by this client must go
    /// through the [`RowGuard`]; made through the table they fail with [`ErrorKind::OwnLock`](crate::ErrorKind::OwnLock).
    ///
    /// A lock of the whole table, which [`Table::segment`] has, and locks of its rows exclude each other, shared ones
    /// too. Once the lock of the table is requested, new requests for rows queue behind it. A client that locks
    /// several rows takes them in the order of their numbers, so that no two clients wait for each other.
    pub async fn lock_row(&self, row: u64) -> Result<RowGuard, Error> {
        self.lock_row_with(row, LockOptions::new()).await
    }

    /// Takes the lock of a row with these options.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// use ddss::{ErrorKind, LockOptions, Spec};
    /// use std::time::Duration;
    ///
    /// let jobs = client.table("jobs").allocate(Spec::new(100).row_len(64))?;
    /// let held = jobs.lock_row_with(3, LockOptions::new().timeout(Duration::ZERO))?;
    /// let busy = jobs.lock_row_with(3, LockOptions::new().timeout(Duration::ZERO)).expect_err("it is held");
    /// assert_eq!(busy.kind(), ErrorKind::Locked);
    /// # held.unlock()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lock_row_with(&self, row: u64, options: LockOptions) -> Result<RowGuard, Error> {
        let place = self.at("lock a row of", row, 0, 0)?;
        let guard = self.segment().lock_at("lock a row of", options, Some(place)).await?;
        Ok(RowGuard { table: self.clone(), row, guard })
    }
}

#[twin]
impl RowGuard {
    /// Returns the number of the locked row.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Returns the fencing token: greater than those of all earlier holders of a lock of the table or its rows, for
    /// systems outside of DDSS.
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns the version that the row had when the lock was granted.
    pub fn version(&self) -> Version {
        self.guard.version()
    }

    /// Returns the remaining time of the lease; zero once the lock is lost, and from then on:
    /// [`LockGuard::lease_left`].
    pub fn lease_left(&self) -> Duration {
        self.guard.lease_left()
    }

    fn at(&self, action: &'static str, offset: u64, bytes: usize) -> Result<u64, Error> {
        self.table.at(action, self.row, offset, bytes)
    }

    /// Reads the whole row.
    pub async fn get(&self) -> Result<Value, Error> {
        self.table.get(self.row).await
    }

    /// Reads `into.len()` bytes of the row, from `offset` in the row on.
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        self.table.get_into(self.row, offset, into).await
    }

    /// Writes bytes of the row if the guard still has the lock. Otherwise the put does nothing and fails with
    /// [`ErrorKind::LockLost`](crate::ErrorKind::LockLost); under a shared lock with `ErrorKind::SharedLock`.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.guard.put(self.at("put", offset, bytes.len())?, bytes).await
    }

    /// Writes bytes of the row if the guard still has the lock and the row still has that version:
    /// [`Table::put_if`].
    pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.guard.put_if(version, self.at("put", offset, bytes.len())?, bytes).await
    }

    /// Adds to a word of the row if the guard still has the lock: [`Table::fetch_add`].
    pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.guard.fetch_add(self.at("add to", offset, 8)?, add).await
    }

    /// Replaces a word of the row if the guard still has the lock: [`Table::swap`].
    pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.guard.swap(self.at("swap a word of", offset, 8)?, new).await
    }

    /// Compares and swaps a word of the row if the guard still has the lock: [`Table::compare_swap`].
    pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        self.guard.compare_swap(self.at("compare and swap a word of", offset, 8)?, expected, new).await
    }

    /// Raises a word of the row if the guard still has the lock: [`Table::fetch_max`].
    pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
        self.guard.fetch_max(self.at("raise a word of", offset, 8)?, value).await
    }

    /// Subtracts from a word of the row if the guard still has the lock: [`Table::checked_sub`].
    pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
        self.guard.checked_sub(self.at("subtract from a word of", offset, 8)?, sub).await
    }

    /// Extends the lease to its whole length, counted from now: [`LockGuard::renew`].
    pub async fn renew(&self) -> Result<(), Error> {
        self.guard.renew().await
    }

    /// Releases the lock; fails if the guard had already lost it.
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }
}
