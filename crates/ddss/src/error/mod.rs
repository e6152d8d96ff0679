//! Errors of calls: their kinds, the type that callers see, and the reasons behind it.

#[allow(clippy::module_inception, reason = "the module is named for its main type")]
mod error;
mod kind;
pub(crate) mod reason;

pub use error::{Error, LimitReached};
pub use kind::ErrorKind;
