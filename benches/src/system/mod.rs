//! DDSS itself: real daemons in processes of their own, and the client of the process that measures.
//!
//! Nothing here is a stand-in. `ping`, `get` and `put` are the calls that everybody uses; what has many operations
//! under way writes the same requests into the same ring, because the client crate waits for each of its calls.

mod cable;
mod calls;
mod client_processes;
mod cluster;
mod echo;
mod fabric;
mod idle;
mod many_clients;
mod pipeline;
mod steps;
mod traced;
mod window;

pub use cable::Cable;
pub use calls::{Kind, Word, atomic, call, near_get, ping};
pub use client_processes::{Members, run_as_member, run_members};
pub use cluster::{Cluster, PLACEMENTS, Placement};
pub use echo::{Echo, echo};
pub use fabric::{FabricOp, FabricPair, one_sided};
pub use idle::{first, idle, paced};
pub(crate) use many_clients::run_threads;
pub use many_clients::{Crowd, Task as Repeated, run_crowd, run_tasks};
pub use pipeline::{Task, pipeline};
pub use steps::{Stepped, stepped_gets};
pub use traced::{Calls, system_calls};
pub use window::read_window;
