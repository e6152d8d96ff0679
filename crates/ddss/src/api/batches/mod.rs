//! Calls that are submitted together: [`Batch`](crate::Batch) over segments, and calls that make, find or free many
//! segments by name.

pub(crate) mod batch;
pub(crate) mod batch_call;
mod many_names;
