//! Output for people and scripts. `table` aligns rows, `listing`
//! describes segments, `value_format` converts bytes to numbers, text or JSON, and
//! `terminal_text` wraps sentences, removes control characters and prints errors as text or JSON.

pub(crate) mod listing;
pub(crate) mod table;
pub(crate) mod terminal_text;
pub(crate) mod value_format;
