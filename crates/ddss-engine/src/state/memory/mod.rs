//! Memory of a node: areas by audience, extents in them, staging memory at peers, buffers of the engine.

pub(crate) mod areas;
pub(crate) mod buffer_pool;
pub(crate) mod extent_allocator;
pub(crate) mod staging;
pub(crate) mod uploads;
