//! Regions, and the calls that make views of them.

use crate::error::SpaceError;
use crate::space::{REGIONS_MAX, Record, Space};
use crate::sys::{Cells, InPlace, ReadView, Use, WriteView};
use ddss_dsm_core::{Access, Failure, Homes};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A typed array in a space. It is a handle: copies of it name the same bytes.
///
/// ```no_run
/// use ddss_dsm::{Homes, Space, SpaceOptions};
/// let client = ddss::Client::connect()?;
/// let mut space = Space::join(&client, "heat", SpaceOptions::new(4, 64 << 20))?;
/// let grid = space.region::<f64>("grid", 1 << 20, Homes::FirstTouch)?;
/// let (part, rank) = (grid.len() / 4, usize::from(space.rank()));
/// grid.write(&space, rank * part..(rank + 1) * part)?.fill(20.0);
/// space.barrier()?;
/// let all = grid.read(&space, ..)?;
/// println!("mean {}", all.iter().sum::<f64>() / all.len() as f64);
/// # drop(all);
/// # space.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region<T> {
    /// Number of the frames of its space.
    frames: u64,
    offset: u64,
    len: usize,
    _elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Region<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Region<T> {}

impl<T> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("offset", &self.offset).field("len", &self.len).finish()
    }
}

impl Space {
    /// Opens a region, and makes it if no rank has asked for it yet: so many elements, whose pages get their homes in this way.
    ///
    /// With other homes than those of the first touch every rank calls it, and it is a barrier: no page is touched before all
    /// know its home.
    ///
    /// # Errors
    /// The region exists with other elements or homes, there is no room for it, or the space has ended.
    ///
    /// # Panics
    /// The type has no bytes, or the alignment of more than a page.
    pub fn region<T: FromBytes + IntoBytes + Immutable>(
        &mut self,
        name: &str,
        count: usize,
        homes: Homes,
    ) -> Result<Region<T>, SpaceError> {
        assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096, "an element has bytes, and is aligned within a page");
        let ours = Record::new::<T>(name, count as u64, homes)?;
        if let Homes::Rank(rank) = homes
            && rank.index() >= self.ranks().into()
        {
            return Err(Failure::OutOfRange("rank", rank.index() as u64).into());
        }
        let (directory, room) = (self.directory(), self.len());
        let section = self.lock_directory()?;
        let records = directory.read(&section, ..)?;
        let found = ours.find_or_place(&records, room);
        drop(records);
        if let Ok((record, Some(index))) = &found {
            directory.write(&section, *index..*index + 1)?[0] = *record;
        }
        section.unlock()?;
        let (record, index) = found?;
        if let Some(index) = index {
            self.publish_region(index, &record);
        }
        // Another rank wrote it.
        if record.end() > room || !record.offset().is_multiple_of(4096) {
            return Err(SpaceError::OutOfRange { offset: record.offset(), end: record.end().into(), bytes: room });
        }
        self.note_region(&record)?;
        if homes != Homes::FirstTouch {
            self.assign_homes(record.offset()..record.end(), record.homes().unwrap_or(homes))?;
        }
        Ok(Region { frames: self.frames().number(), offset: record.offset(), len: count, _elements: PhantomData })
    }

    /// Returns all pages of the space as one region.
    pub(crate) fn whole(&self) -> Region<[u8; 4096]> {
        Region { frames: self.frames().number(), offset: 0, len: self.frames().pages(), _elements: PhantomData }
    }

    /// Returns the records of regions, in the last pages of the space.
    fn directory(&self) -> Region<Record> {
        Region { frames: self.frames().number(), offset: self.len(), len: REGIONS_MAX, _elements: PhantomData }
    }
}

impl<T: FromBytes + IntoBytes + Immutable> Region<T> {
    /// Returns the number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one element")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Views elements to read them in place. Pages that this rank does not hold are fetched together.
    ///
    /// A view borrows the space: it ends before the next lock or barrier of this rank.
    ///
    /// # Errors
    /// The range is outside the region, a view to write meets it, or the space has ended.
    pub fn read<'a>(&self, space: &'a Space, range: impl RangeBounds<usize>) -> Result<ReadView<'a, T>, SpaceError> {
        let bytes = self.bytes(space, range)?;
        let borrow = space.frames().borrow(bytes.clone(), Use::Read)?;
        space.open(&bytes, Access::Read)?;
        space.note_read(&bytes);
        borrow.read().map_err(|refused| space.explain(refused))
    }

    /// Views elements to write them in place. At the next release, bytes that have changed go to the home of their page.
    ///
    /// # Errors
    /// The range is outside the region, another view meets it, or the space has ended.
    pub fn write<'a>(&self, space: &'a Space, range: impl RangeBounds<usize>) -> Result<WriteView<'a, T>, SpaceError> {
        let bytes = self.bytes(space, range)?;
        let borrow = space.frames().borrow(bytes.clone(), Use::Write)?;
        space.open(&bytes, Access::Write)?;
        borrow.write().map_err(|refused| space.explain(refused))
    }

    /// Gives elements by address, for a rank that uses [page faults](crate::SpaceOptions::page_faults): slices, in unsafe code.
    /// Nothing is fetched before it is used.
    ///
    /// # Errors
    /// The range is outside the region, a view meets it, the rank has joined without page faults, or the space has ended.
    pub fn in_place<'a>(&self, space: &'a Space, range: impl RangeBounds<usize>) -> Result<InPlace<'a, T>, SpaceError> {
        let bytes = self.bytes(space, range)?;
        let borrow = space.frames().borrow(bytes, Use::InPlace)?;
        InPlace::of(borrow).map_err(|refused| space.explain(refused))
    }

    /// Gives elements that the threads of this rank read and write by page faults, each as a whole: a safe
    /// [`in_place`](Self::in_place).
    ///
    /// # Errors
    /// As [`in_place`](Self::in_place).
    pub fn cells<'a>(&self, space: &'a Space, range: impl RangeBounds<usize>) -> Result<Cells<'a, T>, SpaceError> {
        self.in_place(space, range).map(Cells::new)
    }

    /// Fetches pages that this rank does not hold, so that later views of them do not wait.
    ///
    /// # Errors
    /// The range is outside the region, or the space has ended.
    pub fn prefetch(&self, space: &Space, range: impl RangeBounds<usize>) -> Result<(), SpaceError> {
        space.open(&self.bytes(space, range)?, Access::Read)
    }

    /// Returns an element.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn get(&self, space: &Space, index: usize) -> Result<T, SpaceError>
    where
        T: Copy,
    {
        Ok(self.read(space, index..index.saturating_add(1))?[0])
    }

    /// Sets an element.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put(&self, space: &Space, index: usize, value: T) -> Result<(), SpaceError> {
        self.write(space, index..index.saturating_add(1))?[0] = value;
        Ok(())
    }

    /// Returns the bytes of elements in the space.
    fn bytes(&self, space: &Space, range: impl RangeBounds<usize>) -> Result<Range<u64>, SpaceError> {
        if self.frames != space.frames().number() {
            return Err(SpaceError::OtherSpace);
        }
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        if start >= end || end > self.len {
            return Err(SpaceError::OutOfRegion { start, end, len: self.len });
        }
        let at = |index: usize| self.offset + index as u64 * size_of::<T>() as u64;
        Ok(at(start)..at(end))
    }
}
