//! An R-tree: values by position.

use super::meta_page::{START, count, word};
use super::node::Shape;
use super::operations::Tree;
use super::pages::Pages;
use super::verify::{Census, walk};
use crate::Error;
use crate::storage::{PAGE_BYTES, Page, PageId, PageStore};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 40;
/// Maximum number of entries of a page.
const ENTRIES_MAX: usize = (PAGE_BYTES - START) / ENTRY_BYTES;

/// A rectangle with its sides along the axes; a point is one without area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    /// The lower left corner.
    pub min: [f64; 2],
    /// The upper right corner.
    pub max: [f64; 2],
}

impl Rect {
    /// Returns the rectangle between two corners.
    pub fn new(a: [f64; 2], b: [f64; 2]) -> Rect {
        Rect { min: [a[0].min(b[0]), a[1].min(b[1])], max: [a[0].max(b[0]), a[1].max(b[1])] }
    }

    /// A point.
    pub fn point(at: [f64; 2]) -> Rect {
        Rect { min: at, max: at }
    }

    /// Returns true if the rectangles intersect.
    pub fn meets(&self, other: &Rect) -> bool {
        (0..2).all(|axis| self.min[axis] <= other.max[axis] && other.min[axis] <= self.max[axis])
    }

    /// Returns true if `other` lies inside.
    pub fn holds(&self, other: &Rect) -> bool {
        (0..2).all(|axis| self.min[axis] <= other.min[axis] && other.max[axis] <= self.max[axis])
    }

    /// Returns the bounding rectangle of both.
    #[must_use]
    pub fn with(&self, other: &Rect) -> Rect {
        let min = [0, 1].map(|axis| self.min[axis].min(other.min[axis]));
        let max = [0, 1].map(|axis| self.max[axis].max(other.max[axis]));
        Rect { min, max }
    }

    fn area(&self) -> f64 {
        (self.max[0] - self.min[0]) * (self.max[1] - self.min[1])
    }

    /// Returns the growth of the area if it has to contain `other`; half the perimeter breaks ties between points.
    fn growth(&self, other: &Rect) -> f64 {
        let (with, border) = (self.with(other), |rect: &Rect| rect.max[0] - rect.min[0] + rect.max[1] - rect.min[1]);
        (with.area() - self.area()) + 1e-6 * (border(&with) - border(self))
    }
}

/// A value with its position; in an inner node, a child's page with its bounding rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) rect: Rect,
    pub(crate) value: u64,
}

pub(crate) fn entries(page: &Page) -> impl Iterator<Item = Entry> {
    (0..count(page).min(ENTRIES_MAX)).map(|index| {
        let at = START + index * ENTRY_BYTES;
        let number = |index: usize| f64::from_bits(word(page, at + 8 * index));
        let rect = Rect { min: [number(0), number(1)], max: [number(2), number(3)] };
        Entry { rect, value: word(page, at + 32) }
    })
}

/// Kind of tree with values by position.
#[derive(Debug)]
pub struct ByPlace;

fn around(items: &[Entry]) -> Rect {
    items[1..].iter().fold(items[0].rect, |all, item| all.with(&item.rect))
}

impl Shape for ByPlace {
    type Item = Entry;

    const SORT: u32 = 2;

    fn decode(page: &Page) -> Result<Vec<Entry>, &'static str> {
        if count(page) > ENTRIES_MAX { Err("it has more entries than room") } else { Ok(entries(page).collect()) }
    }

    fn encode(items: &[Entry], page: &mut Page) {
        for (item, bytes) in items.iter().zip(page[START..].chunks_exact_mut(ENTRY_BYTES)) {
            let Rect { min, max } = item.rect;
            let words = [min[0].to_bits(), min[1].to_bits(), max[0].to_bits(), max[1].to_bits(), item.value];
            for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    fn bytes(items: &[Entry]) -> usize {
        START + items.len() * ENTRY_BYTES
    }

    fn child(item: &Entry) -> PageId {
        PageId(u32::try_from(item.value).unwrap_or(0))
    }

    fn point_to(page: PageId, items: &[Entry], _old: Option<&Entry>) -> Entry {
        Entry { rect: around(items), value: page.0.into() }
    }

    /// Splits in the middle, along the axis on which the entries are farther apart.
    fn split(mut items: Vec<Entry>) -> (Vec<Entry>, Vec<Entry>) {
        let all = around(&items);
        let axis = usize::from(all.max[1] - all.min[1] > all.max[0] - all.min[0]);
        let middle = |item: &Entry| item.rect.min[axis] + item.rect.max[axis];
        items.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
        let right = items.split_off(items.len() / 2);
        (items, right)
    }

    fn neighbour(items: &[Entry], index: usize) -> usize {
        let growth = |other: &usize| items[*other].rect.growth(&items[index].rect);
        let others = (0..items.len()).filter(|&other| other != index);
        others.min_by(|a, b| growth(a).total_cmp(&growth(b))).expect("there are two")
    }

    fn join(mut left: Vec<Entry>, mut right: Vec<Entry>, _pointer: &Entry, _level: u32) -> Vec<Entry> {
        left.append(&mut right);
        left
    }
}

/// An R-tree on pages. The [module](super) describes its concurrency.
pub type RTree<S> = Tree<ByPlace, S>;

impl<S: PageStore> RTree<S> {
    /// Returns the values whose rectangles intersect `area`, all of one version, in no order.
    pub fn search(&mut self, area: Rect) -> Result<Vec<(Rect, u64)>, Error> {
        self.fold(area, Vec::new, |all, rect, value| all.push((rect, value)))
    }

    /// Folds over those values. It restarts with `begin` when concurrent writers replaced a page.
    pub fn fold<A>(
        &mut self,
        area: Rect,
        begin: impl Fn() -> A,
        mut step: impl FnMut(&mut A, Rect, u64),
    ) -> Result<A, Error> {
        self.pages.read(|pages| {
            let mut all = begin();
            let pick = |_, bytes: &Page, below: &mut Vec<PageId>| {
                below
                    .extend(entries(bytes).filter(|entry| entry.rect.meets(&area)).map(|entry| ByPlace::child(&entry)));
                Ok(())
            };
            pages.sweep(pick, |_, bytes| {
                for entry in entries(bytes).filter(|entry| entry.rect.meets(&area)) {
                    step(&mut all, entry.rect, entry.value);
                }
                Ok(())
            })?;
            Ok(all)
        })
    }

    /// Adds a value; duplicates are permitted. Valid within [`write`](Self::write) only.
    pub fn insert(&mut self, rect: Rect, value: u64) -> Result<(), Error> {
        let (root, height) = (self.pages.head().root, self.pages.head().height);
        let parts = self.insert_below(root, height, Entry { rect, value });
        let changed = parts.and_then(|parts| self.pages.replace_root::<ByPlace>(parts));
        self.pages.settle(changed)?;
        self.pages.head_mut().items += 1;
        Ok(())
    }

    fn insert_below(&mut self, page: PageId, level: u32, new: Entry) -> Result<Vec<Entry>, Error> {
        let mut items = self.pages.node::<ByPlace>(page, level)?;
        if level == 0 {
            items.push(new);
        } else {
            let growth = |entry: &Entry| (entry.rect.growth(&new.rect), entry.rect.area());
            let least = (0..items.len()).min_by(|&a, &b| {
                let (a, b) = (growth(&items[a]), growth(&items[b]));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            let index = least.ok_or(Error::Broken { page, why: "it has no child" })?;
            let parts = self.insert_below(ByPlace::child(&items[index]), level - 1, new)?;
            self.pages.replace::<ByPlace>(&mut items, index, parts, level - 1)?;
        }
        self.pages.put_node::<ByPlace>(page, level, items, None)
    }

    /// Removes a value with exactly that rectangle; returns true if it existed. Valid within [`write`](Self::write)
    /// only.
    pub fn remove(&mut self, rect: Rect, value: u64) -> Result<bool, Error> {
        let (root, height) = (self.pages.head().root, self.pages.head().height);
        let parts = self.remove_below(root, height, Entry { rect, value });
        let changed = parts.and_then(|parts| match parts {
            Some(parts) => self.pages.replace_root::<ByPlace>(parts).map(|()| true),
            None => Ok(false),
        });
        let is_gone = self.pages.settle(changed)?;
        self.pages.head_mut().items -= u64::from(is_gone);
        Ok(is_gone)
    }

    fn remove_below(&mut self, page: PageId, level: u32, old: Entry) -> Result<Option<Vec<Entry>>, Error> {
        let mut items = self.pages.node::<ByPlace>(page, level)?;
        if level == 0 {
            let Some(index) = items.iter().position(|entry| *entry == old) else { return Ok(None) };
            items.swap_remove(index);
            return self.pages.put_node::<ByPlace>(page, level, items, None).map(Some);
        }
        for index in 0..items.len() {
            if !items[index].rect.holds(&old.rect) {
                continue;
            }
            if let Some(parts) = self.remove_below(ByPlace::child(&items[index]), level - 1, old)? {
                self.pages.replace::<ByPlace>(&mut items, index, parts, level - 1)?;
                return self.pages.put_node::<ByPlace>(page, level, items, None).map(Some);
            }
        }
        Ok(None)
    }

    /// Verifies the structure of the tree.
    pub fn check(&mut self) -> Result<Census, Error> {
        self.pages.read(|pages| verify(pages))
    }
}

fn verify<S: PageStore>(pages: &mut Pages<S>) -> Result<Census, Error> {
    let fits = |child: &[Entry], pointer: &Entry, _: Option<&Entry>, _: Option<&Entry>| {
        child.iter().all(|entry| pointer.rect.holds(&entry.rect))
    };
    walk::<S, ByPlace>(pages, fits).map(|(census, _)| census)
}
