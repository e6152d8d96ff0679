//! The table of a flow: its rows, and the calls.

mod rows;
mod table;

pub use rows::FlowStatus;
pub(crate) use rows::{Founder, MEMBERS_MAX, MemberRow, StatusRow, Verdict};
pub(crate) use table::{FlowTable, edge_name, group_name, table_name};
