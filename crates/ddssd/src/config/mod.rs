//! Settings: arguments, files, environment, and what they mean.

pub(crate) mod accounts;
pub(crate) mod arguments;
pub(crate) mod byte_size;
pub(crate) mod config;
pub(crate) mod env_check;
pub(crate) mod host_port;
pub(crate) mod log_levels;
pub(crate) mod preflight;
pub(crate) mod quotas;
pub(crate) mod settings;
pub(crate) mod toml;
