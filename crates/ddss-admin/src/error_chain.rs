//! Presentation of errors to a person.

use std::error::Error;

/// Formats an error and its causes in one line. Omits a cause that the text before it already contains.
///
/// ```
/// let error = std::io::Error::other("the disk is full");
/// assert_eq!(ddss_admin::format_error_chain(&error), "the disk is full");
/// ```
pub fn format_error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
