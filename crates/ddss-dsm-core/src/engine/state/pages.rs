//! Pages of the space, as this rank sees them.

use super::hot_pages::Writers;
use crate::model::{Access, Config, Homes, PageId, PageRange, Rank, RankSet, VectorTime};
use std::collections::BTreeSet;

/// State of a page that this rank has touched or has a notice for.
#[derive(Clone, Debug, Default)]
struct Page {
    home: Option<Rank>,
    access: Access,
    /// Stamps that a copy of the page must have.
    needed: VectorTime,
    /// Diff messages without an acknowledgement.
    unacknowledged: u32,
    /// Last flush that wrote the page one-sided.
    written: u64,
    /// Landing slot, while the page is in flight.
    slot: Option<u16>,
    is_in_flight: bool,
    fetches: u32,
    writers: Writers,
}

/// All pages.
#[derive(Clone, Debug)]
pub(crate) struct PageTable {
    ranks: usize,
    pages: Vec<Option<Box<Page>>>,
    /// Pages that are mapped.
    mapped: BTreeSet<PageId>,
    /// Regions whose homes are not assigned by the first touch.
    homes: Vec<(PageRange, Homes)>,
}

impl PageTable {
    pub(crate) fn new(config: &Config) -> Self {
        let pages = std::iter::repeat_with(|| None).take(config.pages as usize).collect();
        Self { ranks: config.ranks, pages, mapped: BTreeSet::new(), homes: Vec::new() }
    }

    pub(crate) fn assign_homes(&mut self, range: PageRange, homes: Homes) {
        // A program may open a region again and again.
        match self.homes.iter_mut().find(|(known, _)| *known == range) {
            Some(known) => known.1 = homes,
            None => self.homes.push((range, homes)),
        }
    }

    fn get(&self, page: PageId) -> Option<&Page> {
        self.pages[page.0 as usize].as_deref()
    }

    fn entry(&mut self, page: PageId) -> &mut Page {
        self.pages[page.0 as usize].get_or_insert_default()
    }

    /// Returns the rank with the home word of a page.
    pub(crate) fn default_home(&self, page: PageId) -> Rank {
        Rank::manager_of(page.0, self.ranks)
    }

    /// Returns the offset of the home word of a page at its default home.
    pub(crate) fn word_offset(&self, page: PageId) -> u64 {
        u64::from(page.0) / self.ranks as u64 * crate::limits::WORD_BYTES
    }

    /// Returns the home of a page, if this rank knows it.
    pub(crate) fn home(&self, page: PageId) -> Option<Rank> {
        if let Some(home) = self.get(page).and_then(|page| page.home) {
            return Some(home);
        }
        let within = |range: &PageRange| range.first <= page && u64::from(page.0) < range.end();
        let (range, homes) = self.homes.iter().rev().find(|(range, _)| within(range))?;
        match *homes {
            Homes::FirstTouch => None,
            Homes::Blocks(pages) => Some(Rank::manager_of((page.0 - range.first.0) / pages.max(1), self.ranks)),
            Homes::Rank(rank) => Some(rank),
        }
    }

    pub(crate) fn set_home(&mut self, page: PageId, home: Rank) {
        self.entry(page).home = Some(home);
    }

    pub(crate) fn access(&self, page: PageId) -> Access {
        self.get(page).map_or(Access::None, |page| page.access)
    }

    pub(crate) fn set_access(&mut self, page: PageId, access: Access) {
        self.entry(page).access = access;
        if access == Access::None {
            self.mapped.remove(&page);
        } else {
            self.mapped.insert(page);
        }
    }

    /// Returns the pages that the application may read.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = PageId> {
        self.mapped.iter().copied()
    }

    pub(crate) fn needed(&self, page: PageId) -> VectorTime {
        self.get(page).map_or_else(VectorTime::default, |page| page.needed)
    }

    pub(crate) fn need(&mut self, page: PageId, rank: Rank, interval: u32) {
        self.entry(page).needed.raise(rank, interval);
    }

    pub(crate) fn has_unacknowledged(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|page| page.unacknowledged > 0)
    }

    /// Returns the last flush that wrote the page one-sided.
    pub(crate) fn written(&self, page: PageId) -> u64 {
        self.get(page).map_or(0, |page| page.written)
    }

    pub(crate) fn set_written(&mut self, page: PageId, flush: u64) {
        self.entry(page).written = flush;
    }

    pub(crate) fn add_unacknowledged(&mut self, page: PageId) {
        self.entry(page).unacknowledged += 1;
    }

    pub(crate) fn remove_unacknowledged(&mut self, page: PageId) {
        self.entry(page).unacknowledged -= 1;
    }

    /// Marks a page as in flight. Returns false if it was.
    pub(crate) fn start_fetch(&mut self, page: PageId) -> bool {
        !std::mem::replace(&mut self.entry(page).is_in_flight, true)
    }

    pub(crate) fn slot(&self, page: PageId) -> Option<u16> {
        self.get(page).and_then(|page| page.slot)
    }

    pub(crate) fn set_slot(&mut self, page: PageId, slot: u16) {
        self.entry(page).slot = Some(slot);
    }

    pub(crate) fn finish_fetch(&mut self, page: PageId) {
        let page = self.entry(page);
        (page.slot, page.is_in_flight) = (None, false);
    }

    /// Returns the number of pages that the application may read.
    pub(crate) fn mapped_count(&self) -> usize {
        self.mapped.len()
    }

    /// Counts a fetch of a page. Returns how many there were.
    pub(crate) fn count_fetch(&mut self, page: PageId) -> u32 {
        let page = self.entry(page);
        page.fetches = page.fetches.saturating_add(1);
        page.fetches
    }

    /// Records a writer of a page behind a barrier, as [`Writers::add`] does.
    pub(crate) fn add_writer(&mut self, page: PageId, rank: Rank, barrier: u64) -> Option<(u32, RankSet)> {
        self.entry(page).writers.add(rank, barrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LogShape, Ordering, Protocol, Stamps, Tuning};

    #[test]
    fn homes_of_a_region_are_kept_once() {
        // If this broke, each opening of a region would make every first touch of a page slower.
        let mut table = PageTable::new(&Config {
            rank: Rank::ZERO,
            ranks: 3,
            pages: 8,
            page_bytes: 32,
            message_bytes: 128,
            protocol: Protocol::NewGenDsm,
            ordering: Ordering::Stamped,
            stamps: Stamps::PerHome,
            log: LogShape::default(),
            tuning: Tuning::default(),
        });
        let region = PageRange { first: PageId(2), pages: 4 };
        for pages in [2, 1] {
            table.assign_homes(region, Homes::Blocks(pages));
        }
        assert_eq!(table.homes.len(), 1);
        assert_eq!(table.home(PageId(3)), Rank::new(1), "the last one counts");
        assert_eq!(table.home(PageId(6)), None);
    }
}
