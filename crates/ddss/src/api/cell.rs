//! One value of a type in a segment.
//!
//! A cell holds any type that [`zerocopy`] knows to be plain bytes: derive [`FromBytes`], [`IntoBytes`] and
//! [`Immutable`]. All processes must agree on the layout. Use `#[repr(C)]`, and the integers of
//! [`zerocopy::little_endian`] in clusters with more than one architecture.

use super::segment::Segment;
use super::twin;
use crate::error::Error;
use crate::value::{Stamp, Versioned};
use ddss_core::{Failure, Model, Version};
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One value of type `T` at an offset of a segment: [`Segment::cell`].
///
/// `T` is plain bytes, as `zerocopy` knows them. All processes must agree on its layout.
///
/// ```
/// use ddss::Cell;
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
/// let load: Cell<Load> = client.segment("load").allocate(size_of::<Load>() as u64)?.cell(0)?;
/// load.put(&Load { requests: 0, queued: 0 })?;
/// load.update(|load| load.requests += 1)?;
/// let now = load.get()?;
/// println!("{} requests as of {}", now.requests, now.version());
/// # assert_eq!((now.requests, now.queued), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Cell<T> {
    segment: Segment,
    offset: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Cell<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), offset: self.offset, kind: PhantomData }
    }
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
        // Bytes and version of a read without a model may be of two puts.
        let whole = (self.location().model == Model::Null).then(|| self.with_model(Model::Write));
        let read = whole.as_ref().unwrap_or(self);
        loop {
            let mut value = T::new_zeroed();
            let stamp = read.get_by(time, offset, value.as_mut_bytes()).await?;
            let before = value.as_bytes().to_vec();
            change(&mut value);
            if value.as_bytes() == before {
                return Ok(Versioned { value, stamp });
            }
            let conditions = self.location().put_conditions(Some(stamp.version));
            match self.put_by(time, offset, value.as_bytes(), conditions).await {
                Err(error) if error.failure() == Some(Failure::VersionMismatch) => std::hint::spin_loop(),
                ended => return ended.map(|stamp| Versioned { value, stamp }),
            }
        }
    }
}

#[twin]
impl Segment {
    /// Views the bytes from `offset` on as one value; sends nothing. Segments record no types. A value that ends outside is
    /// refused with [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange).
    pub fn cell<T: FromBytes + IntoBytes + Immutable>(&self, offset: u64) -> Result<Cell<T>, Error> {
        self.location().check_value("view", offset, u128::from(offset) + size_of::<T>() as u128)?;
        Ok(Cell { segment: self.clone(), offset, kind: PhantomData })
    }
}

#[twin]
impl<T: FromBytes + IntoBytes + Immutable> Cell<T> {
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
    /// value. A change that leaves the value as it is writes nothing.
    ///
    /// All attempts share the timeout of one call. A call with an [indeterminate](Error::is_indeterminate) outcome
    /// may have taken effect and is not retried.
    pub async fn update(&self, change: impl FnMut(&mut T)) -> Result<Versioned<T>, Error> {
        self.segment.update_value(self.offset, change).await
    }
}
