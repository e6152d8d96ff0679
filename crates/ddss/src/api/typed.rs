//! Typed views of a segment: one value, or a slice of values of one type, at an offset.
//!
//! A view holds any type that [`zerocopy`] knows to be plain bytes: derive [`FromBytes`], [`IntoBytes`] and
//! [`Immutable`]. All processes must agree on the layout. Use `#[repr(C)]`, and the integers of
//! [`zerocopy::little_endian`] in clusters with more than one architecture.

use super::segment::Segment;
use super::{Client, twin};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::spec::Spec;
use crate::value::{Stamp, Versioned};
use ddss_core::{Failure, Version};
use std::marker::PhantomData;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A typed view of one `T` at an offset of a segment.
///
/// ```
/// use ddss::Shared;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
/// #[repr(C)]
/// struct Load {
///     requests: u64,
///     queued: u64,
/// }
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let load: Shared<Load> = Shared::allocate(&client, "load", &Load { requests: 0, queued: 0 })?;
/// load.update(|load| load.requests += 1)?;
/// let now = load.get()?;
/// println!("{} requests as of {}", now.requests, now.stamp.version);
/// # assert_eq!((now.requests, now.queued), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Shared<T> {
    segment: Segment,
    offset: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), offset: self.offset, kind: PhantomData }
    }
}

#[twin]
impl<T> Shared<T> {
    /// Returns the segment behind the view.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// Checks that `count` values of `T` from `offset` on lie in a segment.
fn check<T>(bytes: u64, name: &str, offset: u64, count: usize) -> Result<(), Error> {
    let end = u128::from(offset) + size_of::<T>() as u128 * count as u128;
    if end > u128::from(bytes) {
        return Err(Reason::OutOfRange { action: "view", target: name.to_owned(), offset, end, bytes }.into());
    }
    Ok(())
}

fn size<T>() -> u64 {
    size_of::<T>() as u64
}

/// Values that are their bytes.
pub(crate) trait Plain: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Plain for T {}

#[twin]
impl Segment {
    /// Reads, changes and writes the value at an offset, until no put of its segment or row came between.
    pub(crate) async fn update_value<T: Plain>(
        &self,
        offset: u64,
        mut change: impl FnMut(&mut T),
    ) -> Result<Versioned<T>, Error> {
        let time = self.time().started();
        loop {
            let mut value = T::new_zeroed();
            let stamp = self.get_by(time, offset, value.as_mut_bytes()).await?;
            change(&mut value);
            let conditions = self.location().put_conditions(Some(stamp.version));
            match self.put_by(time, offset, value.as_bytes(), conditions).await {
                Err(error) if error.failure() == Some(Failure::VersionMismatch) => std::hint::spin_loop(),
                ended => return ended.map(|stamp| Versioned { value, stamp }),
            }
        }
    }
}

#[twin]
impl<T: FromBytes + IntoBytes + Immutable> Shared<T> {
    /// Creates a view of an existing segment.
    pub fn new(segment: Segment, offset: u64) -> Result<Self, Error> {
        check::<T>(segment.len(), segment.name(), offset, 1)?;
        Ok(Self { segment, offset, kind: PhantomData })
    }

    /// Allocates a segment that holds one value.
    pub async fn allocate(client: &Client, name: &str, value: &T) -> Result<Self, Error> {
        let segment = client.segment(name).allocate(Spec::new(size::<T>())).await?;
        check::<T>(segment.len(), name, 0, 1)?;
        let shared = Self { segment, offset: 0, kind: PhantomData };
        shared.put(value).await?;
        Ok(shared)
    }

    /// Opens a segment that was allocated for a value of this size. Another size, or a table, is refused with
    /// [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape). Segments record no types: two types of one size are not told apart. For a part of
    /// a larger segment there is [`new`](Self::new).
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        let segment = client.segment(name).open().await?;
        if segment.location().row_bytes != 0 || segment.len() != size::<T>() {
            let size = size::<T>();
            let wanted = format_args!("one of {size} bytes for one value");
            return Err(Error::wrong_shape("open", name, segment.location().shape(), wanted));
        }
        Ok(Self { segment, offset: 0, kind: PhantomData })
    }

    /// Reads the value atomically.
    pub async fn get(&self) -> Result<Versioned<T>, Error> {
        let mut value = T::new_zeroed();
        let stamp = self.segment.get_into(self.offset, value.as_mut_bytes()).await?;
        Ok(Versioned { value, stamp })
    }

    /// Writes the value atomically.
    pub async fn put(&self, value: &T) -> Result<Stamp, Error> {
        self.segment.put(self.offset, value.as_bytes()).await
    }

    /// Writes the value if the segment still has that version: [`Segment::put_if`].
    pub async fn put_if(&self, version: Version, value: &T) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.offset, value.as_bytes()).await
    }

    /// Reads, changes and writes the value, and retries until no other writer interfered. Returns the written
    /// value.
    ///
    /// All attempts share the timeout of one call. A call with an [indeterminate](Error::is_indeterminate) outcome
    /// may have taken effect and is not retried.
    pub async fn update(&self, change: impl FnMut(&mut T)) -> Result<Versioned<T>, Error> {
        self.segment.update_value(self.offset, change).await
    }
}

/// A typed view of consecutive values of `T` at an offset of a segment.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let scores: ddss::SharedSlice<u64> = ddss::SharedSlice::allocate(&client, "scores", 1000)?;
/// scores.put(7, &42)?;
/// let some = scores.get_range(5..10)?;
/// assert_eq!(some.value, [0, 0, 42, 0, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct SharedSlice<T> {
    segment: Segment,
    offset: u64,
    count: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData, ..*self }
    }
}

#[twin]
impl<T> SharedSlice<T> {
    /// Returns the segment behind the view.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the slice has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[twin]
impl<T: FromBytes + IntoBytes + Immutable> SharedSlice<T> {
    /// Creates a view of `count` values from `offset` on of an existing segment.
    pub fn new(segment: Segment, offset: u64, count: usize) -> Result<Self, Error> {
        check::<T>(segment.len(), segment.name(), offset, count)?;
        Ok(Self { segment, offset, count, kind: PhantomData })
    }

    /// Returns the offset of a range of values. An inverted range is out of range.
    pub(crate) fn place(&self, action: &'static str, range: &Range<usize>) -> Result<u64, Error> {
        let byte = |index: usize| u128::from(self.offset) + index as u128 * u128::from(size::<T>());
        let (begin, end) = (byte(range.start), byte(range.end));
        if range.start > range.end || end > byte(self.count) {
            // An offset that does not fit its type is beyond every segment.
            let offset = u64::try_from(begin).unwrap_or(u64::MAX);
            let (target, bytes) = (self.segment.name().to_owned(), self.segment.len());
            return Err(Reason::OutOfRange { action, target, offset, end, bytes }.into());
        }
        Ok(begin as u64)
    }

    /// Returns the offset of consecutive values.
    pub(crate) fn at(&self, action: &'static str, index: usize, count: usize) -> Result<u64, Error> {
        // A sum that overflows is beyond every slice.
        self.place(action, &(index..index.saturating_add(count)))
    }

    /// Allocates a segment that holds `count` values, all bytes zero.
    pub async fn allocate(client: &Client, name: &str, count: usize) -> Result<Self, Error> {
        let segment = client.segment(name).allocate(Spec::new(size::<T>().saturating_mul(count as u64))).await?;
        check::<T>(segment.len(), name, 0, count)?;
        Ok(Self { segment, offset: 0, count, kind: PhantomData })
    }

    /// Opens a segment by name and views all of it as values.
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        let segment = client.segment(name).open().await?;
        let count = segment.len().checked_div(size::<T>()).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Self { segment, offset: 0, count, kind: PhantomData })
    }

    /// Reads one value.
    pub async fn get(&self, index: usize) -> Result<Versioned<T>, Error> {
        let place = self.at("get", index, 1)?;
        let mut value = T::new_zeroed();
        let stamp = self.segment.get_into(place, value.as_mut_bytes()).await?;
        Ok(Versioned { value, stamp })
    }

    /// Reads a range of values, all of one version.
    pub async fn get_range(&self, range: Range<usize>) -> Result<Versioned<Vec<T>>, Error> {
        self.place("get", &range)?;
        let mut value: Vec<T> = std::iter::repeat_with(T::new_zeroed).take(range.len()).collect();
        let stamp = self.get_into(range.start, &mut value).await?;
        Ok(Versioned { value, stamp })
    }

    /// Reads `into.len()` values, all of one version.
    pub async fn get_into(&self, index: usize, into: &mut [T]) -> Result<Stamp, Error> {
        let place = self.at("get", index, into.len())?;
        self.segment.get_into(place, into.as_mut_bytes()).await
    }

    /// Writes one value.
    pub async fn put(&self, index: usize, value: &T) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", index, 1)?, value.as_bytes()).await
    }

    /// Writes one value if the segment still has that version: [`Segment::put_if`]. All values of a slice share the
    /// version of the segment; a [`TypedTable`](crate::TypedTable) has one for each.
    pub async fn put_if(&self, index: usize, version: Version, value: &T) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.at("put", index, 1)?, value.as_bytes()).await
    }

    /// Reads, changes and writes one value, and retries until no put of the segment came between. Returns the written
    /// value. All attempts share the timeout of one call, as with [`Shared::update`].
    pub async fn update(&self, index: usize, change: impl FnMut(&mut T)) -> Result<Versioned<T>, Error> {
        self.segment.update_value(self.at("update", index, 1)?, change).await
    }

    /// Writes consecutive values as one version.
    pub async fn put_range(&self, index: usize, values: &[T]) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", index, values.len())?, values.as_bytes()).await
    }
}
