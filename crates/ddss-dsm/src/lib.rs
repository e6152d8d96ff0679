//! Page-based shared memory for processes on several nodes: home-based lazy release consistency over one-sided transfers.
//!
//! A [`Space`] is memory that n processes share under a name, its *ranks*. Pages travel one-sided from the rank that is their
//! home; a release sends the changed bytes there. Locks and barriers order what ranks see. DDSS names the space, decides who
//! joins and notices deaths; each rank brings a fabric of its own.
//!
//! The engine is `ddss-dsm-core`, the members are those of `ddss-group`. This crate joins them: `transport` is the service
//! thread of a rank, `space` a rank and what the engine answers, `view` typed regions, `checkpoint` their copies in DDSS, and `calls`
//! what needs all of these. `fault` answers page faults. `report` publishes the counts of a rank, and `inspect` reads them. `check` finds races.
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod calls;
mod check;
mod checkpoint;
mod error;
mod fault;
mod inspect;
mod report;
pub mod snapshot;
mod space;
#[allow(unsafe_code, reason = "mappings that peers write, and a handler of page faults")]
mod sys;
mod transport;
mod view;

pub use check::{Race, Races};
pub use ddss_dsm_core::{Failure, Homes, Ordering, Protocol, Rank, Stamps, Statistics};
pub use error::SpaceError;
pub use fault::{LostPage, PageFaults};
pub use inspect::{HotPages, PageInfo, RankInfo, SpaceInfo};
pub use space::{Launch, Section, Space, SpaceOptions};
pub use sys::{Cells, InPlace, ReadView, WriteView};
pub use view::Region;
