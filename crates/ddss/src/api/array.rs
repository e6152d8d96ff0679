//! Consecutive values of a type in a segment.

use super::segment::Segment;
use super::twin;
use crate::encoding::{Plain, Seal};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::value::{Stamp, Versioned};
use std::marker::PhantomData;

/// Consecutive values of type `T` from an offset of a segment on: [`Segment::array`]. All have the version of the segment.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let scores: ddss::Array<u64> = client.segment("scores").allocate(8 * 1000)?.array(0)?;
/// scores.put_slice(7, &[42, 43])?;
/// let mut some = [0; 5];
/// scores.get_into(5, &mut some)?;
/// assert_eq!((some, scores.len()), ([0, 0, 42, 43, 0], 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Array<T> {
    segment: Segment,
    offset: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData, ..*self }
    }
}

#[twin]
impl Segment {
    /// Views the bytes from `offset` to the end as values; sends nothing. Bytes behind the last whole value do not count.
    pub fn array<T: Plain>(&self, offset: u64) -> Result<Array<T>, Error> {
        if offset > self.len() {
            return Err(Array::<T>::out_of_range(self, "view", offset, offset.into()));
        }
        Ok(Array { segment: self.clone(), offset, kind: PhantomData })
    }
}

#[twin]
impl<T> Array<T> {
    /// Returns the number of values.
    #[allow(clippy::len_without_is_empty, reason = "an array without values is useless")]
    pub fn len(&self) -> usize {
        let bytes = self.segment.len() - self.offset;
        usize::try_from(bytes.checked_div(size_of::<T>() as u64).unwrap_or(0)).unwrap_or(usize::MAX)
    }

    /// Returns the offset of consecutive values.
    pub(crate) fn at(&self, action: &'static str, index: usize, count: usize) -> Result<u64, Error> {
        let byte = |index: usize| u128::from(self.offset) + index as u128 * size_of::<T>() as u128;
        // A sum that overflows is beyond every array.
        let (begin, end) = (byte(index), byte(index.saturating_add(count)));
        if end > byte(self.len()) {
            // An offset that does not fit its type is beyond every segment.
            let offset = u64::try_from(begin).unwrap_or(u64::MAX);
            return Err(Self::out_of_range(&self.segment, action, offset, end));
        }
        Ok(begin as u64)
    }

    fn out_of_range(segment: &Segment, action: &'static str, offset: u64, end: u128) -> Error {
        Reason::OutOfRange { action, target: segment.name().to_owned(), offset, end, bytes: segment.len() }.into()
    }
}

#[twin]
impl<T: Plain> Array<T> {
    /// Reads one value.
    pub async fn get(&self, index: usize) -> Result<Versioned<T>, Error> {
        let place = self.at("get", index, 1)?;
        self.segment.get_value::<T>(None, place, size_of::<T>()).await
    }

    /// Reads `into.len()` values, all of one version.
    pub async fn get_into(&self, index: usize, into: &mut [T]) -> Result<Stamp, Error> {
        let place = self.at("get", index, into.len())?;
        self.segment.get_into(place, T::slice_bytes_mut(into, Seal)).await
    }

    /// Writes one value.
    pub async fn put(&self, index: usize, value: &T) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", index, 1)?, T::slice_bytes(std::slice::from_ref(value), Seal)).await
    }

    /// Writes consecutive values as one version.
    pub async fn put_slice(&self, index: usize, values: &[T]) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", index, values.len())?, T::slice_bytes(values, Seal)).await
    }
}
