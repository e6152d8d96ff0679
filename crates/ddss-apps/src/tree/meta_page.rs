//! Page 0, the head: the root, and the free pages.

use std::collections::VecDeque;

use crate::Error;
use crate::storage::{PAGE_BYTES, Page, PageId};

/// Page number of the head.
pub(crate) const HEAD: PageId = PageId(0);
/// Maximum number of free pages that the head names; further ones are leaked until a writer counts all pages again.
pub(crate) const FREE_MAX: usize = (PAGE_BYTES - FREE_AT) / 8;
/// Number of commits before a freed page is reused, so that readers of older versions can finish.
const REST_COMMITS: u32 = 32;

const MAGIC: u64 = u64::from_le_bytes(*b"DDSStree");
const FREE_AT: usize = 64;

/// Header of each page (16 bytes).
///
/// ```text
///  0        8       12     14      16
/// +--------+-------+------+-------+------------------------+
/// | born   | store | kind | count | what the kind has      |
/// +--------+-------+------+-------+------------------------+
/// ```
pub(crate) const START: usize = 16;

/// Kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Head = 1,
    Leaf = 2,
    Inner = 3,
}

impl Kind {
    /// Returns the kind of the pages of a level; leaves are level 0.
    pub(crate) fn of_level(level: u32) -> Kind {
        if level == 0 { Kind::Leaf } else { Kind::Inner }
    }
}

pub(crate) fn word(page: &Page, at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn half(page: &Page, at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn quarter(page: &Page, at: usize) -> u16 {
    u16::from_le_bytes(page[at..at + 2].try_into().expect("two bytes"))
}

fn put<const N: usize>(page: &mut Page, at: usize, bytes: [u8; N]) {
    page[at..at + N].copy_from_slice(&bytes);
}

/// Returns the commit that wrote a page.
pub(crate) fn born(page: &Page) -> u64 {
    word(page, 0)
}

/// Returns the number of entries of a page.
pub(crate) fn count(page: &Page) -> usize {
    quarter(page, 14).into()
}

pub(crate) fn is_kind(page: &Page, kind: Kind) -> bool {
    quarter(page, 12) == kind as u16
}

/// Writes the start of a page.
pub(crate) fn start(page: &mut Page, born: u64, kind: Kind, count: usize) {
    put(page, 0, born.to_le_bytes());
    put(page, 8, [0; 4]);
    put(page, 12, (kind as u16).to_le_bytes());
    put(page, 14, u16::try_from(count).expect("a page has fewer entries than bytes").to_le_bytes());
}

/// One version of a tree.
///
/// ```text
///  16       24     28       32      40     44       48   52     64
/// +--------+------+--------+-------+------+--------+----+------+-------------------------------+
/// | magic  | root | height | items | next | leaked | of | -    | free: page u32, commit u32 .. |
/// +--------+------+--------+-------+------+--------+----+------+-------------------------------+
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of commits.
    pub(crate) generation: u64,
    pub(crate) root: PageId,
    /// Levels above the leaves.
    pub(crate) height: u32,
    /// Entries of all leaves.
    pub(crate) items: u64,
    /// The first page that was never used.
    pub(crate) next: u32,
    /// Free pages that the head had no room for.
    pub(crate) leaked: u32,
    /// Kind of the tree.
    pub(crate) of: u32,
    /// Freed pages, each with the commit that freed it, the oldest first.
    pub(crate) free: VecDeque<(PageId, u32)>,
}

/// Maximum height, which no tree over all pages reaches.
pub(crate) const HEIGHT_MAX: u32 = 16;

impl Head {
    pub(crate) fn new(of: u32) -> Head {
        let (root, free) = (PageId(1), VecDeque::new());
        Head { generation: 1, root, height: 0, items: 0, next: 2, leaked: 0, of, free }
    }

    pub(crate) fn encode(&self, page: &mut Page) {
        page.fill(0);
        start(page, self.generation, Kind::Head, self.free.len());
        put(page, 16, MAGIC.to_le_bytes());
        put(page, 24, self.root.0.to_le_bytes());
        put(page, 28, self.height.to_le_bytes());
        put(page, 32, self.items.to_le_bytes());
        put(page, 40, self.next.to_le_bytes());
        put(page, 44, self.leaked.to_le_bytes());
        put(page, 48, self.of.to_le_bytes());
        for (index, (free, commit)) in self.free.iter().enumerate() {
            put(page, FREE_AT + 8 * index, free.0.to_le_bytes());
            put(page, FREE_AT + 8 * index + 4, commit.to_le_bytes());
        }
    }

    /// Decodes and validates the head of a tree of that kind, in a store of `pages` pages.
    pub(crate) fn decode(page: &Page, of: u32, pages: u32) -> Result<Head, Error> {
        let broken = |why| Err(Error::Broken { page: HEAD, why });
        if word(page, 16) != MAGIC || !is_kind(page, Kind::Head) {
            return broken("there is no tree");
        }
        if half(page, 48) != of {
            return broken("it is a tree of another sort");
        }
        let (root, height, next) = (half(page, 24), half(page, 28), half(page, 40));
        if next > pages || root == 0 || root >= next || height > HEIGHT_MAX || count(page) > FREE_MAX {
            return broken("its numbers do not fit its store");
        }
        let entry = |index| (PageId(half(page, FREE_AT + 8 * index)), half(page, FREE_AT + 8 * index + 4));
        let free: VecDeque<_> = (0..count(page)).map(entry).collect();
        if free.iter().any(|(page, _)| page.0 == 0 || page.0 >= next) {
            return broken("it names a free page that is none");
        }
        let (generation, items, leaked, root) = (born(page), word(page, 32), half(page, 44), PageId(root));
        Ok(Head { generation, root, height, items, next, leaked, of, free })
    }

    /// Takes a free page, if there is one: preferably one that was freed long ago.
    pub(crate) fn take(&mut self, pages: u32) -> Option<PageId> {
        let rested = |commit: u32| (self.generation as u32).wrapping_sub(commit) >= REST_COMMITS;
        match self.free.front() {
            Some(&(_, commit)) if rested(commit) || self.next >= pages => self.free.pop_front().map(|(page, _)| page),
            _ if self.next < pages => {
                self.next += 1;
                Some(PageId(self.next - 1))
            }
            _ => None,
        }
    }

    /// Frees a page that this version does not reach any more.
    pub(crate) fn give_back(&mut self, page: PageId) {
        if self.free.len() == FREE_MAX {
            self.free.pop_front();
            self.leaked += 1;
        }
        self.free.push_back((page, self.generation as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::new_page;

    #[test]
    fn valid_head_round_trips_and_invalid_heads_are_refused() {
        let mut head = Head { height: 2, items: 77, next: 9, leaked: 3, ..Head::new(2) };
        head.give_back(PageId(4));
        head.give_back(PageId(7));
        let mut page = new_page();
        head.encode(&mut page);
        assert_eq!(Head::decode(&page, 2, 9).unwrap(), head);
        assert!(Head::decode(&page, 1, 9).is_err() && Head::decode(&page, 2, 8).is_err());
        assert!(Head::decode(&new_page(), 2, 9).is_err());
        page[FREE_AT] = 200;
        assert!(Head::decode(&page, 2, 9).is_err());
    }

    #[test]
    fn freed_page_is_reused_late_unless_the_store_is_full() {
        // Early reuse would make readers restart; no reuse would fill a small store too early.
        let mut head = Head { next: 3, ..Head::new(1) };
        head.give_back(PageId(2));
        assert_eq!(head.take(4), Some(PageId(3)));
        assert_eq!(head.take(4), Some(PageId(2)));
        assert_eq!(head.take(4), None);
        head.give_back(PageId(2));
        head.generation += u64::from(REST_COMMITS);
        assert_eq!(head.take(100), Some(PageId(2)));
        for page in 0..=FREE_MAX {
            head.give_back(PageId(page as u32));
        }
        assert_eq!((head.free.len(), head.leaked), (FREE_MAX, 1));
    }
}
