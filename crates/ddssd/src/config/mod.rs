//! Settings of the daemon.
//!
//! `arguments.rs` is the command line and `settings.rs` merges flags, environment and file into the `Config` of
//! `config.rs`. The other files parse and check single values: sizes, addresses, log levels, quotas. `preflight.rs`
//! checks a configuration against the system without a start.

pub(crate) mod accounts;
pub(crate) mod arguments;
pub(crate) mod byte_size;
pub(crate) mod config;
pub(crate) mod env_check;
pub(crate) mod host_port;
pub(crate) mod log_levels;
pub(crate) mod preflight;
pub(crate) mod quota_rules;
pub(crate) mod settings;
pub(crate) mod toml;
