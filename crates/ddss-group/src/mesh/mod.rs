//! Connections between the members of a group, over any fabric.
//!
//! Of two members the one with the higher number connects. Both know each other's run from the directory, and prove with the
//! handshake of `ddss-auth` that they have the key of the group. Every message is sealed. An incoming connection is
//! authentic with its first message that opens: its hello could be a replay.
//!
//! ```text
//!   higher number:  Idle ── connect ──► Connecting ── Connected ──► Up (sends Welcome)
//!   lower number:   Idle ── request, accepted ──► Candidate ── first message opens ──► Up
//! ```
//!
//! A connection that ends is not made again: its member has left or is lost. The next process in its place has another run.

mod link;
mod links;
#[cfg(test)]
mod tests;
mod verifier;

pub use links::{DownReason, Mesh, MeshConfig, MeshEvent, SendError};
pub use verifier::Verifier;
