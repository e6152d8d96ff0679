//! What this daemon tells of itself: counted by the progress thread in its own memory, and written by it, now and then and
//! before it sleeps, into a page that stays when the daemon ends. Nobody is asked, nothing waits.
//!
//! | file | what it does |
//! | --- | --- |
//! | `page.rs` | the file: made anew at each start, the one before it kept |
//! | `recorder.rs` | counts requests, clients, everything else; decides what is written when |
//! | `top_segments.rs` | the segments with the most calls, in a table that is never longer |
//! | `inflight.rs` | requests that were not answered at once, until they are |
//!
//! What each word means stands in `crates/ddss-core/src/status/`, who may read it in
//! `docs/decisions/0019-status-page.md`.

mod inflight;
mod page;
mod recorder;
mod top_segments;

pub(crate) use page::{PageIdentity, StatusPage, let_through, wall_us};
pub(crate) use recorder::{ClientSeen, Gauges, Recorder};
