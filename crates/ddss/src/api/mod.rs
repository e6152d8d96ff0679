//! Operations of a segment handle beyond get and put.
//!
//! Each file adds the methods of one subject to [`Segment`](crate::Segment) or [`Client`](crate::Client): atomics,
//! batches, locks, metadata, typed views, vectored access, version watches. `local_read` serves gets by a mapping of
//! the home's memory.

pub(crate) mod atomics;
pub(crate) mod batch;
pub(crate) mod break_lock;
pub(crate) mod local_read;
pub(crate) mod lock;
pub(crate) mod metadata;
pub(crate) mod typed;
pub(crate) mod vectored;
pub(crate) mod watch;
