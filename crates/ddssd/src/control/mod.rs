//! The control plane: who is in the cluster, and which node is the home of which name. One Raft group, on a thread
//! of its own, apart from the progress thread; the two speak through a [`Desk`].
//!
//! Three or five nodes vote (one, where there are fewer than three), every other node learns, so a name is looked
//! up where it is asked for. What a node does not find it asks the leader about once, so that nobody is told *not
//! found* of what another node has made before.

mod admin;
mod call_batches;
mod calls;
mod desk;
mod directory;
mod founding;
mod held;
#[cfg(test)]
mod hostile;
mod identity;
mod incarnation;
mod keeper;
mod leaving;
mod log;
mod majority;
mod mirrors;
mod network;
mod pacing;
mod plane;
mod registration;
mod removal;
mod server;
mod snapshot;
mod stall;
mod stream_pool;
mod types;
mod watch;
mod wire;

pub use admin::{ADMIN_NAME, AdminAnswer, AdminAsk, NodeReport};
pub use plane::ControlError;

pub(crate) use desk::{Ask, Desk, Tell};
pub(crate) use identity::{Identity, forget, has_come_back, has_left};
pub(crate) use incarnation::Incarnation;
pub(crate) use network::{control_address, plane_address};
pub(crate) use plane::{ControlConfig, ControlPlane, DeskEnd, join};
