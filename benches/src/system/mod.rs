//! DDSS under measurement: real daemons in processes of their own, and the client in the measuring process.
//!
//! `ping`, `get` and `put` are the public calls. Measurements with many operations outstanding write the same requests
//! into the same ring, because the client crate waits for each of its calls.

mod calls;
mod client_processes;
mod cluster;
mod echo;
mod fabric;
mod idle;
mod many_clients;
mod pipeline;
mod shared_core;
mod steps;
mod syscall_count;
mod window;

pub use crate::harness::VethPair;
pub use calls::{Kind, Word, atomic, call, near_get, ping};
pub use client_processes::{Members, run_as_member, run_members};
pub use cluster::{Cluster, PLACEMENTS, Placement};
pub use echo::{Echo, echo};
pub use fabric::{FabricOp, FabricPair, one_sided};
pub use idle::{first, idle, paced};
pub(crate) use many_clients::run_threads;
pub use many_clients::{Crowd, Task as Repeated, run_crowd, run_tasks};
pub use pipeline::{Task, pipeline};
pub use shared_core::line_turns;
pub use steps::{Stepped, stepped_gets};
pub use syscall_count::{Calls, system_calls};
pub use window::read_window;
