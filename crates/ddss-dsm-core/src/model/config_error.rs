//! The error of settings.

/// A setting outside its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot use {0} {1}: see the limits of a space")]
pub struct ConfigError(pub &'static str, pub u64);
