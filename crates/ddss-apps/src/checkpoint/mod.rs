//! Processes that work on one state together: each commits what it made of it if nobody came before, and goes back to the
//! last commit if somebody did, or if it fails.
//!
//! The state is one segment whose model is `Version`: a put names the version that it is for, and does nothing if there is a
//! newer one. So a commit needs no lock, nobody waits for a process that died, and half a state is never there.
//!
//! * [`State`] proves itself: it carries its own version, a checksum, and a number that follows from all commits before.
//! * [`Member`] is one process: it works, commits, fails now and then, and restarts from what is there.
//! * [`Campaign`] starts many of them and kills them all along; any that finds a state that nobody committed says so.

mod kill_campaign;
mod state;
mod worker;

pub use kill_campaign::{Campaign, Outcome, Where};
pub use state::State;
pub use worker::{CommitCounts, Member};
