//! Page store wrapper that measures the time of reads.

use std::time::{Duration, Instant};

use super::store::{Change, PageStore};
use crate::Error;
use crate::page::{Page, PageId};

/// A store whose reads are timed.
#[derive(Debug)]
pub struct Timed<S> {
    store: S,
    took: Duration,
    pages: u64,
}

impl<S> Timed<S> {
    /// Wraps a store.
    pub fn new(store: S) -> Timed<S> {
        Timed { store, took: Duration::ZERO, pages: 0 }
    }

    /// Returns the time and the number of pages of all reads since the last call.
    pub fn take(&mut self) -> (Duration, u64) {
        (std::mem::take(&mut self.took), std::mem::take(&mut self.pages))
    }

    fn count<T>(&mut self, pages: usize, read: impl FnOnce(&mut S) -> T) -> T {
        let begin = Instant::now();
        let done = read(&mut self.store);
        self.took += begin.elapsed();
        self.pages += pages as u64;
        done
    }
}

impl<S: PageStore> PageStore for Timed<S> {
    fn pages(&self) -> u32 {
        self.store.pages()
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        self.count(1, |store| store.read_page(page, into))
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        self.store.write_page(page, bytes)
    }

    fn read_pages(&mut self, pages: &[PageId], into: &mut [Page]) -> Result<(), Error> {
        self.count(pages.len(), |store| store.read_pages(pages, into))
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut worked = Duration::ZERO;
        let mut timed = || {
            let begin = Instant::now();
            meanwhile();
            worked = begin.elapsed();
        };
        let read = self.count(pages.len(), |store| store.read_pages_while(pages, into, &mut timed));
        self.took -= worked;
        read
    }

    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        self.store.commit(fresh, last)
    }

    fn begin_write(&mut self) -> Result<(), Error> {
        self.store.begin_write()
    }

    fn end_write(&mut self) -> Result<(), Error> {
        self.store.end_write()
    }
}
