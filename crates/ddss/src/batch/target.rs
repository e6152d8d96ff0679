//! Handles that a batch takes: a segment, a row, a guard, a map, each of either form.

use crate::client::Client;
use crate::encoding::{Encoding, Seal};
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::map::shape::MapShape;

/// A segment, a row, or the guard of its lock, of either form, for a call of a [`Batch`](crate::Batch).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Batch, Error, Stamp, Target, Ticket};
/// fn clear(batch: &mut Batch, target: impl Target) -> Result<Ticket<Stamp>, Error> {
///     batch.put(target, 0, &[0; 64])
/// }
/// let account = client.segment("account").allocate(64)?;
/// let (held, mut batch) = (account.lock()?, Batch::new());
/// clear(&mut batch, &held)?;
/// client.run(batch)?.ok()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Target {
    #[doc(hidden)]
    fn place(&self, _: Seal) -> TargetPlace<'_>;
}

/// Place of a target.
#[derive(Debug)]
pub struct TargetPlace<'a> {
    pub(crate) client: &'a Client,
    pub(crate) location: &'a SegmentLocation,
    pub(crate) row: Option<u64>,
}

impl TargetPlace<'_> {
    /// Returns the offset in the segment.
    pub(super) fn at(&self, action: &'static str, offset: u64, bytes: usize) -> Result<u64, Error> {
        self.row.map_or(Ok(offset), |row| self.location.place_in_row(action, row, offset, bytes))
    }
}

impl<T: Target + ?Sized> Target for &T {
    fn place(&self, seal: Seal) -> TargetPlace<'_> {
        (**self).place(seal)
    }
}

/// A map of either form, for a call of a [`Batch`](crate::Batch).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Batch, Error, Map, MapTarget};
/// fn remove_all(batch: &mut Batch, map: impl MapTarget<Key = u64>, keys: &[u64]) -> Result<(), Error> {
///     keys.iter().try_for_each(|key| batch.map_remove(&map, key).map(drop))
/// }
/// let stock: Map<u64, u64> = client.map("stock").allocate(100)?;
/// stock.put(&4711, &12)?;
/// let mut batch = Batch::new();
/// remove_all(&mut batch, &stock, &[4711, 4712])?;
/// client.run(batch)?.ok()?;
/// assert_eq!(stock.len()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait MapTarget {
    /// Type of its keys.
    type Key: Encoding + ?Sized;
    /// Type of its values.
    type Value: Encoding + ?Sized;

    #[doc(hidden)]
    fn place(&self, _: Seal) -> MapPlace<'_>;
}

/// Place of a map.
#[derive(Debug)]
pub struct MapPlace<'a> {
    pub(crate) client: &'a Client,
    pub(crate) location: &'a SegmentLocation,
    pub(crate) shape: &'a MapShape,
}

impl<M: MapTarget + ?Sized> MapTarget for &M {
    type Key = M::Key;
    type Value = M::Value;

    fn place(&self, seal: Seal) -> MapPlace<'_> {
        (**self).place(seal)
    }
}
