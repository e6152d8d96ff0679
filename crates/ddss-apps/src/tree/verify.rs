//! Verification of a tree: visits every page and checks the structure.

use std::collections::HashSet;

use super::node::Shape;
use super::pages::Pages;
use crate::Error;
use crate::storage::{PageId, PageStore};

/// Counts of the pages and entries of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Number of entries in all leaves.
    pub items: u64,
    /// Number of leaf pages.
    pub leaves: u32,
    /// Number of inner pages.
    pub inner: u32,
    /// Number of levels above the leaves.
    pub height: u32,
    /// Number of free pages.
    pub free: u32,
    /// Number of commits.
    pub generation: u64,
}

struct Walk<'a, S, K: Shape> {
    pages: &'a mut Pages<S>,
    seen: HashSet<PageId>,
    census: Census,
    /// Returns true if a child matches its entry.
    fits: Fits<K::Item>,
}

/// Arguments: a child's entries, the entry that points to it, and the entries of the child before and the child behind
/// it.
type Fits<I> = fn(&[I], &I, Option<&I>, Option<&I>) -> bool;

impl<S: PageStore, K: Shape> Walk<'_, S, K> {
    fn node(&mut self, page: PageId, level: u32) -> Result<Vec<K::Item>, Error> {
        let broken = |why| Error::Broken { page, why };
        if page.0 == 0 || page.0 >= self.pages.head().next {
            return Err(broken("the tree has no such page"));
        }
        if !self.seen.insert(page) {
            return Err(broken("two nodes point to it"));
        }
        let items = self.pages.node::<K>(page, level)?;
        if level == 0 {
            self.census.leaves += 1;
            self.census.items += items.len() as u64;
            return Ok(items);
        }
        self.census.inner += 1;
        for (index, pointer) in items.iter().enumerate() {
            let child = self.node(K::child(pointer), level - 1)?;
            let (before, behind) = (index.checked_sub(1).map(|index| &items[index]), items.get(index + 1));
            if child.is_empty() || !(self.fits)(&child, pointer, before, behind) {
                return Err(broken("a child is not what its entry says"));
            }
        }
        Ok(items)
    }
}

/// Visits every page of a tree; returns the counts and the entries of the root.
pub(super) fn walk<S: PageStore, K: Shape>(
    pages: &mut Pages<S>,
    fits: Fits<K::Item>,
) -> Result<(Census, Vec<K::Item>), Error> {
    let head = pages.head().clone();
    let (height, generation, free) = (head.height, head.generation, head.free.len() as u32 + head.leaked);
    let census = Census { items: 0, leaves: 0, inner: 0, height, free, generation };
    let mut walk = Walk::<S, K> { pages, seen: HashSet::new(), census, fits };
    let root = walk.node(head.root, head.height)?;
    let (census, seen) = (walk.census, walk.seen);
    let broken = |page, why| Err(Error::Broken { page, why });
    if census.items != head.items {
        return broken(head.root, "the head counts other entries than the leaves have");
    }
    let mut free = HashSet::new();
    for &(page, _) in &head.free {
        if seen.contains(&page) || !free.insert(page) {
            return broken(page, "it is free and in use, or free twice");
        }
    }
    // The head, the reached pages and the free pages are all pages that were ever used.
    let known = 1 + seen.len() + free.len() + head.leaked as usize;
    if known != head.next as usize {
        return broken(head.root, "some pages are neither used nor free");
    }
    Ok((census, root))
}
