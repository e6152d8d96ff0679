//! Twins of the pages that the application may write.

use crate::model::PageId;
use std::collections::BTreeMap;

/// A page as its home knows it from this rank.
#[derive(Clone, Debug)]
pub(crate) struct Twin {
    pub(crate) bytes: Box<[u8]>,
    /// True if the last interval changed nothing.
    pub(crate) is_idle: bool,
}

/// All twins, and memory of earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Twins {
    open: BTreeMap<PageId, Twin>,
    free: Vec<Box<[u8]>>,
}

impl Twins {
    /// Returns memory for a twin.
    pub(crate) fn take_buffer(&mut self, page_bytes: u32) -> Box<[u8]> {
        self.free.pop().unwrap_or_else(|| vec![0; page_bytes as usize].into())
    }

    /// Gives memory back.
    pub(crate) fn give_buffer(&mut self, buffer: Box<[u8]>) {
        self.free.push(buffer);
    }

    pub(crate) fn insert(&mut self, page: PageId, bytes: Box<[u8]>) {
        self.open.insert(page, Twin { bytes, is_idle: false });
    }

    pub(crate) fn get_mut(&mut self, page: PageId) -> Option<&mut Twin> {
        self.open.get_mut(&page)
    }

    pub(crate) fn remove(&mut self, page: PageId) {
        if let Some(twin) = self.open.remove(&page) {
            self.free.push(twin.bytes);
        }
    }

    pub(crate) fn pages(&self) -> Vec<PageId> {
        self.open.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> u32 {
        self.open.len() as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
