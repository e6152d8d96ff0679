//! Batches, which know handles of both forms: `batch.rs` has a batch and its replies, `target.rs` the handles that its calls
//! take. `call.rs` is one call, `put_call.rs` a put, `map_call.rs` a call on an entry of a map, `reply.rs` the result. `call_group.rs` runs
//! the calls of several shards together.

#[allow(clippy::module_inception, reason = "the folder is named for its main type")]
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod call_group;
pub(crate) mod map_call;
mod put_call;
pub(crate) mod reply;
pub(crate) mod target;

pub use batch::{Batch, Replies, Ticket};
pub use target::{MapTarget, Target};
