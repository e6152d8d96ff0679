//! Processes that work on one state together. A process commits its result if no other process committed first.
//! Otherwise, or if it fails, it restarts from the last commit.
//!
//! The state is one segment with the model `Version`: a put names the version that it replaces, and has no effect if
//! there is a newer one. So a commit needs no lock, no process waits for a dead one, and no partial state is visible.
//!
//! * [`State`] proves itself: it carries its own version, a checksum, and a number that follows from all commits before.
//! * [`Member`] is one process: it works, commits, fails now and then, and restarts from the last commit.
//! * [`Campaign`] starts many processes and kills them at random; a process that finds a state that no process
//!   committed reports it.

mod kill_campaign;
mod state;
mod worker;

pub use kill_campaign::{Campaign, Outcome, Where};
pub use state::State;
pub use worker::{CommitCounts, Member};
