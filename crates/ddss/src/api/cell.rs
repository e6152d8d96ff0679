//! One value of a type in a segment, and the gets and puts of encoded values that rows make too.

use super::segment::Segment;
use super::twin;
use crate::deadline::Deadline;
use crate::encoding::{Decoded, Encoding, Room, Seal};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::location::SegmentLocation;
use crate::value::{Stamp, Versioned};
use ddss_core::limits::VALUE_BYTES_MAX;
use ddss_core::{BadArgument, Failure, Model, Version};
use std::any::type_name;
use std::borrow::{Borrow, Cow};
use std::marker::PhantomData;

/// One value of type `T` at an offset of a segment: [`Segment::cell`].
///
/// `T` has an [`Encoding`](crate::Encoding). All processes must agree on its layout.
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
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
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
pub struct Cell<T: ?Sized> {
    segment: Segment,
    offset: u64,
    kind: PhantomData<fn(&T)>,
}

impl<T: ?Sized> Clone for Cell<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), offset: self.offset, kind: PhantomData }
    }
}

#[twin]
impl Segment {
    /// Reads the value at an offset that has `room` bytes; without a deadline each read has the usual one.
    #[inline]
    pub(crate) async fn get_value<T: Encoding + ?Sized>(
        &self,
        time: Option<Deadline>,
        offset: u64,
        room: usize,
    ) -> Result<Versioned<T::Output>, Error> {
        let whole = T::LEN.unwrap_or(room);
        let mut len = T::FIRST_READ.map_or(whole, |first| first.min(whole));
        // The bytes of two puts may decode as a third value.
        let is_mixed = T::LEN.is_none() && self.location().model == Model::Null;
        let atomic = is_mixed.then(|| self.with_model(Model::Write));
        let read = atomic.as_ref().unwrap_or(self);
        loop {
            let mut buffer = T::buffer(len, Seal);
            let bytes = T::bytes_mut(&mut buffer, Seal);
            let stamp = match time {
                None => read.get_into(offset, bytes).await?,
                Some(time) => read.get_by(time, offset, bytes).await?,
            };
            match T::decode(buffer, Seal) {
                Decoded::Value(value) => return Ok(Versioned { value, stamp }),
                // The next read is longer, so this ends.
                Decoded::Longer(wanted) if wanted <= room as u64 => len = wanted as usize,
                Decoded::Longer(_) => return Err(self.no_value::<T>("not the length of a value")),
                Decoded::Invalid(found) => return Err(self.no_value::<T>(&found)),
            }
        }
    }

    /// Reads a value of fixed length in place by one read; `None` if the daemon has to serve the get, or `read` did not succeed. Inlined
    /// into the caller, whose value lies where it wants it.
    #[inline(always)]
    pub(crate) async fn value_in_place<T: Encoding + ?Sized>(
        &self,
        read: impl FnOnce(&SegmentLocation, &mut [u8]) -> Option<Stamp>,
    ) -> Option<Versioned<T::Output>> {
        let len = T::LEN.filter(|_| T::FIRST_READ.is_none())?;
        let mut buffer = T::buffer(len, Seal);
        let stamp = read(self.location(), T::bytes_mut(&mut buffer, Seal))?;
        self.spend_budget(1, len).await;
        match T::decode(buffer, Seal) {
            Decoded::Value(value) => Some(Versioned { value, stamp }),
            Decoded::Longer(_) | Decoded::Invalid(_) => None,
        }
    }

    /// Encodes a value for `room` bytes.
    #[inline]
    pub(crate) fn encoded<'a, T: Encoding + ?Sized>(
        &self,
        value: &'a T::Input,
        room: usize,
    ) -> Result<Cow<'a, [u8]>, Error> {
        T::encode("bytes of the value", value, Room::UpTo(room), Seal).map_err(Error::argument("put", self.name()))
    }

    #[cold]
    fn no_value<T: Encoding + ?Sized>(&self, found: &str) -> Error {
        let range = format!("a value of {}", type_name::<T::Output>());
        let refused = BadArgument::new("content", found, range, Failure::Malformed);
        Reason::WrongShape { action: "decode", target: self.name().to_owned(), refused }.into()
    }

    /// Reads, changes and writes the value at an offset, until no put of its segment or row came between.
    pub(crate) async fn update_value<T: Encoding + ?Sized>(
        &self,
        offset: u64,
        room: usize,
        mut change: impl FnMut(&mut T::Output),
    ) -> Result<Versioned<T::Output>, Error> {
        let time = self.time().started();
        // Bytes and version of a read without a model may be of two puts.
        let whole = (self.location().model == Model::Null).then(|| self.with_model(Model::Write));
        let read = whole.as_ref().unwrap_or(self);
        loop {
            let Versioned { mut value, stamp } = read.get_value::<T>(Some(time), offset, room).await?;
            // A value of an earlier release may encode as more bytes than there are; then it differs.
            let before = self.encoded::<T>(value.borrow(), room).map(Cow::into_owned).unwrap_or_default();
            change(&mut value);
            let bytes = self.encoded::<T>(value.borrow(), room)?;
            if *bytes == before {
                drop(bytes);
                return Ok(Versioned { value, stamp });
            }
            // Such a value does not say where it ends: the end of the old one would stay behind it.
            if T::FIRST_READ.is_none() && bytes.len() < before.len() {
                let refused = BadArgument::new("bytes of the value", bytes.len(), before.len(), Failure::BadSize);
                return Err(Error::bad_argument("update", self.name(), refused));
            }
            let conditions = self.location().put_conditions(Some(stamp.version));
            let put = self.put_by(time, offset, &bytes, conditions).await;
            drop(bytes);
            match put {
                Err(error) if error.failure() == Some(Failure::VersionMismatch) => std::hint::spin_loop(),
                ended => return ended.map(|stamp| Versioned { value, stamp }),
            }
        }
    }

    /// Views the bytes from `offset` on as one value; sends nothing. Segments record no types. A value of a type whose
    /// length is not fixed has all bytes up to the end. A value that ends outside is refused with
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange).
    pub fn cell<T: Encoding + ?Sized>(&self, offset: u64) -> Result<Cell<T>, Error> {
        let end = match (T::LEN, T::FIRST_READ) {
            (Some(len), _) => u128::from(offset) + len as u128,
            (None, Some(_)) => offset.into(),
            (None, None) => u128::from(self.len().max(offset)),
        };
        self.location().check_value("view", offset, end)?;
        Ok(Cell { segment: self.clone(), offset, kind: PhantomData })
    }
}

#[twin]
impl<T: Encoding + ?Sized> Cell<T> {
    #[inline]
    fn room(&self) -> usize {
        T::LEN.unwrap_or_else(|| (self.segment.len() - self.offset).min(VALUE_BYTES_MAX as u64) as usize)
    }

    /// Reads the value atomically.
    #[inline(always)]
    pub async fn get(&self) -> Result<Versioned<T::Output>, Error> {
        let at = self.offset;
        match self.segment.value_in_place::<T>(|location, into| location.read_locally(at, into)).await {
            Some(value) => Ok(value),
            None => self.get_otherwise().await,
        }
    }

    /// Reads a value that cannot be read in place at once.
    #[inline(never)]
    async fn get_otherwise(&self) -> Result<Versioned<T::Output>, Error> {
        // A read in place needs no deadline, and a value that takes two reads has one.
        let time = T::FIRST_READ.map(|_| self.segment.time().started());
        self.segment.get_value::<T>(time, self.offset, self.room()).await
    }

    /// Writes the value atomically.
    pub async fn put(&self, value: &T::Input) -> Result<Stamp, Error> {
        self.segment.put(self.offset, &self.segment.encoded::<T>(value, self.room())?).await
    }

    /// Writes the value if the segment still has that version: [`Segment::put_if`].
    pub async fn put_if(&self, version: Version, value: &T::Input) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.offset, &self.segment.encoded::<T>(value, self.room())?).await
    }

    /// Reads, changes and writes the value, and retries until no other writer interfered. Returns the written
    /// value. A change that leaves the value as it is writes nothing. Bytes may not become fewer: use
    /// [`put_if`](Self::put_if), which writes their beginning.
    ///
    /// All attempts share the timeout of one call. A call with an [indeterminate](Error::is_indeterminate) outcome
    /// may have taken effect and is not retried.
    pub async fn update(&self, change: impl FnMut(&mut T::Output)) -> Result<Versioned<T::Output>, Error> {
        self.segment.update_value::<T>(self.offset, self.room(), change).await
    }
}
