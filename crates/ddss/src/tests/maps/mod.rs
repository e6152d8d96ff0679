//! Tests of maps.

mod batches;
mod calls;
mod conditions;
mod map;
mod updates;
mod watches;
