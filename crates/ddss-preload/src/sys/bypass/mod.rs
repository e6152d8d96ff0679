//! Calls past libc's usual names: by number, by other names, by liburing, and by instructions of loaded code.

mod liburing;
mod raw_calls;
mod syscall;

pub(crate) use raw_calls::look as look_for_raw_calls;
pub(super) use raw_calls::{look_before_fork, start};
