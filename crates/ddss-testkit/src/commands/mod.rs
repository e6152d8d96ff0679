//! Runs of the `ddss` command, with its output as people and as scripts see it.
//!
//! `run` captures output, `terminal` gives the program a pseudo-terminal, `command_tree` lists commands and flags, and
//! `schema` validates JSON.

pub(crate) mod command_tree;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod terminal;
