//! Attackers from the network: those without the cluster's key, and members that have it and keep to no rule.
//!
//! - [`road`] is what an attacker knows, and sockets; [`frames`] makes iWARP by hand, [`shake`] the handshake: a second
//!   reading of `docs/protocol.md`, so that anything can be said wrong.
//! - [`doors`] (the data port), [`recorded`] (with an old first message), [`places`] (in a node's place) and [`control`]
//!   (the control port and the metrics) have no key; [`member`] has it, and [`lies`], [`mistakes`] and [`nonsense`] are what it
//!   does with it.
//! - [`list`] is all of it.

mod control;
mod doors;
mod frames;
mod lies;
mod list;
mod member;
mod mistakes;
mod nonsense;
mod places;
mod recorded;
mod road;
mod shake;

pub(crate) use list::{MEMBERS, STRANGERS, Sortie};
pub(crate) use road::Target;
