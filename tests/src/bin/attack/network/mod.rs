//! Attacks from the network, without the cluster key and by members that have it.
//!
//! - [`target`] holds the attacker's knowledge and its sockets. [`frames`] builds iWARP by hand, and [`noise`] the
//!   handshake: a second implementation of `docs/protocol.md`, in which each field can be wrong.
//! - [`unauthenticated`] (data port), [`replay`] (an old first message), [`impersonation`] (of a node) and
//!   [`control_port`] (control and metrics ports) have no key.
//! - [`member`] has the key; [`member_requests`], [`malformed_frames`] and [`control_messages`] are its attacks.
//! - [`catalog`] lists all of them.

mod catalog;
mod control_messages;
mod control_port;
mod frames;
mod impersonation;
mod malformed_frames;
mod member;
mod member_requests;
mod noise;
mod replay;
mod target;
mod unauthenticated;

pub(crate) use catalog::{MEMBERS, NetworkAttack, UNAUTHENTICATED};
pub(crate) use target::Target;
