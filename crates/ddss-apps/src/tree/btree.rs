//! A B-tree: values by key, in the order of the keys.

use std::ops::Bound;

use super::meta_page::{START, count, quarter};
use super::node::Shape;
use super::operations::Tree;
use super::pages::Pages;
use super::verify::{Census, walk};
use crate::Error;
use crate::storage::{PAGE_BYTES, Page, PageId, PageStore};

/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Lengths in front of each key and its value.
const LENGTHS: usize = 4;

// A node that one entry made too large can be split so that both parts fit.
const _: () = assert!(START + 4 * (LENGTHS + KEY_BYTES_MAX + VALUE_BYTES_MAX) <= PAGE_BYTES);

/// Key and value; in an inner node, the least key of a child and its page. The first child of a node has all keys below
/// that of the second child, independent of its own entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Cells of a page, without copying them.
pub(crate) fn cells(page: &Page) -> impl Iterator<Item = Result<(&[u8], &[u8]), &'static str>> {
    let mut at = START;
    (0..count(page)).map(move |_| {
        let lengths = (at + LENGTHS <= PAGE_BYTES).then(|| (quarter(page, at).into(), quarter(page, at + 2).into()));
        let (key_bytes, value_bytes): (usize, usize) = lengths.ok_or("an entry begins behind its end")?;
        let (key, value) = (at + LENGTHS, at + LENGTHS + key_bytes);
        at = value + value_bytes;
        let cell = page.get(key..value).zip(page.get(value..at));
        cell.ok_or("an entry reaches beyond its end")
    })
}

fn page_of(value: &[u8]) -> Option<PageId> {
    value.try_into().ok().map(|bytes| PageId(u32::from_le_bytes(bytes)))
}

/// Kind of tree with values by key.
#[derive(Debug)]
pub struct ByKey;

impl Shape for ByKey {
    type Item = Cell;

    const SORT: u32 = 1;

    fn decode(page: &Page) -> Result<Vec<Cell>, &'static str> {
        cells(page).map(|cell| cell.map(|(key, value)| Cell { key: key.to_vec(), value: value.to_vec() })).collect()
    }

    fn encode(items: &[Cell], page: &mut Page) {
        let mut at = START;
        let mut write = |bytes: &[u8]| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for Cell { key, value } in items {
            write(&(key.len() as u16).to_le_bytes());
            write(&(value.len() as u16).to_le_bytes());
            write(key);
            write(value);
        }
    }

    fn bytes(items: &[Cell]) -> usize {
        START + items.iter().map(|cell| LENGTHS + cell.key.len() + cell.value.len()).sum::<usize>()
    }

    fn child(item: &Cell) -> PageId {
        // No tree has this page: following it reports a broken tree.
        page_of(&item.value).unwrap_or(PageId(0))
    }

    fn point_to(page: PageId, items: &[Cell], old: Option<&Cell>) -> Cell {
        // Only a first child can get a smaller key than its entry has. The entry follows, or a split would put it out
        // of order.
        let key = old.map_or(&items[0].key, |old| (&old.key).min(&items[0].key)).clone();
        Cell { key, value: page.0.to_le_bytes().to_vec() }
    }

    fn split(mut items: Vec<Cell>) -> (Vec<Cell>, Vec<Cell>) {
        let half = Self::bytes(&items) / 2;
        let mut bytes = START;
        let middle = items.iter().position(|cell| {
            bytes += LENGTHS + cell.key.len() + cell.value.len();
            bytes >= half
        });
        let right = items.split_off(middle.unwrap_or(0).clamp(1, items.len() - 1));
        (items, right)
    }

    fn neighbour(items: &[Cell], index: usize) -> usize {
        if index + 1 < items.len() { index + 1 } else { index - 1 }
    }

    fn join(mut left: Vec<Cell>, mut right: Vec<Cell>, pointer: &Cell, level: u32) -> Vec<Cell> {
        if level > 0
            && let Some(first) = right.first_mut()
        {
            // It is no longer the first child, so its key counts from now on.
            first.key.clone_from(&pointer.key);
        }
        left.append(&mut right);
        left
    }
}

enum Edit<'a> {
    Insert(&'a [u8], &'a [u8]),
    Remove(&'a [u8]),
}

impl Edit<'_> {
    fn key(&self) -> &[u8] {
        match self {
            Edit::Insert(key, _) | Edit::Remove(key) => key,
        }
    }
}

/// Result of an edit: the new entries for the node, and the previous value.
type Edited = (Vec<Cell>, Option<Vec<u8>>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A B-tree on pages. The [module](super) describes its concurrency.
pub type BTree<S> = Tree<ByKey, S>;

impl<S: PageStore> BTree<S> {
    /// Returns the value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let only = Bound::Included(key);
        self.fold(only, only, || None, |found, _, value| *found = Some(value.to_vec()))
    }

    /// Returns the keys of a range with their values, in order, of one version.
    pub fn range(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Vec<Pair>, Error> {
        self.fold(from, to, Vec::new, |all, key, value| all.push((key.to_vec(), value.to_vec())))
    }

    /// Folds over the keys of a range in order, all of one version. It restarts with `begin` when concurrent writers
    /// replaced a page.
    pub fn fold<A>(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        begin: impl Fn() -> A,
        mut step: impl FnMut(&mut A, &[u8], &[u8]),
    ) -> Result<A, Error> {
        self.pages.read(|pages| {
            let mut all = begin();
            let pick = |page, bytes: &Page, below: &mut Vec<PageId>| {
                pick(bytes, from, to, below).map_err(|why| Error::Broken { page, why })
            };
            pages.sweep(pick, |page, bytes| {
                for cell in cells(bytes) {
                    let (key, value) = cell.map_err(|why| Error::Broken { page, why })?;
                    if !is_before(key, from) && !is_behind(key, to) {
                        step(&mut all, key, value);
                    }
                }
                Ok(())
            })?;
            Ok(all)
        })
    }

    /// Inserts or replaces the value of a key, and returns the previous value. Valid within [`write`](Self::write) only.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            let bytes_max = KEY_BYTES_MAX + VALUE_BYTES_MAX;
            return Err(Error::TooLong { key_bytes: key.len(), value_bytes: value.len(), bytes_max });
        }
        let changed = self.edit_root(&Edit::Insert(key, value));
        let before = self.pages.settle(changed)?;
        self.pages.head_mut().items += u64::from(before.is_none());
        Ok(before)
    }

    /// Removes a key and returns its value. Valid within [`write`](Self::write) only.
    pub fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let changed = self.edit_root(&Edit::Remove(key));
        let before = self.pages.settle(changed)?;
        self.pages.head_mut().items -= u64::from(before.is_some());
        Ok(before)
    }

    fn edit_root(&mut self, edit: &Edit<'_>) -> Result<Option<Vec<u8>>, Error> {
        let (root, height) = (self.pages.head().root, self.pages.head().height);
        let Some((parts, before)) = self.edit(root, height, edit, None)? else { return Ok(None) };
        self.pages.replace_root::<ByKey>(parts)?;
        Ok(before)
    }

    /// Edits the subtree below a page; `None` if there was nothing to change.
    fn edit(
        &mut self,
        page: PageId,
        level: u32,
        edit: &Edit<'_>,
        pointer: Option<&Cell>,
    ) -> Result<Option<Edited>, Error> {
        let mut items = self.pages.node::<ByKey>(page, level)?;
        if level == 0 {
            let place = items.binary_search_by(|cell| cell.key.as_slice().cmp(edit.key()));
            let before = match (edit, place) {
                (Edit::Insert(_, value), Ok(index)) => Some(std::mem::replace(&mut items[index].value, value.to_vec())),
                (Edit::Insert(key, value), Err(index)) => {
                    items.insert(index, Cell { key: key.to_vec(), value: value.to_vec() });
                    None
                }
                (Edit::Remove(_), Ok(index)) => Some(items.remove(index).value),
                (Edit::Remove(_), Err(_)) => return Ok(None),
            };
            return Ok(Some((self.pages.put_node::<ByKey>(page, level, items, pointer)?, before)));
        }
        let index = items.partition_point(|cell| cell.key.as_slice() <= edit.key()).saturating_sub(1);
        let child = items.get(index).cloned().ok_or(Error::Broken { page, why: "it has no child" })?;
        let Some((parts, before)) = self.edit(ByKey::child(&child), level - 1, edit, Some(&child))? else {
            return Ok(None);
        };
        self.pages.replace::<ByKey>(&mut items, index, parts, level - 1)?;
        Ok(Some((self.pages.put_node::<ByKey>(page, level, items, pointer)?, before)))
    }

    /// Verifies the structure of the tree on every page, for tests and after a crash.
    pub fn check(&mut self) -> Result<Census, Error> {
        self.pages.read(|pages| verify(pages))
    }
}

fn verify<S: PageStore>(pages: &mut Pages<S>) -> Result<Census, Error> {
    let is_sorted = |items: &[Cell]| items.windows(2).all(|two| two[0].key < two[1].key);
    let fits = |child: &[Cell], pointer: &Cell, before: Option<&Cell>, behind: Option<&Cell>| {
        // The first child has all keys below the first key of the second child.
        let least = before.is_none() || child.first().is_some_and(|first| first.key >= pointer.key);
        let last = behind.is_none_or(|next| child.last().is_some_and(|last| last.key < next.key));
        least && last && child.windows(2).all(|two| two[0].key < two[1].key)
    };
    let (census, root) = walk::<S, ByKey>(pages, fits)?;
    if is_sorted(&root) {
        Ok(census)
    } else {
        Err(Error::Broken { page: pages.head().root, why: "its keys are not in order" })
    }
}

fn is_before(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Unbounded => false,
        Bound::Included(from) => key < from,
        Bound::Excluded(from) => key <= from,
    }
}

fn is_behind(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Unbounded => false,
        Bound::Included(to) => key > to,
        Bound::Excluded(to) => key >= to,
    }
}

/// Finds the children of an inner page that may have keys of the range.
fn pick(page: &Page, from: Bound<&[u8]>, to: Bound<&[u8]>, below: &mut Vec<PageId>) -> Result<(), &'static str> {
    let first = below.len();
    for cell in cells(page) {
        let (key, value) = cell?;
        let child = page_of(value).ok_or("it does not point to a page")?;
        if below.len() > first && is_behind(key, to) {
            break;
        }
        // The child before this one has only smaller keys.
        if matches!(from, Bound::Included(from) | Bound::Excluded(from) if key <= from) {
            below.truncate(first);
        }
        below.push(child);
    }
    Ok(())
}
