//! An argument that is out of its range, in words.

use crate::failure::Failure;
use std::fmt::Display;

/// An argument that was refused: its name, its value, and the values that it may have.
///
/// ```
/// let refused = ddss_core::Spec::new(64).history(5000).check().expect_err("more than a segment keeps");
/// assert_eq!(refused.to_string(), "history is 5000, and may be 0 to 1024");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{argument} is {value}, and may be {range}")]
#[non_exhaustive]
pub struct BadArgument {
    /// Its name.
    pub argument: &'static str,
    /// Its value, as the caller would write it.
    pub value: String,
    /// The values that it may have.
    pub range: String,
    /// The failure of a call that has it.
    pub failure: Failure,
}

impl BadArgument {
    /// An argument with what is wrong about it.
    pub fn new(argument: &'static str, value: impl Display, range: impl Display, failure: Failure) -> Self {
        Self { argument, value: value.to_string(), range: range.to_string(), failure }
    }
}
