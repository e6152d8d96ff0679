//! Locks of single rows of a table, and their guard.

use super::table::Table;
use crate::api::atomics::AtomicResult;
use crate::api::lock::{LockGuard, LockOptions};
use crate::async_client::{AsyncLockGuard, AsyncSegment};
use crate::calls::calls;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::Version;
use std::time::Duration;

/// The lock of one row of a table. Dropping the guard releases it, as does the death of its process or node.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use ddss::{Spec, Table};
///
/// let accounts = Table::allocate(&client, "accounts", Spec::table(1000, 16))?;
/// let held = accounts.lock_row(7)?;
/// let balance = held.get()?;
/// held.put(0, &balance)?;
/// held.fetch_add(8, 1)?;
/// // Other rows are free meanwhile.
/// accounts.put(8, 0, b"another")?;
/// held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RowGuard<S = Segment, G = LockGuard> {
    table: Table<S>,
    row: u64,
    guard: G,
}

/// The lock of one row of a table: [`RowGuard`] for tasks.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use ddss::{AsyncRowGuard, Spec, Table};
///
/// let accounts = Table::allocate_async(&client.to_async()?, "accounts", Spec::table(1000, 16)).await?;
/// let held: AsyncRowGuard = accounts.lock_row(7).await?;
/// held.put(0, b"mine").await?;
/// held.unlock().await?;
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type AsyncRowGuard = RowGuard<AsyncSegment, AsyncLockGuard>;

calls! {
    impl Table, Table<AsyncSegment> {
        /// Takes the lock of a row exclusively, waiting behind other requests for it until this call's deadline.
        ///
        /// While the lock is taken, calls of that row by other clients wait as those of a locked segment do: see
        /// [`Segment::lock`]. Calls of other rows do not wait. Puts and atomics of the row by this client must go
        /// through the [`RowGuard`]; made through the table they fail with [`Failure::OwnLock`](crate::Failure::OwnLock).
        ///
        /// A lock of the whole table, which [`Table::segment`] has, and locks of its rows exclude each other, shared ones
        /// too. Once the lock of the table is requested, new requests for rows queue behind it. A client that locks
        /// several rows takes them in the order of their numbers, so that no two clients wait for each other.
        pub async fn lock_row(&self, row: u64) -> Result<RowGuard, Error> | Result<AsyncRowGuard, Error> {
            wait!(self.lock_row_with(row, LockOptions::new()))
        }

        /// Takes the lock of a row with these options.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// use ddss::{Failure, LockOptions, Spec, Table};
        ///
        /// let jobs = Table::allocate(&client, "jobs", Spec::table(100, 64))?;
        /// let held = jobs.lock_row_with(3, LockOptions::new().no_wait())?;
        /// let busy = jobs.lock_row_with(3, LockOptions::new().no_wait()).expect_err("it is held");
        /// assert_eq!(busy.failure(), Some(Failure::Locked));
        /// # held.unlock()?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn lock_row_with(&self, row: u64, options: LockOptions)
            -> Result<RowGuard, Error> | Result<AsyncRowGuard, Error>
        {
            let place = self.at("lock a row of", row, 0, 0)?;
            let guard = wait!(self.segment().lock_at("lock a row of", options, Some(place)))?;
            Ok(RowGuard { table: self.clone(), row, guard })
        }
    }
}

calls! {
    impl RowGuard, RowGuard<AsyncSegment, AsyncLockGuard> {
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
    }
}

calls! {
    impl RowGuard, RowGuard<AsyncSegment, AsyncLockGuard> {
        /// Reads the whole row.
        pub async fn get(&self) -> Result<Value, Error> {
            wait!(self.table.get(self.row))
        }

        /// Reads `into.len()` bytes of the row, from `offset` in the row on.
        pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
            wait!(self.table.get_into(self.row, offset, into))
        }

        /// Writes bytes of the row if the guard still has the lock. Otherwise the put does nothing and fails with
        /// [`Failure::LockLost`](crate::Failure::LockLost); under a shared lock with `Failure::SharedLock`.
        pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.guard.put(self.at("put", offset, bytes.len())?, bytes))
        }

        /// Writes bytes of the row if the guard still has the lock and the row still has that version:
        /// [`Table::put_if`].
        pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.guard.put_if(version, self.at("put", offset, bytes.len())?, bytes))
        }

        /// Adds to a word of the row if the guard still has the lock: [`Table::fetch_add`].
        pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
            wait!(self.guard.fetch_add(self.at("add to", offset, 8)?, add))
        }

        /// Replaces a word of the row if the guard still has the lock: [`Table::swap`].
        pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
            wait!(self.guard.swap(self.at("swap a word of", offset, 8)?, new))
        }

        /// Compares and swaps a word of the row if the guard still has the lock: [`Table::compare_swap`].
        pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
            wait!(self.guard.compare_swap(self.at("compare and swap a word of", offset, 8)?, expected, new))
        }

        /// Raises a word of the row if the guard still has the lock: [`Table::fetch_max`].
        pub async fn fetch_max(&self, offset: u64, value: u64) -> Result<AtomicResult, Error> {
            wait!(self.guard.fetch_max(self.at("raise a word of", offset, 8)?, value))
        }

        /// Subtracts from a word of the row if the guard still has the lock: [`Table::checked_sub`].
        pub async fn checked_sub(&self, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
            wait!(self.guard.checked_sub(self.at("subtract from a word of", offset, 8)?, sub))
        }

        /// Extends the lease to its whole length, counted from now: [`LockGuard::renew`].
        pub async fn renew(&self) -> Result<(), Error> {
            wait!(self.guard.renew())
        }

        /// Releases the lock; fails if the guard had already lost it.
        pub async fn unlock(self) -> Result<(), Error> {
            wait!(self.guard.unlock())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on};
    use crate::{Failure, Spec};

    fn no_wait() -> LockOptions {
        LockOptions::new().no_wait()
    }

    fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<Failure> {
        result.unwrap_err().failure()
    }

    #[test]
    fn row_lock_protects_its_row_and_leaves_the_others_free() {
        // If this broke, a lock of a row would not exclude other writers of it, or would stop the whole table.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let table = Table::allocate(&mine, "rows", Spec::table(8, 16)).unwrap();
        let other = Table::open(&theirs, "rows").unwrap();
        // Its calls wait in vain.
        let hasty = Table::new(other.segment().with_timeout(Duration::from_millis(30))).unwrap();
        let put = table.put(3, 0, b"first").unwrap();
        let held = table.lock_row(3).unwrap();
        assert_eq!((held.row(), held.version()), (3, put.version));
        assert_eq!(failure(hasty.put(3, 0, b"they")), Some(Failure::TimedOut));
        assert_eq!(failure(hasty.fetch_add(3, 8, 1)), Some(Failure::TimedOut));
        assert_eq!(failure(hasty.get(3)), Some(Failure::TimedOut));
        assert_eq!(failure(hasty.lock_row(3)), Some(Failure::TimedOut));
        assert_eq!(failure(other.lock_row_with(3, no_wait())), Some(Failure::Locked));
        assert_eq!(failure(table.put(3, 0, b"past the guard")), Some(Failure::OwnLock));
        // Other rows.
        other.put(4, 0, b"they").unwrap();
        other.fetch_add(4, 8, 1).unwrap();
        assert_eq!(&other.get(4).unwrap()[..4], b"they");
        let next = other.lock_row(5).unwrap();
        assert!(next.token() > held.token());
        // Calls under the lock.
        let put = held.put_if(held.version(), 0, b"mine").unwrap();
        assert_eq!(failure(held.put_if(held.version(), 0, b"late")), Some(Failure::VersionMismatch));
        assert_eq!((held.get().unwrap().stamp(), &held.get().unwrap()[..4]), (put, &b"mine"[..]));
        assert_eq!(held.fetch_add(8, 5).unwrap().before, 0);
        assert_eq!(held.swap(8, 7).unwrap().before, 5);
        assert_eq!(held.compare_swap(8, 7, 9).unwrap().before, 7);
        assert_eq!((held.fetch_max(8, 12).unwrap().before, held.checked_sub(8, 2).unwrap().before), (9, 12));
        let mut word = [0; 8];
        held.get_into(8, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), 10);
        assert_eq!(failure(held.put(9, &[0; 8])), Some(Failure::OutOfRange));
        held.renew().unwrap();
        assert!(!held.lease_left().is_zero());
        held.unlock().unwrap();
        other.put(3, 0, b"they").unwrap();
        assert_eq!(failure(table.lock_row(8)), Some(Failure::OutOfRange));
        drop(next);
        while other.lock_row_with(5, no_wait()).is_err() {}
    }

    #[test]
    fn lost_row_lock_admits_no_put() {
        // If this broke, a holder that was away for too long could overwrite its successor's row.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let table = Table::allocate(&mine, "rows", Spec::table(4, 16)).unwrap();
        let other = Table::open(&theirs, "rows").unwrap();
        let short = LockOptions::new().lease(Duration::from_millis(1));
        let late = table.lock_row_with(1, short).unwrap();
        let next = other.lock_row(1).unwrap();
        assert_eq!(failure(late.put(0, b"late")), Some(Failure::LockLost));
        assert_eq!(failure(late.renew()), Some(Failure::LockLost));
        assert_eq!(failure(late.unlock()), Some(Failure::LockLost));
        next.put(0, b"next").unwrap();
        // The owner of the table breaks the locks of all rows.
        let second = table.lock_row(2).unwrap();
        assert_eq!(table.segment().break_lock().unwrap(), 2);
        assert_eq!(failure(next.put(0, b"late")), Some(Failure::LockLost));
        assert_eq!(failure(second.fetch_add(8, 1)), Some(Failure::LockLost));
    }

    #[test]
    fn locks_of_rows_and_of_their_table_exclude_each_other() {
        // If this broke, a holder of the table would see a row change, or would never get the lock.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let table = Table::allocate(&mine, "rows", Spec::table(4, 16)).unwrap();
        let other = Table::open(&theirs, "rows").unwrap();
        let (first, second) = (table.lock_row(1).unwrap(), table.lock_row(2).unwrap());
        assert_eq!(failure(other.segment().lock_with(no_wait())), Some(Failure::Locked));
        std::thread::scope(|scope| {
            let whole = scope.spawn(|| other.segment().lock().unwrap());
            while table.segment().stat().unwrap().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(failure(table.lock_row_with(3, no_wait())), Some(Failure::Locked), "the table comes first");
            first.put(0, b"goes on").unwrap();
            first.unlock().unwrap();
            second.unlock().unwrap();
            let whole = whole.join().unwrap();
            assert_eq!(failure(table.lock_row_with(3, no_wait())), Some(Failure::Locked));
            whole.put(16, b"whole").unwrap();
            whole.unlock().unwrap();
        });
        assert_eq!(&table.lock_row(1).unwrap().get().unwrap()[..5], b"whole");
        // Shared locks of a row admit each other.
        let shared = [&table, &other].map(|table| table.lock_row_with(1, LockOptions::new().shared()).unwrap());
        assert_eq!(failure(other.lock_row_with(1, no_wait())), Some(Failure::Locked));
        assert_eq!(failure(shared[0].put(0, b"shared")), Some(Failure::SharedLock));
    }

    #[test]
    fn async_row_lock_is_released_by_drop_and_by_unlock() {
        // If this broke, a cancelled task would leave a row locked until its lease ends.
        let node = TestNode::start();
        let (mine, theirs) = (node.client().to_async().unwrap(), node.client().to_async().unwrap());
        block_on(async {
            let table = Table::allocate_async(&mine, "rows", Spec::table(4, 16)).await.unwrap();
            let other = Table::open_async(&theirs, "rows").await.unwrap();
            let held = table.lock_row(2).await.unwrap();
            held.put(0, b"task").await.unwrap();
            assert_eq!(&held.get().await.unwrap()[..4], b"task");
            assert_eq!(failure(other.lock_row_with(2, no_wait()).await), Some(Failure::Locked));
            held.unlock().await.unwrap();
            let kept = LockOptions::new().keep_alive().lease(Duration::from_millis(300));
            drop(other.lock_row_with(2, kept).await.unwrap());
            while table.lock_row_with(2, no_wait()).await.is_err() {}
        });
    }
}
