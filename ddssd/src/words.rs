//! How an error is told to a person.

use std::error::Error;

/// An error and its causes in one line. A cause that the words before it tell already is left out.
///
/// ```
/// let error = std::io::Error::other("the disk is full");
/// assert_eq!(ddssd::in_one_line(&error), "the disk is full");
/// ```
pub fn in_one_line(error: &dyn Error) -> String {
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
