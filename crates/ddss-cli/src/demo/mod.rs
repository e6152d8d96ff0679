//! The demonstration: two nodes and their clients, each a process of its own. A put here, a get there, what each
//! strategy costs, a client that is killed, and a daemon that is.
//!
//! - `actor`: one of those processes, seen from here.
//! - `node`, `client`: what runs in them.
//! - `stage`: starts them, and the two nodes know each other.
//! - `story`: what is shown, in order.

mod arguments;
mod child;
mod client;
mod cluster;
mod node;
mod script;

pub(crate) use arguments::{DemoClientOptions, DemoNodeOptions, DemoOptions};
pub(crate) use client::run as run_client;
pub(crate) use node::run as run_node;
pub(crate) use script::run;
