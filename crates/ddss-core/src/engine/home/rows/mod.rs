//! Operations on rows of tables: `records.rs` decides them, and `entries.rs` the changes of a map's entries.

pub(crate) mod entries;
#[cfg(test)]
mod entry_tests;
pub(crate) mod records;
