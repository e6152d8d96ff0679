//! Tables and maps with real daemons.

mod maps;
mod rows;
