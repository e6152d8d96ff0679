//! Batches: `batch.rs` makes calls of any kind together, `many_names.rs` those that make, find and free segments.

use super::{Client, twin};

pub(super) mod batch;
mod many_names;
