//! The engine of one rank.
//!
//! `state` holds data and its invariants. `flush` closes intervals and applies diffs, `page` fetches and serves pages, `sync`
//! acquires and releases. Each of these uses only those before it.

mod accesses;
mod action;
mod call;
mod context;
mod dispatch;
mod event;
mod fault_injection;
mod flush;
mod memory;
mod page;
mod state;
mod statistics;
mod sync;
mod tag;

pub use accesses::{Accesses, common_ranges, concurrent, merge_ranges};
pub use action::{Action, Area, LocalPlace, Output, Payload};
pub use call::{CallId, Failure, Request};
pub use dispatch::Engine;
pub use event::Event;
#[cfg(feature = "planted")]
pub use fault_injection::Bug;
pub use memory::Memory;
pub use state::HotPage;
pub use statistics::Statistics;
pub use tag::Tag;
