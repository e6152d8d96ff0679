//! Tests of maps.

mod batches;
mod calls;
mod conditions;
mod handles;
mod map;
mod updates;
mod watches;
