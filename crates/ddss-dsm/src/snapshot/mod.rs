//! Snapshots: an array that one process publishes, version by version, and that readers on all nodes hold in their memory.
//!
//! A snapshot is a table of DDSS, and so it outlives its publisher. Row 0 is the *root*, every other row a *frame* with a page of
//! the array or of its map. The root names the frames of the map, and the map those of the pages. A publisher writes the pages
//! that have changed into free frames, then the map, then the root: readers see all of it or nothing.
//!
//! A frame has a header with its page and the generation that wrote it. A reader of an older generation finds another header once
//! the frame is used again, and never takes bytes of a page for those of another generation.

/// The asynchronous form.
pub mod aio;
mod blocking;
mod error;
mod layout;
mod publisher;
mod reader;

pub use blocking::Snapshot;
pub use error::SnapshotError;
pub use publisher::{Publisher, PublisherOptions};
