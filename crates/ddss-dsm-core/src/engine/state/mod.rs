//! State of a rank. No file here knows the behaviour that uses it.

mod calls;
mod diff_queue;
mod fetches;
mod hot_pages;
mod intervals;
mod locks;
mod pages;
mod placements;
mod rendezvous;
mod served;
mod state;
mod sync_queue;
mod twins;

pub(crate) use diff_queue::QueuedDiff;
pub(crate) use fetches::Stage;
pub use hot_pages::HotPage;
pub(crate) use locks::Token;

pub(crate) use rendezvous::Rendezvous;
pub(crate) use served::ServedRequest;
pub(crate) use state::State;
pub(crate) use sync_queue::{Acquire, Acquired, PendingRelease, Release, Step};
