//! Cache frames of a rank, and views of the pages that are open.
//!
//! Only the service thread opens and closes pages, also those that are used by page faults: these have a mapping of their own. It closes
//! them in calls that take the whole space (`&mut Space`), and views borrow the space: so no page is closed, fetched or compared with its
//! twin while a view of it lives. A call that gives up may still do that later: it ends the frames first, so that no view is made after it.

use super::application_view::{ApplicationView, ViewAddress};
use super::memory_file::MemoryFile;
use ddss_dsm_core::Access;
use memmap2::MmapRaw;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Number of the next frames.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Views of a rank that live at the same time at most.
const VIEWS_MAX: usize = 4096;

/// Reason why there is no view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// A view of this range lives, and one of the two writes.
    Borrowed(Range<u64>),
    /// Too many views live.
    Full,
    /// A page of the range is not open.
    Closed,
    /// The rank has joined without page faults.
    NoFaults,
}

/// Use of a borrowed range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    Write,
    /// By address. Its users agree among themselves.
    InPlace,
}

/// A range with a view.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Borrowed {
    bytes: Range<u64>,
    of: Use,
}

/// Cache frames of all pages, which the service thread fills and the application views.
#[derive(Debug)]
pub(crate) struct Frames {
    map: Arc<MmapRaw>,
    /// Place of the first frame in the mapping.
    base: usize,
    bytes: u64,
    page_bytes: u64,
    access: Box<[AtomicU8]>,
    /// Mapping for use by page faults.
    view: Option<ApplicationView>,
    has_ended: AtomicBool,
    /// Number of these frames in this process.
    number: u64,
    borrowed: Mutex<Vec<Borrowed>>,
}

impl Frames {
    /// Creates the frames of so many closed pages, from `base` on in the file.
    ///
    /// # Panics
    /// The frames are outside the file.
    pub(crate) fn new(file: &MemoryFile, base: u64, page_bytes: u32, pages: u32) -> Self {
        let (map, page_bytes) = (file.map(), u64::from(page_bytes));
        let bytes = page_bytes * u64::from(pages);
        assert!(base.checked_add(bytes).is_some_and(|end| end <= map.len() as u64), "the frames are in the file");
        let access = (0..pages).map(|_| AtomicU8::new(0)).collect();
        let (has_ended, borrowed) = (AtomicBool::new(false), Mutex::default());
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { map, base: base as usize, bytes, page_bytes, access, view: None, has_ended, number, borrowed }
    }

    /// Maps the frames a second time, for use by page faults.
    pub(crate) fn map_view(&mut self, file: &MemoryFile, address: ViewAddress) -> io::Result<()> {
        let range = self.base as u64..self.base as u64 + self.bytes;
        self.view = Some(ApplicationView::map(file, range, self.page_bytes, address)?);
        Ok(())
    }

    /// Returns the mapping for use by page faults.
    pub(crate) fn view(&self) -> Option<&ApplicationView> {
        self.view.as_ref()
    }

    /// Returns the number of these frames, which no others of this process have.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.access.len()
    }

    /// Sets how a page may be used. Only the service thread calls it.
    pub(crate) fn set_access(&self, page: u32, access: Access) {
        if let Some(view) = &self.view {
            view.protect(page, access);
        }
        self.access[page as usize].store(access as u8, Ordering::Release);
    }

    /// Returns how a page may be used.
    pub(crate) fn access(&self, page: u32) -> Access {
        match self.access[page as usize].load(Ordering::Acquire) {
            access if access == Access::Write as u8 => Access::Write,
            access if access == Access::Read as u8 => Access::Read,
            _ => Access::None,
        }
    }

    /// Closes the frames to new views: the space has ended.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Returns true if a range may be used in this way now.
    pub(crate) fn are_open(&self, bytes: &Range<u64>, access: Access) -> bool {
        let pages = bytes.start / self.page_bytes..bytes.end.div_ceil(self.page_bytes);
        let pages = self.access.get(pages.start as usize..pages.end as usize);
        let is_open = |page: &AtomicU8| page.load(Ordering::Acquire) >= access as u8;
        !self.has_ended.load(Ordering::Acquire) && pages.is_some_and(|pages| pages.iter().all(is_open))
    }

    /// Reserves a range for a view, before its pages are opened.
    pub(crate) fn borrow(&self, bytes: Range<u64>, of: Use) -> Result<Borrow<'_>, Refused> {
        let mut borrowed = self.lock();
        let meets = |other: &&Borrowed| {
            let excludes = of == Use::Write || of != other.of;
            excludes && other.bytes.start < bytes.end && bytes.start < other.bytes.end
        };
        if let Some(other) = borrowed.iter().find(meets) {
            return Err(Refused::Borrowed(other.bytes.clone()));
        }
        if borrowed.len() >= VIEWS_MAX {
            return Err(Refused::Full);
        }
        borrowed.push(Borrowed { bytes: bytes.clone(), of });
        Ok(Borrow { frames: self, borrowed: Borrowed { bytes, of } })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Borrowed>> {
        self.borrowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reserved range. Dropping it frees the range.
#[derive(Debug)]
pub(crate) struct Borrow<'a> {
    frames: &'a Frames,
    borrowed: Borrowed,
}

impl<'a> Borrow<'a> {
    /// Returns the pointer to values in the range, whose pages have to be open unless it is used in place.
    pub(super) fn values<T>(&self) -> Result<(*mut T, usize), Refused> {
        let (bytes, frames) = (&self.borrowed.bytes, self.frames);
        let is_open = match self.borrowed.of {
            Use::Read => frames.are_open(bytes, Access::Read),
            Use::Write => frames.are_open(bytes, Access::Write),
            // Their users wait where a page is closed.
            Use::InPlace => !frames.has_ended.load(Ordering::Acquire),
        };
        if !is_open || bytes.end > frames.bytes {
            return Err(Refused::Closed);
        }
        let first = match (self.borrowed.of, &frames.view) {
            (Use::InPlace, Some(view)) => view.base().cast(),
            (Use::InPlace, None) => return Err(Refused::NoFaults),
            _ => frames.map.as_mut_ptr().wrapping_add(frames.base),
        };
        let at = first.wrapping_add(bytes.start as usize).cast::<T>();
        assert!(at.is_aligned(), "regions begin at pages, and an element has at most the alignment of a page");
        Ok((at, (bytes.end - bytes.start) as usize / size_of::<T>()))
    }

    /// Returns the use that the range is reserved for.
    pub(super) fn of(&self) -> Use {
        self.borrowed.of
    }

    /// Returns a view to read. The pages of the range have to be open.
    pub(crate) fn read<T: FromBytes + Immutable>(self) -> Result<ReadView<'a, T>, Refused> {
        let (at, len) = self.values()?;
        Ok(ReadView { at, len, _borrow: self, _values: PhantomData })
    }

    /// Returns a view to write. The pages of the range have to be open.
    pub(crate) fn write<T: FromBytes + IntoBytes>(self) -> Result<WriteView<'a, T>, Refused> {
        assert_eq!(self.borrowed.of, Use::Write, "the range is reserved for writes");
        let (at, len) = self.values()?;
        Ok(WriteView { at, len, _borrow: self, _values: PhantomData })
    }
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        let mut borrowed = self.frames.lock();
        if let Some(index) = borrowed.iter().position(|other| *other == self.borrowed) {
            borrowed.swap_remove(index);
        }
    }
}

/// Elements of a region, to be read in place: a slice.
#[must_use = "a view that nobody reads only fetches its pages"]
pub struct ReadView<'a, T> {
    at: *const T,
    len: usize,
    _borrow: Borrow<'a>,
    _values: PhantomData<&'a [T]>,
}

/// Elements of a region, to be written in place: a slice. The other ranks see the changes after the next barrier, or in the
/// section of the lock that this one ends.
#[must_use = "a view that nobody writes changes nothing"]
pub struct WriteView<'a, T> {
    at: *mut T,
    len: usize,
    _borrow: Borrow<'a>,
    _values: PhantomData<&'a mut [T]>,
}

// SAFETY: a view is a shared slice and an entry in a table behind a mutex.
unsafe impl<T: Sync> Send for ReadView<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ReadView<'_, T> {}
// SAFETY: a view is an exclusive slice and an entry in a table behind a mutex.
unsafe impl<T: Send> Send for WriteView<'_, T> {}
// SAFETY: as above; a shared view gives shared slices.
unsafe impl<T: Sync> Sync for WriteView<'_, T> {}

impl<T> Deref for ReadView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the elements are inside the mapping, which the frames hold, and aligned (`values`). Any bytes are a `T`
        // (`read`). No view writes them, since the range is reserved; the service thread writes no open page, and these pages
        // stay open while the view borrows the space.
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T> Deref for WriteView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for a view to read.
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T> DerefMut for WriteView<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for a view to read, and this is the only view of the range. The service thread reads a page that is open
        // for writes only when an interval ends: in a call that takes the whole space.
        unsafe { slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for WriteView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(file: &MemoryFile) -> Frames {
        let frames = Frames::new(file, 4096, 4096, 2);
        frames.set_access(0, Access::Write);
        frames.set_access(1, Access::Read);
        frames
    }

    #[test]
    fn views_of_one_range_exclude_each_other_unless_all_read() {
        // If this broke, safe code would have two mutable slices of the same bytes.
        let file = MemoryFile::create("test", 3 * 4096).unwrap();
        let frames = frames(&file);
        let mut writes = frames.borrow(8..16, Use::Write).unwrap().write::<u32>().unwrap();
        writes.copy_from_slice(&[7, 8]);
        assert_eq!(frames.borrow(12..20, Use::Read).unwrap_err(), Refused::Borrowed(8..16));
        assert_eq!(frames.borrow(0..9, Use::Write).unwrap_err(), Refused::Borrowed(8..16));
        let beside = frames.borrow(16..24, Use::Read).unwrap().read::<u32>().unwrap();
        let again = frames.borrow(16..24, Use::Read).unwrap().read::<u32>().unwrap();
        assert_eq!(&*beside, &*again);
        drop(again);
        // One view of the range is left.
        assert_eq!(frames.borrow(20..24, Use::Write).unwrap_err(), Refused::Borrowed(16..24));
        drop((writes, beside));
        assert_eq!(&*frames.borrow(8..24, Use::Read).unwrap().read::<u32>().unwrap(), &[7, 8, 0, 0]);
    }

    #[test]
    fn views_of_closed_pages_and_ended_spaces_are_refused() {
        // If this broke, a program would read bytes that were never fetched, or write bytes that are never sent.
        let file = MemoryFile::create("test", 3 * 4096).unwrap();
        let frames = frames(&file);
        assert_eq!(frames.borrow(4000..4104, Use::Write).unwrap().write::<u8>().unwrap_err(), Refused::Closed);
        assert_eq!(frames.borrow(8000..8200, Use::Read).unwrap().read::<u8>().unwrap_err(), Refused::Closed);
        assert_eq!(frames.borrow(4000..8192, Use::Read).unwrap().read::<u8>().unwrap().len(), 4192);
        frames.end();
        assert_eq!(frames.borrow(0..8, Use::Read).unwrap().read::<u8>().unwrap_err(), Refused::Closed);
        let views: Vec<_> = (0..VIEWS_MAX).map(|_| frames.borrow(0..8, Use::Read).unwrap()).collect();
        assert_eq!(frames.borrow(0..8, Use::Read).unwrap_err(), Refused::Full);
        drop(views);
        assert!(frames.borrow(0..8, Use::Write).is_ok());
    }
}
