//! Pages of a space.

use crate::limits::TWINS_MAX;

/// One page of a space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

impl PageId {
    /// Returns the offset of the page in an area of pages.
    #[must_use]
    pub const fn offset(self, page_bytes: u32) -> u64 {
        self.0 as u64 * page_bytes as u64
    }
}

/// Consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// First page.
    pub first: PageId,
    /// Number of pages.
    pub pages: u32,
}

impl PageRange {
    /// Returns a range of one page.
    #[must_use]
    pub const fn one(page: PageId) -> Self {
        Self { first: page, pages: 1 }
    }

    /// Returns the number of the page behind the last one.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.first.0 as u64 + self.pages as u64
    }

    /// Returns the pages.
    pub fn iter(self) -> impl Iterator<Item = PageId> {
        (self.first.0..self.first.0 + self.pages).map(PageId)
    }

    /// Returns true if the range has a page and lies in a space of this many pages.
    #[must_use]
    pub const fn is_within(self, pages: u32) -> bool {
        self.pages > 0 && self.end() <= pages as u64
    }

    /// Returns true if these can be the pages of an interval: sorted ranges without a common page in a space of this
    /// many pages, and no more pages than a rank has twins.
    pub(crate) fn are_of_interval(ranges: &[Self], pages: u32) -> bool {
        let count: u64 = ranges.iter().map(|range| u64::from(range.pages)).sum();
        ranges.iter().all(|range| range.is_within(pages))
            && ranges.is_sorted_by(|range, next| range.end() <= u64::from(next.first.0))
            && count <= u64::from(TWINS_MAX)
    }

    /// Appends sorted pages as ranges.
    pub(crate) fn of_sorted(pages: impl IntoIterator<Item = PageId>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for page in pages {
            match ranges.last_mut() {
                Some(last) if last.end() == u64::from(page.0) => last.pages += 1,
                _ => ranges.push(Self::one(page)),
            }
        }
        ranges
    }
}

/// Permission that the application has for a page of its view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Access {
    /// Neither reads nor writes: the page is not mapped.
    #[default]
    None,
    /// Reads.
    Read,
    /// Reads and writes.
    Write,
}
