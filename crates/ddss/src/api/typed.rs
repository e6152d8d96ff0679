//! Typed views of a segment: one value, or a slice of values of one type, at an offset.
//!
//! A view holds any type that [`zerocopy`] knows to be plain bytes: derive [`FromBytes`], [`IntoBytes`] and
//! [`Immutable`]. All processes must agree on the layout. Use `#[repr(C)]`, and the integers of
//! [`zerocopy::little_endian`] in clusters with more than one architecture.
//!
//! The constructors of asynchronous views have other names, since both are functions of the same type.

use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::{Failure, Spec, Version};
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value with the stamp of its version.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let limit = ddss::Shared::allocate(&client, "limit", &100u64)?;
/// let seen = limit.get()?;
/// assert_eq!((seen.value, seen.stamp.version.0), (100, 1));
/// assert_eq!(seen.count_ones(), 3, "it can be used as the value itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Typed<T> {
    /// The value.
    pub value: T,
    /// Version and timestamp.
    pub stamp: Stamp,
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A typed view of one `T` at an offset of a segment. `S` is [`Segment`] or [`AsyncSegment`](crate::AsyncSegment).
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
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let load: Shared<Load> = Shared::allocate(&client, "load", &Load { requests: 0, queued: 0 })?;
/// load.update(|load| load.requests += 1)?;
/// let now = load.get()?;
/// println!("{} requests as of {}", now.requests, now.stamp.version);
/// # assert_eq!((now.requests, now.queued), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Shared<T, S = Segment> {
    segment: S,
    offset: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T, S: Clone> Clone for Shared<T, S> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), offset: self.offset, kind: PhantomData }
    }
}

impl<T, S> Shared<T, S> {
    /// Returns the segment behind the view.
    pub fn segment(&self) -> &S {
        &self.segment
    }
}

/// Checks that `count` values of `T` from `offset` on lie in a segment.
fn check<T>(bytes: u64, name: &str, offset: u64, count: usize) -> Result<(), Error> {
    let end = u128::from(offset) + size_of::<T>() as u128 * count as u128;
    if end > u128::from(bytes) {
        return Err(Error::OutOfRange { action: "view", target: name.to_owned(), offset, end, bytes });
    }
    Ok(())
}

fn size<T>() -> u64 {
    size_of::<T>() as u64
}

/// Values that are their bytes.
pub(crate) trait Plain: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Plain for T {}

calls! {
    impl Segment, AsyncSegment {
        /// Reads, changes and writes the value at an offset, until no put of its segment or row came between.
        pub(crate) async fn update_value<T: Plain>(&self, offset: u64, mut change: impl FnMut(&mut T))
            -> Result<Typed<T>, Error>
        {
            let time = self.time().started();
            loop {
                let mut value = T::new_zeroed();
                let stamp = wait!(self.get_by(time, offset, value.as_mut_bytes()))?;
                change(&mut value);
                let conditions = self.location().put_conditions(Some(stamp.version), None);
                match wait!(self.put_by(time, offset, value.as_bytes(), conditions)) {
                    Err(error) if error.failure() == Some(Failure::VersionMismatch) => std::hint::spin_loop(),
                    ended => return ended.map(|stamp| Typed { value, stamp }),
                }
            }
        }
    }
}

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} Shared<T>, Shared<T, AsyncSegment> {
        /// Creates a view of an existing segment.
        pub fn new | new_async(segment: Segment, offset: u64) | (segment: AsyncSegment, offset: u64)
            -> Result<Self, Error>
        {
            check::<T>(segment.bytes(), segment.name(), offset, 1)?;
            Ok(Self { segment, offset, kind: PhantomData })
        }
    }
}

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} Shared<T>, Shared<T, AsyncSegment> {
        /// Allocates a segment that holds one value.
        pub async fn allocate | allocate_async(client: &Client, name: &str, value: &T)
            | (client: &AsyncClient, name: &str, value: &T) -> Result<Self, Error>
        {
            let segment = wait!(client.allocate(name, Spec::new(size::<T>())))?;
            check::<T>(segment.bytes(), name, 0, 1)?;
            let shared = Self { segment, offset: 0, kind: PhantomData };
            wait!(shared.put(value))?;
            Ok(shared)
        }

        /// Opens a segment that was allocated for a value of this size. Another size, or a table, is refused with
        /// [`Failure::Unsupported`]. Segments record no types: two types of one size are not told apart. For a part of
        /// a larger segment there is [`new`](Self::new).
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            if segment.location().row_bytes != 0 || segment.bytes() != size::<T>() {
                let size = size::<T>();
                let wanted = format_args!("one of {size} bytes for one value");
                return Err(Error::wrong_shape("open", name, segment.location().shape(), wanted));
            }
            Ok(Self { segment, offset: 0, kind: PhantomData })
        }

        /// Reads the value atomically.
        pub async fn get(&self) -> Result<Typed<T>, Error> {
            let mut value = T::new_zeroed();
            let stamp = wait!(self.segment.get_into(self.offset, value.as_mut_bytes()))?;
            Ok(Typed { value, stamp })
        }

        /// Writes the value atomically.
        pub async fn put(&self, value: &T) -> Result<Stamp, Error> {
            wait!(self.segment.put(self.offset, value.as_bytes()))
        }

        /// Writes the value if the segment still has that version: [`Segment::put_if`].
        pub async fn put_if(&self, version: Version, value: &T) -> Result<Stamp, Error> {
            wait!(self.segment.put_if(version, self.offset, value.as_bytes()))
        }

        /// Reads, changes and writes the value, and retries until no other writer interfered. Returns the written
        /// value.
        ///
        /// All attempts share the timeout of one call. A call with an [indeterminate](Error::is_indeterminate) outcome
        /// may have taken effect and is not retried.
        pub async fn update(&self, change: impl FnMut(&mut T)) -> Result<Typed<T>, Error> {
            wait!(self.segment.update_value(self.offset, change))
        }
    }
}

/// A typed view of consecutive values of `T` at an offset of a segment. `S` is [`Segment`] or
/// [`AsyncSegment`](crate::AsyncSegment).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let scores: ddss::SharedSlice<u64> = ddss::SharedSlice::allocate(&client, "scores", 1000)?;
/// scores.put(7, &42)?;
/// let some = scores.get_range(5..10)?;
/// assert_eq!(some.value, [0, 0, 42, 0, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedSlice<T, S = Segment> {
    segment: S,
    offset: u64,
    count: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T, S: Clone> Clone for SharedSlice<T, S> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData, ..*self }
    }
}

impl<T, S> SharedSlice<T, S> {
    /// Returns the segment behind the view.
    pub fn segment(&self) -> &S {
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

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} SharedSlice<T>, SharedSlice<T, AsyncSegment> {
        /// Creates a view of `count` values from `offset` on of an existing segment.
        pub fn new | new_async(segment: Segment, offset: u64, count: usize)
            | (segment: AsyncSegment, offset: u64, count: usize) -> Result<Self, Error>
        {
            check::<T>(segment.bytes(), segment.name(), offset, count)?;
            Ok(Self { segment, offset, count, kind: PhantomData })
        }

        /// Returns the offset of a range of values. An inverted range is out of range.
        pub(crate) fn place(&self, action: &'static str, range: &Range<usize>) -> Result<u64, Error> {
            let byte = |index: usize| u128::from(self.offset) + index as u128 * u128::from(size::<T>());
            let (begin, end) = (byte(range.start), byte(range.end));
            if range.start > range.end || end > byte(self.count) {
                // An offset that does not fit its type is beyond every segment.
                let offset = u64::try_from(begin).unwrap_or(u64::MAX);
                let (target, bytes) = (self.segment.name().to_owned(), self.segment.bytes());
                return Err(Error::OutOfRange { action, target, offset, end, bytes });
            }
            Ok(begin as u64)
        }

        /// Returns the offset of consecutive values.
        pub(crate) fn at(&self, action: &'static str, index: usize, count: usize) -> Result<u64, Error> {
            // A sum that overflows is beyond every slice.
            self.place(action, &(index..index.saturating_add(count)))
        }
    }
}

calls! {
    impl {T: FromBytes + IntoBytes + Immutable} SharedSlice<T>, SharedSlice<T, AsyncSegment> {
        /// Allocates a segment that holds `count` values, all bytes zero.
        pub async fn allocate | allocate_async(client: &Client, name: &str, count: usize)
            | (client: &AsyncClient, name: &str, count: usize) -> Result<Self, Error>
        {
            let segment = wait!(client.allocate(name, Spec::new(size::<T>().saturating_mul(count as u64))))?;
            check::<T>(segment.bytes(), name, 0, count)?;
            Ok(Self { segment, offset: 0, count, kind: PhantomData })
        }

        /// Opens a segment by name and views all of it as values.
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            let count = segment.bytes().checked_div(size::<T>()).unwrap_or(0);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            Ok(Self { segment, offset: 0, count, kind: PhantomData })
        }

        /// Reads one value.
        pub async fn get(&self, index: usize) -> Result<Typed<T>, Error> {
            let place = self.at("get", index, 1)?;
            let mut value = T::new_zeroed();
            let stamp = wait!(self.segment.get_into(place, value.as_mut_bytes()))?;
            Ok(Typed { value, stamp })
        }

        /// Reads a range of values, all of one version.
        pub async fn get_range(&self, range: Range<usize>) -> Result<Typed<Vec<T>>, Error> {
            self.place("get", &range)?;
            let mut value: Vec<T> = std::iter::repeat_with(T::new_zeroed).take(range.len()).collect();
            let stamp = wait!(self.get_into(range.start, &mut value))?;
            Ok(Typed { value, stamp })
        }

        /// Reads `into.len()` values, all of one version.
        pub async fn get_into(&self, index: usize, into: &mut [T]) -> Result<Stamp, Error> {
            let place = self.at("get", index, into.len())?;
            wait!(self.segment.get_into(place, into.as_mut_bytes()))
        }

        /// Writes one value.
        pub async fn put(&self, index: usize, value: &T) -> Result<Stamp, Error> {
            wait!(self.segment.put(self.at("put", index, 1)?, value.as_bytes()))
        }

        /// Writes one value if the segment still has that version: [`Segment::put_if`]. All values of a slice share the
        /// version of the segment; a [`TypedTable`](crate::TypedTable) has one for each.
        pub async fn put_if(&self, index: usize, version: Version, value: &T) -> Result<Stamp, Error> {
            wait!(self.segment.put_if(version, self.at("put", index, 1)?, value.as_bytes()))
        }

        /// Reads, changes and writes one value, and retries until no put of the segment came between. Returns the written
        /// value. All attempts share the timeout of one call, as with [`Shared::update`].
        pub async fn update(&self, index: usize, change: impl FnMut(&mut T)) -> Result<Typed<T>, Error> {
            wait!(self.segment.update_value(self.at("update", index, 1)?, change))
        }

        /// Writes consecutive values as one version.
        pub async fn put_range(&self, index: usize, values: &[T]) -> Result<Stamp, Error> {
            wait!(self.segment.put(self.at("put", index, values.len())?, values.as_bytes()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on};

    #[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
    #[repr(C)]
    struct Point {
        x: u64,
        y: u64,
    }

    #[test]
    fn typed_value_round_trips_and_no_update_is_lost() {
        // If this broke, two services would see different values, or lose updates.
        let node = TestNode::start();
        let client = node.client();
        let point = Shared::allocate(&client, "point", &Point { x: 1, y: 2 }).unwrap();
        assert_eq!(*point.get().unwrap(), Point { x: 1, y: 2 });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let point = Shared::<Point>::open(&node.client(), "point").unwrap();
                scope.spawn(move || {
                    for _ in 0..50 {
                        point.update(|point| point.x += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(*point.get().unwrap(), Point { x: 201, y: 2 });
        let stale = point.put_if(Version(1), &Point { x: 0, y: 0 }).unwrap_err();
        assert_eq!(stale.failure(), Some(Failure::VersionMismatch));
        assert!(matches!(Shared::<Point>::new(point.segment().clone(), 1), Err(Error::OutOfRange { .. })));
    }

    #[test]
    fn typed_slice_checks_bounds_and_offsets() {
        // If this broke, one value would be read or written in another's place.
        let node = TestNode::start();
        let client = node.client();
        let scores: SharedSlice<u32> = SharedSlice::allocate(&client, "scores", 100).unwrap();
        scores.put(99, &7).unwrap();
        scores.put_range(10, &[1, 2, 3]).unwrap();
        assert_eq!(scores.get_range(9..14).unwrap().value, [0, 1, 2, 3, 0]);
        assert_eq!(SharedSlice::<u32>::open(&client, "scores").unwrap().len(), 100);
        assert_eq!(*scores.get(99).unwrap(), 7);
        for error in
            [scores.get(100).map(drop), scores.put(usize::MAX, &1).map(drop), scores.get_range(99..101).map(drop)]
        {
            assert!(matches!(error, Err(Error::OutOfRange { .. })));
        }
        let raised = scores.update(11, |score| *score += 5).unwrap();
        assert_eq!((raised.value, scores.get_range(10..13).unwrap().value), (7, vec![1, 7, 3]));
        scores.put_if(12, raised.stamp.version, &4).unwrap();
        let stale = scores.put_if(12, raised.stamp.version, &5).unwrap_err();
        assert_eq!((stale.failure(), *scores.get(12).unwrap()), (Some(Failure::VersionMismatch), 4));
        assert!(matches!(scores.update(100, |_| ()), Err(Error::OutOfRange { .. })));
        let part = SharedSlice::<u32>::new(scores.segment().clone(), 4, 9).unwrap();
        assert!(part.get(9).is_err() && part.get(8).is_ok());
    }

    #[test]
    fn async_views_read_values_of_blocking_views() {
        // If this broke, a value would depend on its reader.
        let node = TestNode::start();
        let (threads, tasks) = (node.client(), node.client().to_async().unwrap());
        let count = Shared::allocate(&threads, "count", &7u64).unwrap();
        block_on(async {
            let same = Shared::<u64, _>::open_async(&tasks, "count").await.unwrap();
            assert_eq!(same.update(|count| *count += 1).await.unwrap().value, 8);
            assert_eq!(*count.get().unwrap(), *same.get().await.unwrap());
            assert_eq!(same.put(&9).await.unwrap(), count.get().unwrap().stamp);
            let stale = same.put_if(Version(1), &0).await.unwrap_err();
            assert_eq!(stale.failure(), Some(Failure::VersionMismatch));
            let own = Shared::allocate_async(&tasks, "own", &5u32).await.unwrap();
            assert_eq!(*Shared::<u32>::open(&threads, "own").unwrap().get().unwrap(), *own.get().await.unwrap());
            let many = SharedSlice::<u32, _>::allocate_async(&tasks, "many", 100).await.unwrap();
            many.put_range(98, &[1, 2]).await.unwrap();
            many.put(0, &3).await.unwrap();
            let found = SharedSlice::<u32, _>::open_async(&tasks, "many").await.unwrap();
            assert_eq!((found.len(), found.get_range(97..100).await.unwrap().value), (100, vec![0, 1, 2]));
            assert_eq!(found.update(0, |score| *score += 1).await.unwrap().value, 4);
            assert_eq!(SharedSlice::<u32>::open(&threads, "many").unwrap().get_range(98..100).unwrap().value, [1, 2]);
            assert!(matches!(found.get(100).await, Err(Error::OutOfRange { .. })));
            assert!(matches!(Shared::<u64, _>::new_async(found.segment().clone(), 393), Err(Error::OutOfRange { .. })));
        });
    }
}
