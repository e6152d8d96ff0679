//! Operations on rows of tables: `records.rs` decides them, `entries.rs` the changes of a map's entries, and
//! `map_sweep.rs` frees expired entries of maps.

pub(crate) mod entries;
#[cfg(test)]
mod entry_tests;
pub(crate) mod map_sweep;
#[cfg(test)]
mod map_sweep_tests;
pub(crate) mod records;
#[cfg(test)]
mod row_lock_tests;
