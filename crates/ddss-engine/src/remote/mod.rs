//! Operations on segments whose home is another node (`call.rs`). `handler.rs` names the state that they borrow. Gets are
//! one-sided reads through `windows.rs` (`remote_get.rs`, several rows `row_gets.rs`), executed by the home (`served_get.rs`), or
//! answered from cached copies (`cached_gets.rs`, whose memory is in `cached_copies.rs`). All other operations are calls and their
//! answers (`remote_ops.rs`); `call_ends.rs` ends them. `granted_locks.rs` and `name_lookup.rs` use what this node knows of locks
//! and names elsewhere.

pub(crate) mod cached_copies;
pub(crate) mod cached_gets;
pub(crate) mod call;
pub(crate) mod call_ends;
pub(crate) mod granted_locks;
pub(crate) mod handler;
pub(crate) mod name_lookup;
pub(crate) mod remote_get;
pub(crate) mod remote_ops;
pub(crate) mod row_gets;
pub(crate) mod served_get;
pub(crate) mod windows;

#[cfg(test)]
mod tests;
