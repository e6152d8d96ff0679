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
mod failure_detector;
mod handshake_limit;
mod majority;
mod membership;
mod owned_names;
mod raft;
mod replication;
mod rpc;
mod runtime;
mod stall;

pub use admin::{ADMIN_NAME, AdminAnswer, AdminAsk, NodeReport};
pub use runtime::ControlError;

pub(crate) use bridge::{ControlBridge, ControlEvent, ControlRequest};
pub(crate) use membership::identity::{Identity, forget, has_come_back, has_left};
pub(crate) use membership::incarnation::Incarnation;
pub(crate) use raft::network::{control_address, plane_address};
pub(crate) use runtime::{BridgeEnd, ControlConfig, ControlPlane, join};
