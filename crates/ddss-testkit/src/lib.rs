//! What the tests with real processes share, and the rules of the house as functions.
//!
//! * [`Daemon`] is a real `ddssd` in a process of its own, in a folder of its own, on an address of its own. It can be
//!   killed, stopped and started again, and is gone when the test is.
//! * [`Process`] is any other program, with the same end. [`binary`] and [`example`] build the programs of
//!   the workspace and find them.
//! * [`ScriptedClient`] is a process that uses the client crate and does what its test tells it, call by call.
//! * [`Islands`] is a network of namespaces in which nodes can be cut off from each other.
//! * [`Besieged`] is a node with attackers of another user, [`Surrounded`] one of a cluster with attackers from the network.
//! * [`schema_complaints`] holds a command's JSON against its schema.
//! * [`commands`] tells which commands and flags `ddss` has, and [`say`] what it answers; [`Terminal`] is where people are
//!   told it.
//! * [`Closet`] holds small file systems, to be filled up.
//! * [`retry`] tries again until nodes have met.
//! * [`skipped`] says that a test lacks what it needs, where the reader sees it.
//! * [`repo_lints`] reads the workspace and says what breaks its rules; `tests/tests/lints/tree.rs` holds the rules themselves.
//!
//! ```no_run
//! use ddss_testkit::Daemon;
//!
//! // Two nodes on one machine, each with the other as its peer.
//! let [mut a, b] = Daemon::pair()?;
//! a.kill()?;
//! a.start_again()?;
//! println!("clients attach at {} and {}", a.socket().display(), b.socket().display());
//! # Ok::<(), ddss_testkit::Error>(())
//! ```
#![forbid(unsafe_code)]

mod binary;
mod block_on;
mod commands;
mod environment;
mod error;
mod nodes;
#[cfg(doctest)]
mod readme;
pub mod repo_lints;
mod retry;

pub use binary::{binary, example, static_programs, static_target};
pub use block_on::block_on;
pub use commands::command_tree::{Flags, commands};
pub use commands::run::{Said, say};
pub use commands::schema::schema_complaints;
pub use commands::terminal::{Terminal, say_in_terminal};
pub use environment::netns::{Cut, Islands};
pub use environment::private_mounts::Closet;
pub use environment::skipped::skipped;
pub use error::Error;
pub use nodes::attacked_member::Surrounded;
pub use nodes::daemon::{Daemon, DaemonOptions, TEST_KEY, write_key};
pub use nodes::process::Process;
pub use nodes::scripted_client::{ScriptedClient, pattern};
pub use nodes::temp_node::{TempNode, free_tcp_port};
pub use nodes::victim_node::Besieged;
pub use retry::retry;
