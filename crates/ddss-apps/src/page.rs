//! A page and its number.

use std::fmt;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 8192;

/// The bytes of a page.
pub type Page = [u8; PAGE_BYTES];

/// The number of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl fmt::Display for PageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "page {}", self.0)
    }
}

impl PageId {
    /// Returns the offset of the page, where pages are stored one after the other.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_BYTES as u64
    }
}

/// Returns a page of zeros.
pub fn new_page() -> Box<Page> {
    // Not `Box::new([0; ..])`, which a debug build first builds on the stack.
    vec![0; PAGE_BYTES].into_boxed_slice().try_into().expect("it has the bytes of a page")
}
