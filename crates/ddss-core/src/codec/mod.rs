//! Encodings with several fields: `fields.rs` has that of each type, `message_codec.rs` those of messages, and `listing.rs` those of
//! lists of segments in the arena.

mod fields;
pub(crate) mod listing;
mod message_codec;
