//! Locks and watches of segments at home here, by two handlers that call no other part: `handler.rs` grants and ends locks
//! and the waits for them, `watches.rs` reports new versions. The home decides about an operation, and serves the queue.

pub(crate) mod handler;
pub(crate) mod watches;
