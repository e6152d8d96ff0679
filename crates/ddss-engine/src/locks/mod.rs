//! Locks of segments at home here and waits for them, by handlers that call no other part: `handler.rs` grants and ends locks and the
//! waits for them, `watches.rs` reports new versions, and `sweep_calls.rs` ends calls that wait for a sweep. `operations/` decides
//! about an operation, and serves the queue.

pub(crate) mod handler;
pub(crate) mod sweep_calls;
pub(crate) mod watches;
