//! DDSS itself: real daemons in processes of their own, and the client of the process that measures.
//!
//! Nothing here is a stand-in. `ping`, `get` and `put` are the calls that everybody uses; what has many operations
//! under way writes the same requests into the same ring, because the client crate waits for each of its calls.

mod calls;
mod cluster;
mod crowd;
mod echo;
mod fabric;
mod idle;
mod pipeline;

pub use calls::{Kind, call, near_get, ping};
pub use cluster::{Cluster, PLACEMENTS, Placement};
pub use crowd::{Crowd, run_crowd};
pub use echo::{Echo, echo};
pub use fabric::{FabricOp, FabricPair, one_sided};
pub use idle::{first, trickle};
pub use pipeline::{Task, pipeline};
