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
//! * [`house`] reads the workspace and says what breaks its rules; `tests/tidy.rs` holds the rules themselves.
//!
//! ```no_run
//! use ddss_tests::Daemon;
//!
//! // Two nodes on one machine, each with the other as its peer.
//! let [mut a, b] = Daemon::pair()?;
//! a.kill()?;
//! a.start_again()?;
//! println!("clients attach at {} and {}", a.socket().display(), b.socket().display());
//! # Ok::<(), ddss_tests::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod house;

mod besieged;
mod binary;
mod closet;
mod daemon;
mod error;
mod future;
mod islands;
mod node;
mod process;
#[cfg(doctest)]
mod readme;
mod retry;
mod said;
mod schema;
mod scripted;
mod skipped;
mod surrounded;
mod terminal;
mod tree;

pub use besieged::Besieged;
pub use binary::{binary, example, static_programs, static_target};
pub use closet::Closet;
pub use daemon::{Daemon, DaemonOptions, TEST_KEY, write_key};
pub use error::Error;
pub use future::block_on;
pub use islands::{Cut, Islands};
pub use node::{TempNode, free_tcp_port};
pub use process::Process;
pub use retry::retry;
pub use said::{Said, say};
pub use schema::schema_complaints;
pub use scripted::{ScriptedClient, pattern};
pub use skipped::skipped;
pub use surrounded::Surrounded;
pub use terminal::{Terminal, say_in_terminal};
pub use tree::{Flags, commands};
