//! Tests of maps.

mod calls;
mod conditions;
mod map;
mod updates;
mod watches;
