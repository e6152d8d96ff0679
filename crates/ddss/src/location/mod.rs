//! State of a handle, the plans of its calls, and the mapping of its segment for reads in place.

pub(crate) mod entry_change;
pub(crate) mod local_read;
mod location;
pub(crate) mod ranges;

pub(crate) use location::{SegmentLocation, checked_name, shape_of};
