//! Tables with one value of a type in each row.

use super::table::Table;
use super::{Client, twin};
use crate::error::Error;
use crate::spec::Spec;
use crate::value::{Stamp, Versioned};
use ddss_core::Version;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A table with one value of type `T` in each row.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let stock: ddss::TypedTable<[u64; 2]> = ddss::TypedTable::allocate(&client, "stock", 100)?;
/// stock.put(3, &[10, 0])?;
/// let sold = stock.update(3, |[left, sold]| (*left, *sold) = (*left - 1, *sold + 1))?;
/// assert_eq!((sold.value, sold.stamp.version.0), ([9, 1], 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct TypedTable<T> {
    table: Table,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for TypedTable<T> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), kind: PhantomData }
    }
}

#[twin]
impl<T> TypedTable<T> {
    /// Returns the untyped table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the specification of a table with that many rows of `T`; other fields may be set.
    pub fn spec(rows: u64) -> Spec {
        Spec::new(rows).row_len(u32::try_from(size_of::<T>()).unwrap_or(u32::MAX))
    }
}

#[twin]
impl<T: FromBytes + IntoBytes + Immutable> TypedTable<T> {
    /// Views a table. Its rows must be large enough for `T`.
    pub fn new(table: Table) -> Result<Self, Error> {
        table.at("view", 0, 0, size_of::<T>())?;
        Ok(Self { table, kind: PhantomData })
    }

    /// Allocates a table with that many rows, all bytes zero.
    pub async fn allocate(client: &Client, name: &str, rows: u64) -> Result<Self, Error> {
        Self::new(Table::new(client.segment(name).allocate(Self::spec(rows)).await?)?)
    }

    /// Opens a table by name.
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        Self::new(Table::new(client.segment(name).open().await?)?)
    }

    /// Reads the value of a row.
    pub async fn get(&self, row: u64) -> Result<Versioned<T>, Error> {
        let mut value = T::new_zeroed();
        let stamp = self.table.row(row).get_into(0, value.as_mut_bytes()).await?;
        Ok(Versioned { value, stamp })
    }

    /// Writes the value of a row.
    pub async fn put(&self, row: u64, value: &T) -> Result<Stamp, Error> {
        self.table.row(row).put(value.as_bytes()).await
    }

    /// Writes the value of a row if the row still has that version: [`Row::put_if`](crate::Row::put_if).
    pub async fn put_if(&self, row: u64, version: Version, value: &T) -> Result<Stamp, Error> {
        self.table.row(row).put_if(version, value.as_bytes()).await
    }

    /// Reads, changes and writes the value of a row, and retries until no other writer of that row interfered.
    /// Returns the written value. All attempts share the timeout of one call, as with
    /// [`Cell::update`](crate::Cell::update).
    pub async fn update(&self, row: u64, change: impl FnMut(&mut T)) -> Result<Versioned<T>, Error> {
        let place = self.table.at("update", row, 0, size_of::<T>())?;
        self.table.segment().update_value(place, change).await
    }
}
