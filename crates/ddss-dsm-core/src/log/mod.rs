//! The log: records of intervals in a ring that peers read.

mod record;

pub(crate) use record::{encode_record, read_record};
