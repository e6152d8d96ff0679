//! How something that went wrong is told to a person.

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

/// How many letters one word is from another.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], index + 1);
        for (at, theirs) in other.iter().enumerate() {
            let next = (before + usize::from(letter != *theirs)).min(row[at] + 1).min(row[at + 1] + 1);
            before = std::mem::replace(&mut row[at + 1], next);
        }
    }
    row[other.len()]
}
