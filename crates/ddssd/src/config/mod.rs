//! Configuration of the daemon.
//!
//! `config.rs` makes it of the settings of `ddss-admin`. `quota_table.rs` is the table of quotas, with names resolved by
//! `accounts.rs`; `name_resolution.rs` resolves nodes to join, and `addresses.rs` has a node's ports. `env_check.rs` finds
//! mistyped variables.

pub(crate) mod accounts;
pub(crate) mod addresses;
pub(crate) mod config;
pub(crate) mod env_check;
pub(crate) mod name_resolution;
pub(crate) mod quota_table;
