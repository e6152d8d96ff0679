//! The `ddss` command as people and scripts see it.

pub(crate) mod command_tree;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod terminal;
