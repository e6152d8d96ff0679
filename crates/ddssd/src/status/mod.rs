//! Status of this daemon. The progress thread counts in private memory, and writes to a shared page from time to time
//! and before it sleeps. The page outlives the daemon. Readers need no reply and delay nothing.
//!
//! | file | purpose |
//! | --- | --- |
//! | `page.rs` | the file: created at each start; the one before is kept |
//! | `recorder.rs` | counts requests, clients and events; decides what is written when |
//! | `top_segments.rs` | the segments with the most calls, in a table of fixed size |
//! | `inflight.rs` | requests without an immediate reply, until they are answered |
//! | `raft_status.rs` | progress of the Raft group, for the metrics alone |
//!
//! `crates/ddss-core/src/status/` defines each word, and `docs/decisions/0019-status-page.md` the readers.

mod inflight;
mod page;
mod raft_status;
mod recorder;
mod top_segments;

pub(crate) use page::{PageIdentity, StatusPage, allow_readers, wall_us};
pub(crate) use raft_status::{RaftStatus, RaftValues};
pub(crate) use recorder::{ClientInfo, Gauges, Recorder};
