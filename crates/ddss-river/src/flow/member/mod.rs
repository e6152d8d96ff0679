//! A member of a flow: its instances, and the thread that watches the others.

mod module;
mod monitor;
mod outcome;

pub(crate) use module::Body;
pub use module::{Context, Module};
pub(crate) use monitor::Monitor;
pub(crate) use outcome::{Outcome, Progress};
