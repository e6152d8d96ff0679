//! Asynchronous reader of a snapshot.

use super::error::SnapshotError;
use super::reader::{Reader, Step};
use ddss::aio::{Client, Table};
use std::ops::RangeBounds;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A snapshot as a reader holds it: [`Snapshot`](super::Snapshot) for asynchronous programs.
#[derive(Debug)]
pub struct Snapshot<T> {
    client: Client,
    table: Table,
    reader: Reader<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Snapshot<T> {
    /// Opens the last generation of a snapshot by name.
    ///
    /// # Errors
    /// Nothing has been published, its elements have another size, or the error of a call.
    pub async fn open(client: &Client, name: &str) -> Result<Self, SnapshotError> {
        let table = client.table::<[u8]>(name).open().await?;
        let row = table.row(0).get().await?;
        Ok(Self { client: client.clone(), reader: Reader::new(&row, table.len())?, table })
    }

    /// Returns elements, all of this generation. Reads the pages that this reader does not hold.
    ///
    /// # Errors
    /// The range is outside, a newer generation has replaced pages, or the error of a call.
    pub async fn read(&mut self, range: impl RangeBounds<usize>) -> Result<&[T], SnapshotError> {
        let range = self.reader.range(range)?;
        while let Some(Step { batch, wanted }) =
            self.reader.next_step(&range, |batch, row| batch.get(self.table.row(row), ..))?
        {
            let replies = self.client.run(batch).await?;
            self.reader.apply(wanted, replies)?;
        }
        Ok(self.reader.elements(range))
    }

    /// Goes on to the last generation. Pages that have not changed are still held. Returns false if there is no newer one.
    ///
    /// # Errors
    /// The error of a call.
    pub async fn refresh(&mut self) -> Result<bool, SnapshotError> {
        let row = self.table.row(0).get().await?;
        self.reader.refresh(&row)
    }

    /// Returns the generation, from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.reader.generation()
    }

    /// Returns the number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a snapshot has at least one element")]
    pub fn len(&self) -> usize {
        self.reader.len()
    }

    /// Returns how many rows this reader has read: pages, those of the map, and roots.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.reader.fetched()
    }
}
