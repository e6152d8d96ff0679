//! Tables with one value of a type in each row.

use crate::api::tables::table::Table;
use crate::api::typed::Typed;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::{Spec, Version};
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A table with one value of type `T` in each row. `S` is [`Segment`] or [`AsyncSegment`].
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let stock: ddss::TypedTable<[u64; 2]> = ddss::TypedTable::allocate(&client, "stock", 100)?;
/// stock.put(3, &[10, 0])?;
/// let sold = stock.update(3, |[left, sold]| (*left, *sold) = (*left - 1, *sold + 1))?;
/// assert_eq!((sold.value, sold.stamp.version.0), ([9, 1], 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TypedTable<T, S = Segment> {
    table: Table<S>,
    kind: PhantomData<fn() -> T>,
}

impl<T, S: Clone> Clone for TypedTable<T, S> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), kind: PhantomData }
    }
}

impl<T, S> TypedTable<T, S> {
    fn of(table: Table<S>, name: &str) -> Result<Self, Error> {
        table.offset_of("view", name, 0, 0, size_of::<T>())?;
        Ok(Self { table, kind: PhantomData })
    }

    /// Returns the untyped table.
    pub fn table(&self) -> &Table<S> {
        &self.table
    }

    /// Returns the specification of a table with that many rows of `T`; other fields may be set.
    pub fn spec(rows: u64) -> Spec {
        Spec::table(rows, u32::try_from(size_of::<T>()).unwrap_or(u32::MAX))
    }
}

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} TypedTable<T>, TypedTable<T, AsyncSegment> {
        /// Views a table. Its rows must be large enough for `T`.
        pub fn new | new_async(table: Table) | (table: Table<AsyncSegment>) -> Result<Self, Error> {
            let name = table.segment().name().to_owned();
            Self::of(table, &name)
        }
    }
}

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} TypedTable<T>, TypedTable<T, AsyncSegment> {
        /// Allocates a table with that many rows, all bytes zero.
        pub async fn allocate | allocate_async(client: &Client, name: &str, rows: u64)
            | (client: &AsyncClient, name: &str, rows: u64) -> Result<Self, Error>
        {
            let segment = wait!(client.allocate(name, Self::spec(rows)))?;
            let location = segment.location().clone();
            Self::of(Table::of(segment, &location)?, name)
        }

        /// Opens a table by name.
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            let location = segment.location().clone();
            Self::of(Table::of(segment, &location)?, name)
        }

        /// Reads the value of a row.
        pub async fn get(&self, row: u64) -> Result<Typed<T>, Error> {
            let mut value = T::new_zeroed();
            let stamp = wait!(self.table.get_into(row, 0, value.as_mut_bytes()))?;
            Ok(Typed { value, stamp })
        }

        /// Writes the value of a row.
        pub async fn put(&self, row: u64, value: &T) -> Result<Stamp, Error> {
            wait!(self.table.put(row, 0, value.as_bytes()))
        }

        /// Writes the value of a row if the row still has that version: [`Table::put_if`].
        pub async fn put_if(&self, row: u64, version: Version, value: &T) -> Result<Stamp, Error> {
            wait!(self.table.put_if(row, version, 0, value.as_bytes()))
        }

        /// Reads, changes and writes the value of a row, and retries until no other writer of that row interfered.
        /// Returns the written value. All attempts share the timeout of one call, as with
        /// [`Shared::update`](crate::Shared::update).
        pub async fn update(&self, row: u64, change: impl FnMut(&mut T)) -> Result<Typed<T>, Error> {
            let place = self.table.at("update", row, 0, size_of::<T>())?;
            wait!(self.table.segment().update_value(place, change))
        }
    }
}
