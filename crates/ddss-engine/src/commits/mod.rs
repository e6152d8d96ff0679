//! Commits: the next version of a segment or of a row, by a handler that calls no other part.

pub(crate) mod handler;
