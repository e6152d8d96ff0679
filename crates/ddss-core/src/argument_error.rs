//! Argument errors: a value out of range, in words.

use crate::failure::Failure;
use std::fmt::Display;

/// Argument that is out of range: its name, its value, and the valid values.
///
/// ```
/// # use ddss_core as ddss;
/// let refused = ddss::Spec::new(64).history(5000).check().expect_err("more than a segment history_len");
/// assert_eq!(refused.to_string(), "history is 5000, and may be 0 to 1024");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{argument} is {value}, and may be {range}")]
#[non_exhaustive]
pub struct BadArgument {
    /// Name of the argument.
    pub argument: &'static str,
    /// Its value, as the caller would write it.
    pub value: String,
    /// Valid values.
    pub range: String,
    /// Failure of a call with this argument.
    pub failure: Failure,
}

impl BadArgument {
    /// Makes an error with a description of the valid range.
    pub fn new(argument: &'static str, value: impl Display, range: impl Display, failure: Failure) -> Self {
        Self { argument, value: value.to_string(), range: range.to_string(), failure }
    }
}
