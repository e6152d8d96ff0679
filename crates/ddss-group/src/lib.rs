//! A named group of processes on one or several nodes: members, liveness, and an authenticated connection to each.
//!
//! A group is a table of DDSS. Its owner and mode decide who may join. A process takes a place in it ([`Membership`]), brings a
//! fabric of its own, and connects to the others ([`Mesh`]). [`Group`] joins the two, and reports each member as seen, up, left
//! or lost. [`Driver`] polls a group and its fabric on a service thread.
//!
//! - A daemon that restarts ends no group: members go on with their connections, and take their locks again.
//! - A member is lost when its connection ends; when it is connected and silent for a second, and its lock is free; when it is
//!   not connected, and its lock is free for longer than a living member needs to take it again; or when it is silent for longer
//!   than its lease. A free lock alone proves nothing: it ends with the daemon of its home.
//! - Messages are sealed with a key that the directory keeps. One-sided transfers are not.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod directory;
mod driver;
mod endpoint;
mod group;
mod inspect;
mod join;
mod member;
mod membership;
mod mesh;
mod news;
mod probe;
mod remote_window;
mod wake;
mod watcher;

pub use ddss_auth::Context;
pub use directory::{NOTE_BYTES, Note, Row, RowError, members_of};
pub use driver::{Driver, Happened};
pub use endpoint::Endpoint;
pub use group::{Group, GroupEvent, LostReason};
pub use inspect::{GroupInfo, MemberInfo, count_living, inspect};
pub use join::{JoinError, JoinOptions};
pub use member::{Incarnation, MEMBERS_MAX, Member};
pub use membership::{GroupState, Membership};
pub use mesh::{DownReason, Mesh, MeshConfig, MeshEvent, SendError, Verifier};
pub use news::Change;
pub use remote_window::RemoteWindow;
pub use wake::Wake;
