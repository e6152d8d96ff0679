//! Tables: many rows under one name, each with a version of its own. `table.rs` moves bytes, `typed_table.rs` values.

pub(crate) mod table;
pub(crate) mod typed_table;
