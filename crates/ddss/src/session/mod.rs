//! A client's sessions with the runs of its node's daemon, and the home's memory that it maps from them.

mod mapped_areas;
mod session;

pub(crate) use session::{AttachPlan, CallSettings, Inner, Session};
