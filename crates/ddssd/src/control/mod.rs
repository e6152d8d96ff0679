//! The control plane: who is in the cluster, and which node is the home of which name. One Raft group, on a thread
//! of its own, apart from the progress thread; the two speak through a [`ControlBridge`].
//!
//! Three or five nodes vote (one, where there are fewer than three), every other node learns, so a name is looked
//! up where it is asked for. What a node does not find it asks the leader about once, so that nobody is told *not
//! found* of what another node has made before.

mod admin;
mod bridge;
#[cfg(test)]
mod control_attacks;
mod decommission;
mod failure_detector;
mod founding;
mod handshake_limit;
mod identity;
mod incarnation;
mod majority;
mod owned_names;
mod raft;
mod registration;
mod removal;
mod replication;
mod rpc;
mod runtime;
mod stall;

pub use admin::{ADMIN_NAME, AdminAnswer, AdminAsk, NodeReport};
pub use runtime::ControlError;

pub(crate) use bridge::{ControlBridge, ControlEvent, ControlRequest};
pub(crate) use identity::{Identity, forget, has_come_back, has_left};
pub(crate) use incarnation::Incarnation;
pub(crate) use raft::network::{control_address, plane_address};
pub(crate) use runtime::{BridgeEnd, ControlConfig, ControlPlane, join};
