//! Calls before they are sent: `call_plan.rs` has the plan of any call, the other files what special calls send and how
//! their replies are decoded.

mod call_plan;
pub(crate) mod listing;
pub(crate) mod priority;
pub(crate) mod read_window;
pub(crate) mod transfer;
pub(crate) mod write_buffer;

pub(crate) use call_plan::{CallPlan, Decoder, Outgoing, PlannedCall, Reply, list_bytes};
