//! Elements of a region by address: a use of a page that this rank does not hold fetches it.

use super::frames::{Borrow, Refused, Use};
use std::fmt;
use std::marker::PhantomData;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Elements of a region at addresses of this process, without a call for each use. The first read of a page that this rank does not
/// hold fetches it, and the first write of a page is noticed.
///
/// It borrows the space: it ends before the next lock or barrier of this rank, as views do. No view meets its range; other ranges in
/// place may.
pub struct InPlace<'a, T> {
    at: *mut T,
    len: usize,
    _borrow: Borrow<'a>,
    _values: PhantomData<&'a mut [T]>,
}

// SAFETY: safe code gets only addresses, and an entry in a table behind a mutex.
unsafe impl<T: Send> Send for InPlace<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for InPlace<'_, T> {}

impl<'a, T: FromBytes + IntoBytes> InPlace<'a, T> {
    /// Returns the elements of a range that is reserved for use in place.
    pub(crate) fn of(borrow: Borrow<'a>) -> Result<Self, Refused> {
        assert_eq!(borrow.of(), Use::InPlace, "the range is reserved for use in place");
        let (at, len) = borrow.values()?;
        Ok(Self { at, len, _borrow: borrow, _values: PhantomData })
    }

    /// Returns the number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a range has at least one element")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first element. Uses of it follow the rules of [`as_slice`](Self::as_slice).
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut T {
        self.at
    }

    /// Returns the elements.
    ///
    /// # Safety
    /// Nothing in this process writes the elements while the slice lives. (What other ranks write arrives only at locks and barriers,
    /// before which the slice ends.)
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the elements are inside the mapping, which the frames hold, and aligned. Any bytes are a `T`. The caller
        // promises that they stay.
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }

    /// Returns the elements, to be changed. The other ranks see the changes after the next barrier, or in the section of the lock that
    /// this one ends.
    ///
    /// # Safety
    /// Nothing else in this process uses the elements while the slice lives.
    #[must_use]
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as for `as_slice`, and the caller promises that this is the only slice.
        unsafe { slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<T> fmt::Debug for InPlace<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPlace").field("at", &self.at).field("len", &self.len).finish()
    }
}

/// Elements of a region that threads of a rank share, each read and written as a whole: relaxed atomic operations, without a call.
///
/// Elements of 1, 2, 4 or 8 bytes with the alignment of their size are read and written at once. Larger ones are read and written in
/// such parts: a thread that reads while another writes may see some of each.
#[derive(Debug)]
pub struct Cells<'a, T>(InPlace<'a, T>);

impl<'a, T: FromBytes + IntoBytes + Immutable> Cells<'a, T> {
    pub(crate) fn new(elements: InPlace<'a, T>) -> Self {
        Self(elements)
    }

    /// Returns the number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a range has at least one element")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns an element.
    ///
    /// # Panics
    /// The index is outside.
    #[must_use]
    pub fn get(&self, index: usize) -> T {
        let mut value = T::new_zeroed();
        let (at, bytes) = (self.at(index), value.as_mut_bytes());
        match align_of::<T>() {
            1 => copy_out(bytes, |n| atomic::<AtomicU8>(at, n).load(Ordering::Relaxed).to_ne_bytes()),
            2 => copy_out(bytes, |n| atomic::<AtomicU16>(at, n).load(Ordering::Relaxed).to_ne_bytes()),
            4 => copy_out(bytes, |n| atomic::<AtomicU32>(at, n).load(Ordering::Relaxed).to_ne_bytes()),
            _ => copy_out(bytes, |n| atomic::<AtomicU64>(at, n).load(Ordering::Relaxed).to_ne_bytes()),
        }
        value
    }

    /// Sets an element.
    ///
    /// # Panics
    /// The index is outside.
    pub fn set(&self, index: usize, value: T) {
        let (at, bytes) = (self.at(index), value.as_bytes());
        match align_of::<T>() {
            1 => copy_in(bytes, |n, part| atomic::<AtomicU8>(at, n).store(u8::from_ne_bytes(part), Ordering::Relaxed)),
            2 => {
                copy_in(bytes, |n, part| atomic::<AtomicU16>(at, n).store(u16::from_ne_bytes(part), Ordering::Relaxed))
            }
            4 => {
                copy_in(bytes, |n, part| atomic::<AtomicU32>(at, n).store(u32::from_ne_bytes(part), Ordering::Relaxed))
            }
            _ => {
                copy_in(bytes, |n, part| atomic::<AtomicU64>(at, n).store(u64::from_ne_bytes(part), Ordering::Relaxed))
            }
        }
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.0.len, "element {index} is one of the {} in the range", self.0.len);
        self.0.at.wrapping_add(index)
    }
}

/// Returns part `number` of an element as an atomic.
fn atomic<'a, A>(element: *mut impl Sized, number: usize) -> &'a A {
    let part = element.cast::<A>().wrapping_add(number);
    debug_assert!(part.is_aligned(), "parts have at most the alignment of the element");
    // SAFETY: an element has a multiple of its alignment of bytes, all of them mapped as long as its cells, and safe code uses them
    // only as these atomics: no view meets the range.
    unsafe { &*part }
}

fn copy_out<const N: usize>(bytes: &mut [u8], read: impl Fn(usize) -> [u8; N]) {
    let parts = bytes.as_chunks_mut::<N>().0.iter_mut().enumerate();
    parts.for_each(|(number, part)| *part = read(number));
}

fn copy_in<const N: usize>(bytes: &[u8], write: impl Fn(usize, [u8; N])) {
    bytes.as_chunks::<N>().0.iter().enumerate().for_each(|(number, part)| write(number, *part));
}
