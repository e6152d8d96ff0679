//! Operations of a client and of a segment handle.
//!
//! Each file adds the methods of one subject to [`Segment`](crate::Segment) or [`Client`](crate::Client): allocation,
//! get and put, large values, atomics, batches, locks, metadata, tables, typed views, vectored access, watches of versions and names.
//! `local_read` serves gets by a mapping of the home's memory, of which `mapped_areas` keeps track.

pub(crate) mod allocate;
pub(crate) mod atomics;
pub(crate) mod batches;
pub(crate) mod break_lock;
pub(crate) mod get_put;
pub(crate) mod large_values;
pub(crate) mod local_read;
pub(crate) mod lock;
pub(crate) mod mapped_areas;
pub(crate) mod metadata;
pub(crate) mod name_watch;
#[cfg(feature = "postcard")]
pub(crate) mod postcard_value;
pub(crate) mod tables;
pub(crate) mod typed;
pub(crate) mod vectored;
pub(crate) mod watch;
