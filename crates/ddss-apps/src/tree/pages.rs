//! Pages of a tree: the version that is read, and the next version during a write.

use std::collections::{BTreeMap, HashSet};

use super::meta_page;
use super::meta_page::{HEAD, Head, Kind};
use crate::Error;
use crate::storage::{Change, Page, PageId, PageStore, new_page};

/// Default number of pages that are in flight or processed together.
const BATCH: usize = 16;
/// Fewer pages are not worth a call of their own.
const CALL_MIN: usize = 4;
/// Maximum number of restarts of a reader.
const TRIES_MAX: u32 = 1000;
/// Number of leaked pages (free, but in no head) after which the next writer searches them.
const LEAKED_MAX: u32 = 256;

/// The pages of one tree.
#[derive(Debug)]
pub(crate) struct Pages<S> {
    store: S,
    head: Head,
    /// Changes of the next version; `None` outside of a write.
    session: Option<Session>,
    batch: usize,
    buffer: Vec<Page>,
    /// Buffer for pages that arrive while those in `buffer` are processed.
    next: Vec<Page>,
    /// The root of the version that is read, if it came along with the head.
    root: Option<Box<Page>>,
}

#[derive(Debug, Default)]
struct Session {
    fresh: BTreeMap<PageId, Box<Page>>,
    /// Fresh pages that are no longer needed.
    spare: Vec<PageId>,
    /// True after a failed change: nothing here may be committed.
    spoiled: bool,
}

/// Returns the error of a reader that saw a page of a later version.
fn stale() -> Error {
    Error::Restless { tries: 1 }
}

impl<S: PageStore> Pages<S> {
    /// Creates an empty tree of that kind.
    pub(crate) fn create(mut store: S, of: u32) -> Result<Self, Error> {
        let head = Head::new(of);
        let (mut root, mut first) = (new_page(), new_page());
        meta_page::start(&mut root, head.generation, Kind::Leaf, 0);
        head.encode(&mut first);
        store.begin_write()?;
        let made = store.commit(&[(head.root, root)], (HEAD, &first));
        store.end_write()?;
        made.map(|()| Self::of(store, head))
    }

    pub(crate) fn open(mut store: S, of: u32) -> Result<Self, Error> {
        let mut page = new_page();
        store.read_page(HEAD, &mut page)?;
        let head = Head::decode(&page, of, store.pages())?;
        Ok(Self::of(store, head))
    }

    fn of(store: S, head: Head) -> Self {
        Self { store, head, session: None, batch: BATCH, buffer: Vec::new(), next: Vec::new(), root: None }
    }

    pub(crate) fn set_batch(&mut self, pages: usize) {
        self.batch = pages.max(1);
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    pub(crate) fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Switches to the newest version.
    fn refresh(&mut self) -> Result<(), Error> {
        let mut page = new_page();
        self.store.read_page(HEAD, &mut page)?;
        self.head = Head::decode(&page, self.head.of, self.store.pages())?;
        self.root = None;
        Ok(())
    }

    /// Switches to the newest version and reads the expected root in the same call, which saves a round trip.
    fn refresh_with_root(&mut self) -> Result<(), Error> {
        let likely = self.head.root;
        let mut pages = std::mem::take(&mut self.buffer);
        pages.resize(self.batch, [0; _]);
        self.store.read_pages(&[HEAD, likely], &mut pages[..2])?;
        self.head = Head::decode(&pages[0], self.head.of, self.store.pages())?;
        self.root = (self.head.root == likely).then(|| {
            let mut root = self.root.take().unwrap_or_else(new_page);
            root.copy_from_slice(&pages[1]);
            root
        });
        self.buffer = pages;
        Ok(())
    }

    /// Reads one version of the tree; starts again if one of its pages was reused in the meantime.
    pub(crate) fn read<T>(&mut self, mut look: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.session.is_some() {
            return look(self);
        }
        for _ in 0..TRIES_MAX {
            if self.batch > 1 { self.refresh_with_root() } else { self.refresh() }?;
            match look(self) {
                Err(Error::Restless { .. }) => {}
                ended => return ended,
            }
        }
        Err(Error::Restless { tries: TRIES_MAX })
    }

    /// Takes the writer's lock, and begins with the newest version.
    pub(crate) fn begin(&mut self, children: fn(&Page) -> Vec<PageId>) -> Result<(), Error> {
        self.store.begin_write()?;
        let begun = self.refresh().and_then(|()| {
            self.session = Some(Session::default());
            if self.head.leaked > LEAKED_MAX { self.count_free(children) } else { Ok(()) }
        });
        if begun.is_err() {
            self.abandon()?;
        }
        begun
    }

    /// Records the result of a change. A failed change may be half done; it is never committed.
    pub(crate) fn settle<T>(&mut self, changed: Result<T, Error>) -> Result<T, Error> {
        if let (Some(session), true) = (&mut self.session, changed.is_err()) {
            session.spoiled = true;
        }
        changed
    }

    /// Commits the changes as the newest version.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        let session = self.session.take().expect("a session was begun");
        if session.spoiled {
            self.store.end_write()?;
            return Err(Error::Inconsistent("a change failed before this commit".to_owned()));
        }
        let fresh: Vec<Change> = session.fresh.into_iter().collect();
        for page in session.spare {
            self.head.give_back(page);
        }
        self.head.generation += 1;
        let mut page = new_page();
        self.head.encode(&mut page);
        let committed = self.store.commit(&fresh, (HEAD, &page));
        let ended = self.store.end_write();
        committed.and(ended)
    }

    /// Discards the changes.
    pub(crate) fn abandon(&mut self) -> Result<(), Error> {
        self.session = None;
        self.store.end_write()
    }

    /// Returns the commit to which a page written now belongs.
    fn next_generation(&self) -> u64 {
        self.head.generation + 1
    }

    /// Reads a page of this version that is at that level.
    pub(crate) fn fetch(&mut self, page: PageId, level: u32) -> Result<Box<Page>, Error> {
        let fresh = self.session.as_ref().and_then(|session| session.fresh.get(&page));
        if let Some(fresh) = fresh {
            return Ok(fresh.clone());
        }
        let mut read = new_page();
        self.store.read_page(page, &mut read)?;
        self.check(page, &read, level)?;
        Ok(read)
    }

    fn check(&self, id: PageId, page: &Page, level: u32) -> Result<(), Error> {
        if meta_page::born(page) > self.head.generation && self.session.is_none() {
            return Err(stale());
        }
        if meta_page::is_kind(page, Kind::of_level(level)) {
            return Ok(());
        }
        Err(Error::Broken { page: id, why: "it is not of the kind that its level has" })
    }

    /// Visits the tree level by level: `pick` selects the children of an inner page, and `visit` gets the leaves from
    /// left to right. The next pages of a level are in flight while it processes others.
    pub(crate) fn sweep(
        &mut self,
        mut pick: impl FnMut(PageId, &Page, &mut Vec<PageId>) -> Result<(), Error>,
        mut visit: impl FnMut(PageId, &Page) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut level_ids = vec![self.head.root];
        let (mut here, mut next) = (std::mem::take(&mut self.buffer), std::mem::take(&mut self.next));
        [&mut here, &mut next].into_iter().for_each(|pages| pages.resize(self.batch, [0; _]));
        let mut swept = Ok(());
        for level in (0..=self.head.height).rev() {
            let mut below = Vec::new();
            let mut here_ids: &[PageId] = &[];
            let half = level_ids.len().div_ceil(2).max(CALL_MIN).min(self.batch.div_ceil(2));
            for next_ids in level_ids.chunks(half).chain([&[][..]]) {
                let mut looked = Ok(());
                let mut look = || {
                    looked = here_ids.iter().zip(&here).try_for_each(|(&id, page)| {
                        if level == 0 { visit(id, page) } else { pick(id, page, &mut below) }
                    });
                };
                let meanwhile: Option<&mut dyn FnMut()> = if here_ids.is_empty() { None } else { Some(&mut look) };
                let fetched = self.fetch_many(next_ids, &mut next[..next_ids.len()], level, meanwhile);
                swept = looked.and(fetched);
                if swept.is_err() {
                    break;
                }
                (here_ids, here, next) = (next_ids, next, here);
            }
            if swept.is_err() {
                break;
            }
            level_ids = below;
        }
        (self.buffer, self.next) = (here, next);
        swept
    }

    /// Reads pages of one level, and runs `meanwhile` while they are in flight, unless there is an error.
    fn fetch_many(
        &mut self,
        ids: &[PageId],
        into: &mut [Page],
        level: u32,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<(), Error> {
        if let Some(bad) = ids.iter().find(|id| id.0 == 0 || id.0 >= self.head.next) {
            return Err(Error::Broken { page: *bad, why: "the tree has no such page" });
        }
        // Only the store itself waits for anything.
        let is_root = self.root.is_some() && ids == [self.head.root];
        let ready = ids.is_empty() || is_root || self.session.is_some() || self.batch == 1;
        let meanwhile = match meanwhile {
            Some(run) if ready => {
                run();
                None
            }
            meanwhile => meanwhile,
        };
        if let (true, [into], Some(root)) = (is_root, &mut *into, &self.root) {
            into.copy_from_slice(&root[..]);
            return self.check(self.head.root, into, level);
        }
        if self.session.is_some() {
            // A writer's own pages are not in the store yet.
            for (&id, into) in ids.iter().zip(into) {
                into.copy_from_slice(&self.fetch(id, level)?[..]);
            }
            return Ok(());
        }
        match (ids, &mut *into, meanwhile) {
            ([], ..) => {}
            (ids, into, Some(meanwhile)) => self.store.read_pages_while(ids, into, meanwhile)?,
            (&[id], [into], None) => self.store.read_page(id, into)?,
            (ids, into, None) => self.store.read_pages(ids, into)?,
        }
        ids.iter().zip(into).try_for_each(|(&id, page)| self.check(id, page, level))
    }

    /// Writes a node of the next version: over `old` if that is fresh, else to a free page, after which `old` is free.
    pub(crate) fn put(
        &mut self,
        old: Option<PageId>,
        level: u32,
        count: usize,
        fill: impl FnOnce(&mut Page),
    ) -> Result<PageId, Error> {
        let mut page = new_page();
        fill(&mut page);
        meta_page::start(&mut page, self.next_generation(), Kind::of_level(level), count);
        let session = self.session.as_mut().expect("a session was begun");
        let id = match old {
            Some(old) if session.fresh.contains_key(&old) => old,
            _ => {
                let pages = self.store.pages();
                let id = session.spare.pop().or_else(|| self.head.take(pages)).ok_or(Error::Full { pages })?;
                if let Some(old) = old {
                    self.head.give_back(old);
                }
                id
            }
        };
        session.fresh.insert(id, page);
        Ok(id)
    }

    /// Records that the next version does not reach a page.
    pub(crate) fn drop_page(&mut self, page: PageId) {
        let session = self.session.as_mut().expect("a session was begun");
        match session.fresh.remove(&page) {
            Some(_) => session.spare.push(page),
            None => self.head.give_back(page),
        }
    }

    /// Finds the free pages that the head had no room for: all that the tree does not reach.
    fn count_free(&mut self, children: fn(&Page) -> Vec<PageId>) -> Result<(), Error> {
        let mut reached = HashSet::new();
        let mut leaves = Vec::new();
        let pick = |id, page: &Page, below: &mut Vec<PageId>| {
            reached.insert(id);
            below.extend(children(page));
            Ok(())
        };
        self.sweep(pick, |id, _| {
            leaves.push(id);
            Ok(())
        })?;
        reached.extend(leaves);
        self.head.free.clear();
        self.head.leaked = 0;
        for page in (1..self.head.next).map(PageId).filter(|page| !reached.contains(page)) {
            self.head.give_back(page);
        }
        Ok(())
    }
}
