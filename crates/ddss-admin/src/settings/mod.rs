//! Settings of a daemon.
//!
//! `arguments.rs` is the command line of `ddssd`, and `settings.rs` merges flags, environment and file. The other files
//! parse and check single values: sizes, addresses, log levels, quotas.

#[macro_use]
mod as_text;
pub(crate) mod arguments;
pub(crate) mod byte_size;
pub(crate) mod choices;
pub(crate) mod host_port;
pub(crate) mod log_levels;
pub(crate) mod quota_rule;
pub(crate) mod settings;
mod toml;
