//! A B-tree and an R-tree on pages, for many readers and one writer at a time.
//!
//! **No page that a tree reaches is ever changed.** A writer copies the pages on its way into free ones, changes the
//! copies, and finally writes page 0, the *head*, which names the root. This one write makes all changes visible. So:
//!
//! * A writer that dies at any point leaves the tree unchanged, on every store with atomic page writes.
//! * A reader reads the head, and sees this version of the tree to its end, in spite of later commits.
//! * The head also lists the free pages, so a crash loses none.
//!
//! A page carries the number of the commit that it was written for (*born*). A reader so slow that one of its pages was
//! reused sees a page born after its head, and starts again. That check is exact; no reader takes a lock.
//!
//! Writers exclude each other by [`PageStore::begin_write`](crate::storage::PageStore::begin_write): on DDSS the
//! segment's lock, whose token comes with every put. A writer that has lost the lock (its lease expired, its node was
//! cut off) is refused.

mod btree;
pub mod crash_workload;
mod meta_page;
mod node;
mod operations;
mod pages;
mod rtree;
mod verify;

pub use btree::{BTree, KEY_BYTES_MAX, Pair, VALUE_BYTES_MAX};
pub use operations::Tree;
pub use rtree::{RTree, Rect};
pub use verify::Census;
