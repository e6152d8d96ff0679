//! Calls of a client and of its handles, compiled twice.
//!
//! The module `blocking` reads these files without their `async` and `.await`; the module `aio` reads them as they are.
//! Each of the two imports the attributes of `ddss-twin` under the same names, and brings the client and what differs: a
//! lock that is held, watches, lists and cursors. Values, options, plans and errors lie outside, and are compiled once.

use super::{
    Client, HeldLock, List, Watch, list_map, list_segments, only_aio, only_blocking, twin, watch_map, watch_rows,
    watch_versions,
};

mod allocate;
mod array;
mod batch;
mod break_lock;
mod cell;
mod get_put;
mod large_values;
mod lock;
mod metadata;
mod named;
mod segment;
mod tables;
mod vectored;
mod watch;
mod word;

pub use array::Array;
pub use cell::Cell;
pub use lock::LockGuard;
pub(crate) use metadata::SegmentPages;
pub use named::{Handle, Named};
pub use segment::Segment;
pub use tables::map_handle::Map;
pub(crate) use tables::map_scan::MapEntries;
pub(crate) use tables::map_watch::MapWatch;
pub use tables::row::Row;
pub use tables::table::Table;
pub use word::Word;
