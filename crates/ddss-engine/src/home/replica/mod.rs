//! Replicas here of segments at home elsewhere: `copies.rs` stores the copy and the puts, `large_puts.rs` large puts.

pub(crate) mod copies;
pub(crate) mod large_puts;
