//! Operations that both kinds of tree have in common.

use std::marker::PhantomData;

use super::node::{Shape, children};
use super::pages::Pages;
use crate::Error;
use crate::storage::PageStore;

/// A tree on pages, of one kind.
#[derive(Debug)]
pub struct Tree<K, S> {
    pub(super) pages: Pages<S>,
    kind: PhantomData<K>,
}

#[expect(private_bounds, reason = "the kinds of trees are those of this crate")]
impl<K: Shape, S: PageStore> Tree<K, S> {
    fn of(pages: Pages<S>) -> Self {
        Self { pages, kind: PhantomData }
    }

    /// Creates an empty tree, which overwrites the store.
    pub fn create(store: S) -> Result<Self, Error> {
        Pages::create(store, K::SORT).map(Self::of)
    }

    /// Opens an existing tree.
    pub fn open(store: S) -> Result<Self, Error> {
        Pages::open(store, K::SORT).map(Self::of)
    }

    /// Sets the number of pages that are in flight or processed together: one half arrives while the other is processed. 1 reads one
    /// after the other.
    #[must_use]
    pub fn batch(mut self, pages: usize) -> Self {
        self.pages.set_batch(pages);
        self
    }

    /// Returns the store.
    pub fn store_mut(&mut self) -> &mut S {
        self.pages.store_mut()
    }

    /// Returns the number of values in the version that was read last.
    pub fn len(&self) -> u64 {
        self.pages.head().items
    }

    /// Returns true if that version has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes the only writer, runs `change`, and commits all its changes atomically; none of them if `change` fails.
    /// `change` reads the newest version with its own changes.
    pub fn write<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.pages.begin(children::<K>)?;
        match change(self) {
            Ok(done) => self.pages.commit().map(|()| done),
            Err(error) => {
                self.pages.abandon()?;
                Err(error)
            }
        }
    }
}
