//! Operations on segments whose home is another node (`call.rs`). `handler.rs` names the state that they borrow. Gets are
//! one-sided reads (`remote_get.rs`, several rows `row_gets.rs`), executed by the home (`served_get.rs`) or answered from
//! `read_cache.rs`; all other operations are calls and their answers (`remote_ops.rs`). `remote_locks.rs` and `name_lookup.rs`
//! use what this node knows of locks and names
//! elsewhere; `cancel.rs` ends calls that their caller gave up.

pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod handler;
pub(crate) mod name_lookup;
pub(crate) mod read_cache;
pub(crate) mod remote_get;
pub(crate) mod remote_locks;
pub(crate) mod remote_ops;
pub(crate) mod row_gets;
pub(crate) mod served_get;

#[cfg(test)]
mod tests;
