//! Tables and maps with real daemons.

mod maps;
mod row_locks;
mod rows;
