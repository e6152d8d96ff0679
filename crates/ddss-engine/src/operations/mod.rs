//! Operations on segments whose home is this node, for its clients and for other nodes. `handler.rs` names the state that they
//! borrow. `execution.rs` executes gets, puts, atomics and locks, or queues them; `checks.rs` lies below it, and `changes.rs`, which
//! commits. In a table an operation reads its record first (`record_reads.rs`); `completions.rs` goes on with what was read, and
//! `entries.rs` changes the entries of maps. `lock_calls.rs` and `watch_calls.rs` have the other calls, `map_sweep.rs` frees expired
//! entries.

pub(crate) mod changes;
pub(crate) mod checks;
pub(crate) mod completions;
pub(crate) mod entries;
pub(crate) mod execution;
pub(crate) mod handler;
pub(crate) mod lock_calls;
pub(crate) mod map_sweep;
pub(crate) mod record_reads;
pub(crate) mod watch_calls;
