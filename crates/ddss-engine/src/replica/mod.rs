//! Replicas here of segments at home elsewhere. `handler.rs` names the state that they borrow, `offers.rs` judges what homes offer,
//! `messages.rs` passes on what they send: `copies.rs`
//! stores the copy and the puts, `forwarded_parts.rs` the parts of large puts.

pub(crate) mod copies;
pub(crate) mod forwarded_parts;
pub(crate) mod handler;
pub(crate) mod messages;
pub(crate) mod offers;
