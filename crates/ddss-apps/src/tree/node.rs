//! Nodes of both kinds of tree: copy on write, splits, and merges with a neighbour.

use super::pages::Pages;
use crate::Error;
use crate::storage::{PAGE_BYTES, Page, PageId, PageStore};

/// A node with less than this is joined with a neighbour.
const BYTES_MIN: usize = PAGE_BYTES / 4;

/// Kind of a tree: the format of its entries, and its rules for splits and merges.
pub(crate) trait Shape {
    /// An entry of a node: a value in a leaf, or the pointer to a child.
    type Item: Clone;

    /// Number of this kind of tree, in the head.
    const SORT: u32;

    /// Reads the entries of a page.
    fn decode(page: &Page) -> Result<Vec<Self::Item>, &'static str>;
    /// Writes the entries, which fit into the page.
    fn encode(items: &[Self::Item], page: &mut Page);
    /// Returns the bytes of a page with these entries.
    fn bytes(items: &[Self::Item]) -> usize;
    /// Returns the child that an entry of an inner node points to.
    fn child(item: &Self::Item) -> PageId;
    /// Returns the parent entry of a node with these entries; `old` is its previous entry, if there was one.
    fn point_to(page: PageId, items: &[Self::Item], old: Option<&Self::Item>) -> Self::Item;
    /// Splits entries that do not fit into one node, so that each part fits and neither is empty.
    fn split(items: Vec<Self::Item>) -> (Vec<Self::Item>, Vec<Self::Item>);
    /// Returns the sibling with which a node is merged.
    fn neighbour(items: &[Self::Item], index: usize) -> usize;
    /// Joins the entries of two neighbours into one node; `pointer` pointed to the second one.
    fn join(left: Vec<Self::Item>, right: Vec<Self::Item>, pointer: &Self::Item, level: u32) -> Vec<Self::Item>;
}

/// Returns the children that an inner page names; none if it is broken.
pub(crate) fn children<K: Shape>(page: &Page) -> Vec<PageId> {
    K::decode(page).map_or(Vec::new(), |items| items.iter().map(K::child).collect())
}

impl<S: PageStore> Pages<S> {
    /// Returns the entries of a node.
    pub(crate) fn node<K: Shape>(&mut self, page: PageId, level: u32) -> Result<Vec<K::Item>, Error> {
        let bytes = self.fetch(page, level)?;
        K::decode(&bytes).map_err(|why| Error::Broken { page, why })
    }

    /// Writes a changed node; returns the entries that point to it: two if it was split, none if it is empty.
    pub(crate) fn put_node<K: Shape>(
        &mut self,
        old: PageId,
        level: u32,
        items: Vec<K::Item>,
        pointer: Option<&K::Item>,
    ) -> Result<Vec<K::Item>, Error> {
        if items.is_empty() {
            self.drop_page(old);
            return Ok(Vec::new());
        }
        if K::bytes(&items) <= PAGE_BYTES {
            let page = self.put(Some(old), level, items.len(), |page| K::encode(&items, page))?;
            return Ok(vec![K::point_to(page, &items, pointer)]);
        }
        let (left, right) = K::split(items);
        let first = self.put(Some(old), level, left.len(), |page| K::encode(&left, page))?;
        let second = self.put(None, level, right.len(), |page| K::encode(&right, page))?;
        Ok(vec![K::point_to(first, &left, pointer), K::point_to(second, &right, None)])
    }

    /// Takes the changes of a child into its parent's entries, and joins the child with a neighbour if little is left.
    pub(crate) fn replace<K: Shape>(
        &mut self,
        items: &mut Vec<K::Item>,
        index: usize,
        parts: Vec<K::Item>,
        child_level: u32,
    ) -> Result<(), Error> {
        let one = parts.len() == 1;
        items.splice(index..=index, parts);
        if !one || items.len() < 2 {
            return Ok(());
        }
        let child = self.node::<K>(K::child(&items[index]), child_level)?;
        if K::bytes(&child) >= BYTES_MIN {
            return Ok(());
        }
        let neighbour = K::neighbour(items, index);
        let (first, second) = (index.min(neighbour), index.max(neighbour));
        let (left_pointer, right_pointer) = (items[first].clone(), items[second].clone());
        let left = self.node::<K>(K::child(&left_pointer), child_level)?;
        let right = self.node::<K>(K::child(&right_pointer), child_level)?;
        let both = K::join(left, right, &right_pointer, child_level);
        self.drop_page(K::child(&right_pointer));
        let parts = self.put_node::<K>(K::child(&left_pointer), child_level, both, Some(&left_pointer))?;
        items.remove(second);
        items.splice(first..=first, parts);
        Ok(())
    }

    /// Takes the changes of the root: it may have been split, or be left with one child.
    pub(crate) fn replace_root<K: Shape>(&mut self, mut parts: Vec<K::Item>) -> Result<(), Error> {
        let height = self.head().height;
        if parts.len() > 1 {
            let root = self.put(None, height + 1, parts.len(), |page| K::encode(&parts, page))?;
            (self.head_mut().root, self.head_mut().height) = (root, height + 1);
            return Ok(());
        }
        let Some(only) = parts.pop() else {
            let root = self.put(None, 0, 0, |page| K::encode(&[], page))?;
            (self.head_mut().root, self.head_mut().height) = (root, 0);
            return Ok(());
        };
        self.head_mut().root = K::child(&only);
        while self.head().height > 0 {
            let (root, height) = (self.head().root, self.head().height);
            let items = self.node::<K>(root, height)?;
            let [only] = &items[..] else { break };
            let child = K::child(only);
            self.drop_page(root);
            (self.head_mut().root, self.head_mut().height) = (child, height - 1);
        }
        Ok(())
    }
}
