//! Page store in one segment.
//!
//! The whole tree has one version, not one for each page: a segment for each page would need an open and a window each,
//! and no commit could span two of them. In one segment, up to 16 pages are read in one call and of one version, a
//! commit of up to 16 pages is one atomic put, and the writers' lock is that of the segment. The price: a reader on
//! another node repeats a read if another page was committed during it.
//!
//! The model is `Write`: a get takes the newest commit and no lock, so no reader waits for a writer.

use ddss::{Client, LockGuard, LockOptions, Model, Placement, Segment, Spec};

use super::store::{Change, PageStore};
use crate::Error;
use crate::page::{PAGE_BYTES, Page, PageId};

/// Pages in a DDSS segment.
#[derive(Debug)]
pub struct DdssPages {
    segment: Segment,
    options: LockOptions,
    /// The writers' lock, while this is the writer. Puts under it are refused after it was lost.
    held: Option<LockGuard<Segment>>,
}

impl DdssPages {
    /// Allocates a segment of `pages` pages, at home on the client's node.
    pub fn create(client: &Client, name: &str, pages: u32) -> Result<DdssPages, Error> {
        DdssPages::create_at(client, name, pages, Placement::Local)
    }

    /// Allocates a segment with another home.
    pub fn create_at(client: &Client, name: &str, pages: u32, placement: Placement) -> Result<DdssPages, Error> {
        let spec = Spec::new(PageId(pages).offset()).model(Model::Write).placement(placement);
        Ok(DdssPages::of(client.segment(name).allocate(spec)?))
    }

    /// Opens an existing store by its name.
    pub fn open(client: &Client, name: &str) -> Result<DdssPages, Error> {
        Ok(DdssPages::of(client.segment(name).open()?))
    }

    fn of(segment: Segment) -> DdssPages {
        DdssPages { segment, options: LockOptions::new(), held: None }
    }

    /// Sets the options of the writers' lock: its lease, and whether to wait for it.
    #[must_use]
    pub fn lock_options(mut self, options: LockOptions) -> DdssPages {
        self.options = options;
        self
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl PageStore for DdssPages {
    fn pages(&self) -> u32 {
        u32::try_from(self.segment.len() / PAGE_BYTES as u64).unwrap_or(u32::MAX)
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        self.segment.get_into(page.offset(), into)?;
        Ok(())
    }

    fn read_pages(&mut self, pages: &[PageId], into: &mut [Page]) -> Result<(), Error> {
        for (pages, into) in pages.chunks(Segment::RANGES_MAX).zip(into.chunks_mut(Segment::RANGES_MAX)) {
            self.segment.get_many_into(&mut parts(pages, into))?;
        }
        Ok(())
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let (first, others) = pages.split_at(pages.len().min(Segment::RANGES_MAX));
        let (into, others_into) = into.split_at_mut(first.len());
        let (got, ()) = self.segment.get_many_into_while(&mut parts(first, into), meanwhile);
        got?;
        self.read_pages(others, others_into)
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        match &self.held {
            Some(held) => held.put(page.offset(), bytes)?,
            None => self.segment.put(page.offset(), bytes)?,
        };
        Ok(())
    }

    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        // Pages that fit are put together with the last page, as one version; the others have to be written before.
        let before = fresh.len().saturating_sub(Segment::RANGES_MAX - 1).next_multiple_of(Segment::RANGES_MAX);
        let (before, with) = fresh.split_at(before.min(fresh.len()));
        for some in before.chunks(Segment::RANGES_MAX) {
            self.put_many(&some.iter().map(part).collect::<Vec<_>>())?;
        }
        let last = std::iter::once((last.0.offset(), &last.1[..]));
        self.put_many(&with.iter().map(part).chain(last).collect::<Vec<_>>())
    }

    fn begin_write(&mut self) -> Result<(), Error> {
        // A second session of the same store would wait for the first one.
        debug_assert!(self.held.is_none(), "a session of this store is open");
        self.held = Some(self.segment.lock_with(self.options)?);
        Ok(())
    }

    fn end_write(&mut self) -> Result<(), Error> {
        self.held.take().map_or(Ok(()), LockGuard::unlock)?;
        Ok(())
    }
}

fn parts<'a>(pages: &[PageId], into: &'a mut [Page]) -> Vec<(u64, &'a mut [u8])> {
    let mut parts: Vec<(u64, &mut [u8])> =
        pages.iter().zip(into).map(|(page, into)| (page.offset(), &mut into[..])).collect();
    // Adjacent pages become one read.
    parts.sort_unstable_by_key(|(offset, _)| *offset);
    parts
}

fn part((page, bytes): &Change) -> (u64, &[u8]) {
    (page.offset(), &bytes[..])
}

impl DdssPages {
    fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<(), Error> {
        match &self.held {
            Some(held) => held.put_many(parts)?,
            None => self.segment.put_many(parts)?,
        };
        Ok(())
    }
}
