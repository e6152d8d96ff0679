//! Replicas here of segments at home elsewhere. `handler.rs` names the state that they borrow, `offers.rs` judges what homes offer,
//! `messages.rs` passes on what they send: `copies.rs`
//! stores the copy and the puts, `large_puts.rs` large puts.

pub(crate) mod copies;
pub(crate) mod handler;
pub(crate) mod large_puts;
pub(crate) mod messages;
pub(crate) mod offers;
