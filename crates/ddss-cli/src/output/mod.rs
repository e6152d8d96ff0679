//! Tables, values and sentences for a terminal.

pub(crate) mod table;
pub(crate) mod terminal_text;
pub(crate) mod value_format;
