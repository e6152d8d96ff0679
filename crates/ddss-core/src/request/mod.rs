//! Protocol between a client and its daemon. `request.rs` and `completion.rs` define the ring entries, `operation.rs`
//! the operations in them; `row_list.rs` defines rows in the arena. `inline_request.rs` recognises the most
//! frequent entries, and `entry_change.rs` defines changes of a map's entries.

pub(crate) mod completion;
pub(crate) mod entry_change;
pub(crate) mod inline_request;
pub(crate) mod operation;
pub(crate) mod request;
pub(crate) mod row_list;
