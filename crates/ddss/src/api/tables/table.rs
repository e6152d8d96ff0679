//! Tables: many rows under one name, each with a version of its own.
//!
//! A table is a segment whose [`Spec`] was made by [`Spec::table`]. Each call stays inside one row, and is atomic with
//! all other calls of that row. A snapshot over several rows does not exist.
//!
//! The constructors of asynchronous views have other names, since both are functions of the same type.

use crate::api::atomics::AtomicResult;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::{BadArgument, Failure, Spec, Version};

/// A table of rows. `S` is [`Segment`] or [`AsyncSegment`].
///
/// ```
/// use ddss::{Failure, Spec, Table};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let sessions = Table::allocate(&client, "sessions", Spec::table(1000, 64))?;
/// let seen = sessions.put(7, 0, b"alice")?;
/// sessions.put(8, 0, b"bob")?;
/// // The put of row 8 does not disturb a conditional put of row 7.
/// sessions.put_if(7, seen.version, 0, b"carol")?;
/// assert_eq!(&sessions.get(7)?[..5], b"carol");
/// let late = sessions.put_if(7, seen.version, 0, b"dave").expect_err("the row has changed");
/// assert_eq!(late.failure(), Some(Failure::VersionMismatch));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Table<S = Segment> {
    segment: S,
    rows: u64,
    row_bytes: u64,
}

impl<S> Table<S> {
    /// Makes the table of a segment with that location.
    pub(crate) fn of(segment: S, location: &SegmentLocation) -> Result<Self, Error> {
        let row_bytes = u64::from(location.row_bytes);
        let rows = location.bytes.checked_div(row_bytes).ok_or_else(|| {
            let refused = BadArgument::new("segment", "a plain segment", "a table", Failure::Unsupported);
            Error::BadArgument { action: "view as a table", target: location.name.to_string(), refused }
        })?;
        Ok(Self { segment, rows, row_bytes })
    }

    /// Returns the segment behind the table: for its lock, permissions and release.
    pub fn segment(&self) -> &S {
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
    pub(crate) fn offset_of(
        &self,
        action: &'static str,
        name: &str,
        row: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<u64, Error> {
        if row >= self.rows {
            let refused = BadArgument::new("row", row, format_args!("0 to {}", self.rows - 1), Failure::OutOfRange);
            return Err(Error::BadArgument { action, target: name.to_owned(), refused });
        }
        let end = u128::from(offset) + bytes as u128;
        if end > u128::from(self.row_bytes) {
            let target = format!("row {row} of {name}");
            return Err(Error::OutOfRange { action, target, offset, end, bytes: self.row_bytes });
        }
        Ok(row * self.row_bytes + offset)
    }
}

calls! {
    impl Table, Table<AsyncSegment> {
        /// Makes the table of a segment that is one. A plain segment is refused with [`Failure::Unsupported`].
        pub fn new | new_async(segment: Segment) | (segment: AsyncSegment) -> Result<Self, Error> {
            let location = segment.location().clone();
            Table::of(segment, &location)
        }

        pub(crate) fn at(&self, action: &'static str, row: u64, offset: u64, bytes: usize) -> Result<u64, Error> {
            self.offset_of(action, self.segment.name(), row, offset, bytes)
        }
    }
}

calls! {
    impl Table, Table<AsyncSegment> {
        /// Allocates a table; `spec` comes from [`Spec::table`].
        pub async fn allocate | allocate_async(client: &Client, name: &str, spec: Spec)
            | (client: &AsyncClient, name: &str, spec: Spec) -> Result<Self, Error>
        {
            if spec.layout().is_none() {
                let refused =
                    BadArgument::new("spec", "of a plain segment", "one of Spec::table", Failure::Unsupported);
                return Err(Error::BadArgument { action: "allocate", target: name.to_owned(), refused });
            }
            let segment = wait!(client.allocate(name, spec))?;
            let location = segment.location().clone();
            Table::of(segment, &location)
        }

        /// Opens a table by name.
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            let location = segment.location().clone();
            Table::of(segment, &location)
        }

        /// Reads a whole row.
        pub async fn get(&self, row: u64) -> Result<Value, Error> {
            let place = self.at("get", row, 0, 0)?;
            let mut bytes = vec![0; usize::try_from(self.row_bytes).unwrap_or(usize::MAX)];
            let stamp = wait!(self.segment.get_into(place, &mut bytes))?;
            Ok(Value::new(bytes, stamp))
        }

        /// Reads `into.len()` bytes of a row, from `offset` in the row on. All are of the version that is returned.
        #[inline]
        pub async fn get_into(&self, row: u64, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
            let place = self.at("get", row, offset, into.len())?;
            wait!(self.segment.get_into(place, into))
        }

        /// Writes bytes of a row, from `offset` in the row on.
        pub async fn put(&self, row: u64, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.segment.put(self.at("put", row, offset, bytes.len())?, bytes))
        }

        /// Writes bytes of a row if the row still has that version. Otherwise the put does nothing and fails with
        /// [`Failure::VersionMismatch`]. Puts of other rows do not matter.
        pub async fn put_if(&self, row: u64, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.segment.put_if(version, self.at("put", row, offset, bytes.len())?, bytes))
        }

        /// Adds to the word at `offset` in a row (a multiple of 8), wrapping around, and returns the previous value.
        pub async fn fetch_add(&self, row: u64, offset: u64, add: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.fetch_add(self.at("add to", row, offset, 8)?, add))
        }

        /// Replaces the word at `offset` in a row (a multiple of 8) and returns the previous value.
        pub async fn swap(&self, row: u64, offset: u64, new: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.swap(self.at("swap a word of", row, offset, 8)?, new))
        }

        /// Writes `new` at `offset` in a row (a multiple of 8) if the word equals `expected`; returns the previous
        /// value. The version of the result is that of the row.
        pub async fn compare_swap(&self, row: u64, offset: u64, expected: u64, new: u64)
            -> Result<AtomicResult, Error>
        {
            let place = self.at("compare and swap a word of", row, offset, 8)?;
            wait!(self.segment.compare_swap(place, expected, new))
        }

        /// Raises the word at `offset` in a row (a multiple of 8) to `value`, and returns the previous value. A word that
        /// is not less stays unchanged, and so does the version of the row.
        pub async fn fetch_max(&self, row: u64, offset: u64, value: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.fetch_max(self.at("raise a word of", row, offset, 8)?, value))
        }

        /// Subtracts from the word at `offset` in a row (a multiple of 8), and returns the previous value. If that is less
        /// than `sub`, the word and the version of the row stay unchanged.
        pub async fn checked_sub(&self, row: u64, offset: u64, sub: u64) -> Result<AtomicResult, Error> {
            wait!(self.segment.checked_sub(self.at("subtract from a word of", row, offset, 8)?, sub))
        }

        /// Waits until the version of a row is above `version`, and returns the stamp of the version that it then has. Puts
        /// of other rows do not end the wait, and do not cost more for it.
        ///
        /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
        /// [`Failure::TimedOut`].
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// use ddss::{Spec, Table, Version};
        /// let orders = Table::allocate(&client, "orders", Spec::table(100, 64))?;
        /// let put = orders.put(7, 0, b"new")?;
        /// assert_eq!(orders.wait_newer_than(7, Version(0))?, put);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn wait_newer_than(&self, row: u64, version: Version) -> Result<Stamp, Error> {
            let place = self.at("watch", row, 0, 0)?;
            wait!(self.segment.wait_at(self.segment.time(), place, version))
        }

        /// Frees the table in the whole cluster: [`Segment::release`].
        pub async fn release(self) -> Result<(), Error> {
            wait!(self.segment.release())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on};
    use crate::{Model, TypedTable};
    use std::time::Duration;

    const MODELS: [Model; 5] = [Model::Null, Model::Read, Model::Write, Model::Strict, Model::Temporal(1000)];

    #[test]
    fn rows_have_versions_of_their_own_on_every_path() {
        // If this broke, a put of one row would refuse a conditional put of another, or be read as another row.
        let node = TestNode::start();
        let (local, remote) = (node.local_read_client(), node.client());
        for (index, model) in MODELS.into_iter().enumerate() {
            let name = format!("table-{index}");
            let here = Table::allocate(&local, &name, Spec::table(50, 100).model(model)).unwrap();
            let there = Table::open(&remote, &name).unwrap();
            assert_eq!((there.rows(), there.row_bytes()), (50, 104));
            let first = there.put(7, 0, &[7; 104]).unwrap();
            let second = here.put(8, 3, &[8; 9]).unwrap();
            assert_eq!((first.version, second.version), (Version(1), Version(1)));
            let again = there.put_if(7, first.version, 100, b"7777").unwrap();
            assert_eq!(again.version, Version(2), "{model:?}");
            let late = here.put_if(7, first.version, 0, b"late").unwrap_err();
            assert_eq!((late.failure(), late.is_indeterminate()), (Some(Failure::VersionMismatch), false));
            assert_eq!(late.version(), Some(Version(2)), "{late}");
            for table in [&here, &there] {
                let (seven, eight, nine) = (table.get(7).unwrap(), table.get(8).unwrap(), table.get(9).unwrap());
                assert_eq!((seven.stamp(), eight.stamp(), nine.version()), (again, second, Version(0)), "{model:?}");
                assert_eq!((&seven[..100], &seven[100..]), (&[7; 100][..], &b"7777"[..]));
                assert_eq!((&eight[..3], &eight[3..12], &eight[12..]), (&[0; 3][..], &[8; 9][..], &[0; 92][..]));
                assert!(nine.iter().all(|&byte| byte == 0));
                let mut part = [0; 6];
                assert_eq!(table.get_into(7, 98, &mut part).unwrap(), again);
                assert_eq!(&part, b"\x07\x077777");
            }
            there.release().unwrap();
            assert_eq!(here.get(7).unwrap_err().failure(), Some(Failure::NotFound), "{model:?}");
        }
    }

    #[test]
    fn calls_outside_of_one_row_are_refused() {
        // If this broke, a call would change two rows under one version, or memory behind the table.
        let node = TestNode::start();
        let (client, local) = (node.client(), node.local_read_client());
        let table = Table::allocate(&client, "table", Spec::table(4, 16)).unwrap();
        let of = |error: Error| error.failure();
        assert_eq!(of(table.get(4).unwrap_err()), Some(Failure::OutOfRange));
        assert_eq!(of(table.put(0, 9, &[0; 8]).unwrap_err()), Some(Failure::OutOfRange));
        assert_eq!(of(table.fetch_add(3, 16, 1).unwrap_err()), Some(Failure::OutOfRange));
        assert_eq!(of(table.fetch_add(3, 4, 1).unwrap_err()), Some(Failure::Unaligned));
        // The daemon checks as well, since clients may not.
        for raw in [client.open("table").unwrap(), local.open("table").unwrap()] {
            assert_eq!(of(raw.get(8..24).unwrap_err()), Some(Failure::OutOfRange));
            assert_eq!(of(raw.put(8, &[1; 16]).unwrap_err()), Some(Failure::OutOfRange));
            assert_eq!(of(raw.put(8, &[1; 400]).unwrap_err()), Some(Failure::OutOfRange));
            assert_eq!(of(raw.put_many(&[(0, b"a"), (16, b"b")]).unwrap_err()), Some(Failure::OutOfRange));
            assert_eq!(of(raw.get_many(&[0..1, 16..17]).unwrap_err()), Some(Failure::OutOfRange));
            let of_a_table = raw.wait_newer_than(Version(0)).unwrap_err();
            assert!(of_a_table.to_string().contains("Table::wait_newer_than"), "{of_a_table}");
            assert_eq!(of(of_a_table), Some(Failure::Unsupported));
            // Several ranges of one row are one version.
            let put = raw.put_many(&[(16, b"ab"), (30, b"yz")]).unwrap();
            let values = raw.get_many(&[16..18, 30..32]).unwrap();
            assert_eq!((&values[0][..], &values[1][..], values[0].stamp()), (&b"ab"[..], &b"yz"[..], put));
        }
        assert!((0..4).filter(|&row| table.get(row).unwrap().version() > Version(0)).eq([1]));
        let plain = client.allocate("plain", Spec::new(16)).unwrap();
        assert_eq!(of(Table::new(plain).unwrap_err()), Some(Failure::Unsupported));
        assert_eq!(of(Table::allocate(&client, "other", Spec::new(8)).unwrap_err()), Some(Failure::Unsupported));
    }

    #[test]
    fn row_atomics_count_by_row_and_no_update_is_lost() {
        // If this broke, a counter in a table would lose increments.
        let node = TestNode::start();
        let client = node.client();
        let table: TypedTable<[u64; 3]> = TypedTable::allocate(&client, "counters", 10).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let table = TypedTable::<[u64; 3]>::open(&node.local_read_client(), "counters").unwrap();
                scope.spawn(move || {
                    for _ in 0..100 {
                        table.table().fetch_add(3, 8, 2).unwrap();
                        table.update(3, |[first, ..]| *first += 1).unwrap();
                        table.update(4, |[.., last]| *last += 1).unwrap();
                    }
                });
            }
        });
        let (three, four) = (table.get(3).unwrap(), table.get(4).unwrap());
        assert_eq!((three.value, three.stamp.version), ([400, 800, 0], Version(800)));
        assert_eq!((four.value, four.stamp.version), ([0, 0, 400], Version(400)));
        let lost = table.table().compare_swap(4, 16, 1, 2).unwrap();
        assert_eq!((lost.before, lost.stamp.version), (400, Version(400)));
        assert_eq!(table.table().swap(4, 16, 9).unwrap().before, 400);
        // A condition that does not hold leaves the row and its version as they are.
        let raised = [table.table().fetch_max(4, 16, 12).unwrap(), table.table().fetch_max(4, 16, 11).unwrap()];
        assert_eq!(raised.map(|raised| (raised.before, raised.stamp.version.0)), [(9, 402), (12, 402)]);
        let taken = [table.table().checked_sub(4, 16, 10).unwrap(), table.table().checked_sub(4, 16, 10).unwrap()];
        assert_eq!(taken.map(|taken| (taken.before, taken.stamp.version.0)), [(12, 403), (2, 403)]);
        assert_eq!(table.get(3).unwrap().stamp.version, Version(800));
    }

    #[test]
    fn wait_for_a_row_ends_with_its_put_and_no_other() {
        // If this broke, a watcher would poll, miss the change of its row, or wake for the change of another.
        let node = TestNode::start();
        let (writer, watcher) = (node.client(), node.client());
        let table = Table::allocate(&writer, "watched", Spec::table(8, 16)).unwrap();
        let there = Table::open(&watcher, "watched").unwrap();
        let hasty = Table::new(there.segment().with_timeout(Duration::from_millis(30))).unwrap();
        table.put(3, 0, b"first").unwrap();
        assert_eq!(there.wait_newer_than(3, Version(0)).unwrap().version, Version(1), "it is there already");
        let (tasks, woken) = (AsyncSegment::from(there.segment()), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                woken.wait();
                let table = Table::new_async(tasks).unwrap();
                block_on(async {
                    // One wait of each row but 3, and several of row 3.
                    let rows =
                        [0, 1, 2, 3, 3, 3, 4].map(|row| table.wait_newer_than(row, Version(u64::from(row == 3))));
                    let mut stamps = Vec::new();
                    for wait in rows {
                        stamps.push(wait.await.unwrap().version);
                    }
                    stamps
                })
            });
            woken.wait();
            for row in [5, 6, 7] {
                table.put(row, 0, b"another").unwrap();
                assert_eq!(hasty.wait_newer_than(4, Version(0)).unwrap_err().failure(), Some(Failure::TimedOut));
            }
            for row in [4, 3, 2, 1, 0] {
                table.fetch_add(row, 8, 1).unwrap();
            }
            assert_eq!(waits.join().unwrap(), [1, 1, 1, 2, 2, 2, 1].map(Version));
        });
        assert_eq!(there.wait_newer_than(8, Version(0)).unwrap_err().failure(), Some(Failure::OutOfRange));
        let late = table.clone();
        let waits = std::thread::spawn(move || there.wait_newer_than(3, Version(99)));
        late.release().unwrap();
        assert_eq!(waits.join().unwrap().unwrap_err().failure(), Some(Failure::NotFound));
    }

    #[test]
    fn lock_of_the_table_excludes_puts_of_its_rows() {
        // If this broke, a holder of the table's lock would see rows change.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.short_timeout_client());
        let table = Table::allocate(&mine, "locked", Spec::table(4, 16)).unwrap();
        let other = Table::open(&theirs, "locked").unwrap();
        let held = table.segment().lock().unwrap();
        assert_eq!(other.put(1, 0, b"they").unwrap_err().failure(), Some(Failure::TimedOut));
        assert_eq!(other.get(1).unwrap_err().failure(), Some(Failure::TimedOut));
        held.put(16, b"mine").unwrap();
        held.unlock().unwrap();
        assert_eq!(&other.get(1).unwrap()[..4], b"mine");
        assert_eq!(other.put(1, 0, b"they").unwrap().version, Version(2));
    }

    #[test]
    fn readers_of_a_row_see_whole_values_beside_its_writer() {
        // If this broke, a reader would act on a torn row.
        let node = TestNode::start();
        let (local, remote) = (node.local_read_client(), node.client());
        let here = Table::allocate(&local, "beside", Spec::table(3, 192)).unwrap();
        let there = Table::open(&remote, "beside").unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for turn in 0..5_000u32 {
                    there.put(1, 0, &[turn as u8; 192]).unwrap();
                    there.put(2, 0, &[!turn as u8; 192]).unwrap();
                }
            });
            let (mut last, mut steps) = (Version(0), 0);
            while !writer.is_finished() {
                let value = here.get(1).unwrap();
                assert!(value.iter().all(|byte| *byte == value[0]), "two values in one");
                assert!(value.version() >= last, "time ran backwards");
                steps += u64::from(value.version() > last);
                last = value.version();
            }
            assert!(steps > 0, "nothing was seen to change");
        });
    }

    #[test]
    fn async_table_reads_rows_of_blocking_table() {
        // If this broke, a row would depend on its reader.
        let node = TestNode::start();
        let (threads, tasks) = (node.client(), node.client().to_async().unwrap());
        let table = Table::allocate(&threads, "table", Spec::table(10, 32)).unwrap();
        block_on(async {
            let same = Table::open_async(&tasks, "table").await.unwrap();
            let put = same.put(3, 8, b"task").await.unwrap();
            assert_eq!((table.get(3).unwrap().stamp(), &table.get(3).unwrap()[8..12]), (put, &b"task"[..]));
            assert_eq!(same.put_if(3, put.version, 0, b"x").await.unwrap().version, Version(2));
            assert_eq!(same.fetch_add(4, 0, 5).await.unwrap().before, 0);
            let typed = TypedTable::<u64, _>::new_async(same).unwrap();
            assert_eq!(typed.update(4, |word| *word += 1).await.unwrap().value, 6);
            let own = TypedTable::<u32, _>::allocate_async(&tasks, "own", 5).await.unwrap();
            own.put(4, &9).await.unwrap();
            assert_eq!(*TypedTable::<u32>::open(&threads, "own").unwrap().get(4).unwrap(), 9);
        });
    }
}
