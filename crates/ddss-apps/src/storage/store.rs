//! The trait `PageStore`, through which an index reads and writes its pages.

use crate::Error;
use crate::page::{Page, PageId};

/// A page to write.
pub type Change = (PageId, Box<Page>);

/// A store of pages.
///
/// A read of a page is untorn: all its bytes are of one write. Pages are independent of each other, except in
/// [`commit`](Self::commit). Bytes 8 to 12 of a page belong to the store; it may keep a checksum there.
pub trait PageStore {
    /// Returns the number of pages.
    fn pages(&self) -> u32;

    /// Reads a page.
    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error>;

    /// Writes a page.
    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error>;

    /// Reads several pages, in the fewest round trips that the store needs.
    fn read_pages(&mut self, pages: &[PageId], into: &mut [Page]) -> Result<(), Error> {
        self.read_pages_while(pages, into, &mut || ())
    }

    /// Reads several pages and runs `meanwhile` once: while the pages are in flight, if the store can do that.
    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        meanwhile();
        pages.iter().zip(into).try_for_each(|(&page, into)| self.read_page(page, into))
    }

    /// Writes pages to which nothing points, and then the page that points to them: a reader that sees the last page
    /// sees all.
    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        fresh.iter().try_for_each(|(page, bytes)| self.write_page(*page, bytes))?;
        self.write_page(last.0, last.1)
    }

    /// Becomes the only writer, if the store can ensure that. Otherwise the store relies on its callers.
    fn begin_write(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Ends what [`begin_write`](Self::begin_write) began.
    fn end_write(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl<S: PageStore + ?Sized> PageStore for Box<S> {
    fn pages(&self) -> u32 {
        (**self).pages()
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        (**self).read_page(page, into)
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        (**self).write_page(page, bytes)
    }

    fn read_pages(&mut self, pages: &[PageId], into: &mut [Page]) -> Result<(), Error> {
        (**self).read_pages(pages, into)
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        (**self).read_pages_while(pages, into, meanwhile)
    }

    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        (**self).commit(fresh, last)
    }

    fn begin_write(&mut self) -> Result<(), Error> {
        (**self).begin_write()
    }

    fn end_write(&mut self) -> Result<(), Error> {
        (**self).end_write()
    }
}
