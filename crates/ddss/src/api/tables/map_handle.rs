//! Handles of a map: its types, sizes and seed, and the errors of its calls.

use super::super::named::{Handle, Named};
use super::super::segment::Segment;
use super::table::Table;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::encoding::{Encoding, Seal};
use crate::error::Error;
use crate::map::entry::{Entry, Lengths};
use crate::map::shape::{MapShape, decoded_value};
use crate::spec::Spec;
use ddss_core::{BadArgument, Failure};
use std::borrow::Cow;
use std::marker::PhantomData;

/// A hash map in shared memory, for keys and values of fixed lengths.
///
/// Each call is atomic. A get is one read of a bucket, in place on the home's node. Nearly all entries are found by that
/// read; an entry in another bucket costs two reads more, and a bucket above 4 KiB one more for the value.
///
/// Keys and values are of any type with an [`Encoding`](crate::Encoding). Without types the map is of bytes, and opens
/// every map.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Map, Update};
/// let stock: Map<u64, [u32; 2]> = client.map("stock").allocate(1000)?;
/// assert!(stock.put(&4711, &[10, 0])?.is_new);
/// stock.update(&4711, |item| item.map_or(Update::Keep, |item| Update::Put([item[0] - 1, item[1] + 1])))?;
/// assert_eq!(stock.get(&4711)?.map(|item| item.value), Some([9, 1]));
/// assert!(stock.remove(&4711)?);
/// assert_eq!(stock.get(&4711)?, None);
///
/// let bytes: Map = client.map("stock").open()?;
/// assert_eq!(bytes.entry_len(), (8, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Map<K: ?Sized = [u8], V: ?Sized = [u8]> {
    pub(crate) map: ByteMap,
    kind: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), kind: PhantomData }
    }
}

#[twin]
impl Client {
    /// Names a map from keys to values; sends nothing.
    pub fn map<'c, K: ?Sized, V: ?Sized>(&'c self, name: &'c str) -> Named<'c, Map<K, V>> {
        Named::new(self, name)
    }
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> Handle for Map<K, V> {
    fn spec(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<Spec, Error> {
        let found = spec.lengths().or(K::LEN.zip(V::LEN));
        let Some((key, value)) = found.filter(|&(key, value)| {
            K::LEN.is_none_or(|wanted| wanted == key) && V::LEN.is_none_or(|wanted| wanted == value)
        }) else {
            let found = found.map_or("no lengths".to_owned(), |(key, value)| format!("lengths {key} and {value}"));
            let wanted = "those of its keys and values (Spec::entry_len)";
            return Err(Error::bad_argument(action, name, BadArgument::new("spec", found, wanted, Failure::BadSize)));
        };
        Ok(spec.entry_len(key, value))
    }

    async fn of(segment: Segment, spec: Option<Spec>, time: Deadline, _: Seal) -> Result<Self, Error> {
        let (key, value) = spec.and_then(|spec| spec.lengths()).unzip();
        let wanted = Lengths { key: key.or(K::LEN), value: value.or(V::LEN) };
        Ok(Self { map: <Table>::try_from(segment)?.into_map(time, wanted).await?, kind: PhantomData })
    }
}

#[twin]
impl<K: ?Sized, V: ?Sized> Map<K, V> {
    /// Returns the bytes of each key and of each value.
    pub fn entry_len(&self) -> (usize, usize) {
        (self.map.layout.key_bytes, self.map.layout.value_bytes)
    }

    /// Returns the segment behind the map: for its lock, permissions and release.
    pub fn segment(&self) -> &Segment {
        self.map.table.segment()
    }
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> Map<K, V> {
    #[inline]
    pub(super) fn key<'a>(&self, action: &'static str, key: &'a K::Input) -> Result<Cow<'a, [u8]>, Error> {
        self.map.shape.key::<K>((action, self.segment().name()), key)
    }

    #[inline]
    pub(super) fn value<'a>(&self, action: &'static str, value: &'a V::Input) -> Result<Cow<'a, [u8]>, Error> {
        self.map.shape.value::<V>((action, self.segment().name()), value)
    }

    /// Decodes a value that a map has.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<V::Output, Error> {
        decoded_value::<V>(self.segment().name(), bytes)
    }

    pub(super) fn decode_entry<B: AsRef<[u8]>>(
        &self,
        entry: Option<Entry<B>>,
    ) -> Result<Option<Entry<V::Output>>, Error> {
        entry.map(|entry| Ok(entry.with_value(self.decode(entry.value.as_ref())?))).transpose()
    }
}

/// The map by its bytes: the table, and its shape.
#[twin]
#[derive(Clone, Debug)]
pub(crate) struct ByteMap {
    pub(crate) table: Table,
    pub(crate) shape: MapShape,
}

impl std::ops::Deref for ByteMap {
    type Target = MapShape;

    fn deref(&self) -> &MapShape {
        &self.shape
    }
}

#[twin]
impl ByteMap {
    /// Views a table by the description in its row 0.
    pub(super) fn of_header(table: Table, header: [u64; 6], wanted: Lengths) -> Result<Self, Error> {
        let shape = MapShape::of_header(table.segment().location(), header, wanted)?;
        Ok(Self { table, shape })
    }
}
