//! Functions that programs in C call, as `ddss_dsm.h` declares them. Each checks its arguments and ends panics.

mod calls;
mod result;
mod variables;

pub(crate) use variables::{Variables, copy_bytes};
