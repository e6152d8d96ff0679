//! What a handle of a segment can do besides get and put.

pub(crate) mod atomics;
pub(crate) mod batch;
pub(crate) mod break_lock;
pub(crate) mod local_read;
pub(crate) mod lock;
pub(crate) mod metadata;
pub(crate) mod typed;
pub(crate) mod vectored;
pub(crate) mod watch;
