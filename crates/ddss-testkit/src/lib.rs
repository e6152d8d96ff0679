//! Processes, networks and repository lints for tests.
//!
//! This crate starts real programs and isolates them. It holds no tests of DDSS itself: those are in `tests/` and
//! beside the code.
//!
//! * [`Daemon`] is a real `ddssd` process with its own directory and address. A test can kill, stop and restart it.
//! * [`Process`] is any other program; dropping it kills the program. [`binary`], [`application`] and [`example`] build the programs of
//!   the workspace.
//! * [`copy_program`] copies a program to a place where another user can start it.
//! * [`ScriptedClient`] is a client process that executes one call for each line that its test sends.
//! * [`NetworkNamespaces`] is a network whose nodes can be partitioned from each other.
//! * [`VictimNode`] is a node with local attackers of another user, [`VictimMember`] a cluster node with attackers on
//!   the network.
//! * [`run_ddss`] runs the command line and [`Terminal`] runs it in a pseudo-terminal. [`commands`] lists its commands
//!   and flags.
//! * [`schema_complaints`] validates the JSON of a command against its schema.
//! * [`public_api()`] lists the interface of a crate, for `scripts/public-api`.
//! * [`PrivateMounts`] holds small file systems that a test can fill up.
//! * [`Random`] is a seeded generator, and [`pattern`] the bytes of a seed.
//! * [`SetOnDrop`] ends the threads of a test that fails.
//! * [`retry`] repeats a call until nodes are connected.
//! * [`skipped`] reports a test that lacks a privilege or a program.
//! * [`repo_lints`] reads the workspace and reports violations; `tests/tests/lints/tree.rs` holds the rules themselves.
//!
//! ```no_run
//! use ddss_testkit::Daemon;
//!
//! // Two nodes on one machine, each with the other as its peer.
//! let [mut a, b] = Daemon::pair()?;
//! a.kill()?;
//! a.restart()?;
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
mod program_copy;
mod public_api;
mod random;
#[cfg(doctest)]
mod readme;
pub mod repo_lints;
mod retry;
mod set_on_drop;

pub use binary::{application, binary, dsm_library, example, preload_library, static_programs, static_target};
pub use block_on::block_on;
pub use commands::command_tree::{Flags, commands};
pub use commands::run::{CommandOutput, run_ddss};
pub use commands::schema::schema_complaints;
pub use commands::terminal::{Terminal, run_ddss_in_terminal};
pub use environment::netns::{LinkFault, NetworkNamespaces};
pub use environment::private_mounts::PrivateMounts;
pub use environment::skipped::skipped;
pub use error::Error;
pub use nodes::daemon::{Daemon, DaemonOptions, TEST_KEY, allow_founding, write_key};
pub use nodes::process::Process;
pub use nodes::scripted_client::ScriptedClient;
pub use nodes::temp_node::{TempNode, free_tcp_port};
pub use nodes::victim_member::VictimMember;
pub use nodes::victim_node::VictimNode;
pub use program_copy::{copy_program, write_program};
pub use public_api::{CrateDocs, Docs, PublicApi, public_api};
pub use random::{Random, pattern};
pub use retry::retry;
pub use set_on_drop::SetOnDrop;
