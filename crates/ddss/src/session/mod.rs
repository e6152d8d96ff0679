//! A client's sessions with the runs of its node's daemon, and the home's memory that it maps from them.

pub(crate) mod ended;
pub(crate) mod mapped_areas;
pub(crate) mod of_process;
mod session;

pub(crate) use session::{AttachPlan, CallSettings, Inner, Session};
