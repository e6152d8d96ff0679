//! Typed views of asynchronous segments. The constructors have other names than the blocking ones, since both are
//! functions of the same type.

use super::client::AsyncClient;
use super::segment::AsyncSegment;
use crate::api::typed::{Shared, SharedSlice, Typed, check, size};
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::{Failure, Spec, Version};
use std::marker::PhantomData;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

impl<T: FromBytes + IntoBytes + Immutable> Shared<T, AsyncSegment> {
    /// Creates a view of an existing segment: [`Shared::new`].
    pub fn new_async(segment: AsyncSegment, offset: u64) -> Result<Self, Error> {
        check::<T>(segment.bytes(), segment.name(), offset, 1)?;
        Ok(Self { segment, offset, kind: PhantomData })
    }

    /// Allocates a segment that holds one value: [`Shared::allocate`].
    pub async fn allocate_async(client: &AsyncClient, name: &str, value: &T) -> Result<Self, Error> {
        let shared = Self::new_async(client.allocate(name, Spec::new(size::<T>())).await?, 0)?;
        shared.put(value).await?;
        Ok(shared)
    }

    /// Opens a segment by name and views its first bytes as the value: [`Shared::open`].
    pub async fn open_async(client: &AsyncClient, name: &str) -> Result<Self, Error> {
        Self::new_async(client.open(name).await?, 0)
    }

    /// Reads the value atomically.
    pub async fn get(&self) -> Result<Typed<T>, Error> {
        let mut value = T::new_zeroed();
        let stamp = self.segment.get_into(self.offset, value.as_mut_bytes()).await?;
        Ok(Typed { value, stamp })
    }

    /// Writes the value atomically.
    pub async fn put(&self, value: &T) -> Result<Stamp, Error> {
        self.segment.put(self.offset, value.as_bytes()).await
    }

    /// Writes the value if the segment still has that version.
    pub async fn put_if(&self, version: Version, value: &T) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.offset, value.as_bytes()).await
    }

    /// Reads, changes and writes the value, and retries until no other writer interfered. All attempts share the
    /// timeout of one call.
    pub async fn update(&self, mut change: impl FnMut(&mut T)) -> Result<Typed<T>, Error> {
        let deadline = self.segment.deadline();
        loop {
            let mut value = T::new_zeroed();
            let stamp = self.segment.get_by(Some(deadline), self.offset, value.as_mut_bytes()).await?;
            change(&mut value);
            let conditions = self.segment.location().put_conditions(Some(stamp.version), None);
            match self.segment.put_by(deadline, self.offset, value.as_bytes(), conditions).await {
                Err(Error::Failed { failure: Failure::VersionMismatch, .. }) => {}
                ended => return ended.map(|stamp| Typed { value, stamp }),
            }
        }
    }
}

impl<T: FromBytes + IntoBytes + Immutable> SharedSlice<T, AsyncSegment> {
    /// Creates a view of `count` values from `offset` on of an existing segment: [`SharedSlice::new`].
    pub fn new_async(segment: AsyncSegment, offset: u64, count: usize) -> Result<Self, Error> {
        check::<T>(segment.bytes(), segment.name(), offset, count)?;
        Ok(Self { segment, offset, count, kind: PhantomData })
    }

    /// Allocates a segment that holds `count` values, all bytes zero: [`SharedSlice::allocate`].
    pub async fn allocate_async(client: &AsyncClient, name: &str, count: usize) -> Result<Self, Error> {
        let bytes = size::<T>().saturating_mul(count as u64);
        Self::new_async(client.allocate(name, Spec::new(bytes)).await?, 0, count)
    }

    /// Opens a segment by name and views all of it as values: [`SharedSlice::open`].
    pub async fn open_async(client: &AsyncClient, name: &str) -> Result<Self, Error> {
        let segment = client.open(name).await?;
        let count = segment.bytes().checked_div(size::<T>()).unwrap_or(0);
        Self::new_async(segment, 0, usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn at(&self, action: &'static str, index: usize, count: usize) -> Result<u64, Error> {
        // A sum that overflows is beyond every slice.
        self.with_timeout(action, &(index..index.saturating_add(count)))
    }

    fn with_timeout(&self, action: &'static str, range: &Range<usize>) -> Result<u64, Error> {
        self.place((self.segment.name(), self.segment.bytes()), action, range)
    }

    /// Reads one value.
    pub async fn get(&self, index: usize) -> Result<Typed<T>, Error> {
        let place = self.at("get", index, 1)?;
        let mut value = T::new_zeroed();
        let stamp = self.segment.get_into(place, value.as_mut_bytes()).await?;
        Ok(Typed { value, stamp })
    }

    /// Reads a range of values, all of one version.
    pub async fn get_range(&self, range: Range<usize>) -> Result<Typed<Vec<T>>, Error> {
        self.with_timeout("get", &range)?;
        let mut value: Vec<T> = std::iter::repeat_with(T::new_zeroed).take(range.len()).collect();
        let stamp = self.get_into(range.start, &mut value).await?;
        Ok(Typed { value, stamp })
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

    /// Writes consecutive values as one version.
    pub async fn put_range(&self, index: usize, values: &[T]) -> Result<Stamp, Error> {
        self.segment.put(self.at("put", index, values.len())?, values.as_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on};

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
            assert_eq!(*found.get(0).await.unwrap(), 3);
            assert_eq!(SharedSlice::<u32>::open(&threads, "many").unwrap().get_range(98..100).unwrap().value, [1, 2]);
            assert!(matches!(found.get(100).await, Err(Error::OutOfRange { .. })));
            assert!(matches!(Shared::<u64, _>::new_async(found.segment().clone(), 393), Err(Error::OutOfRange { .. })));
        });
    }
}
