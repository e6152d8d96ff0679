//! Engine of page-based distributed shared memory: home-based lazy release consistency over one-sided transfers.
//!
//! The crate holds the engine of one *rank*. It performs no I/O, reads no clock, starts no thread and draws no random
//! number: an [`Event`] goes in, the [`Action`]s that it causes come out. A driver executes the actions over a fabric; the
//! simulator executes them over simulated memory.
//!
//! - [`Engine`] decides. It sees the rank's own memory only through the trait [`Memory`].
//! - [`Config`] selects [`Protocol`], [`Ordering`] and [`Stamps`], and names the limits.
//! - `model` has the vocabulary, `diff` the changed bytes of a page, `log` the ring of intervals, `message` the codec.
//!
//! Words of pages: each page has a *home* rank. Its *default home*, the rank page mod ranks, has the *home word*, which names
//! the home. A *twin* is a page before the writes, a *diff* the changed runs of bytes. A *packed* diff is a message; other
//! diffs are written one-sided. A fetched page arrives in a *landing slot* if its home writes it.
//!
//! Words of order: an *interval* is the set of writes of a rank between two synchronisations. A *flush* sends the diffs of an
//! interval to the homes. A *stamp* tells the home that the runs of an interval have arrived. A page's *version line* holds the
//! last stamp of each rank. A write is *placed* when it is in the home's memory. A *fence* is a read behind writes: its
//! completion proves that they are placed.
//!
//! Words of synchronisation: a *notice* names the pages that an interval changed. A *coarse* notice names none, and stands for
//! all pages. The *token* of a lock is with one rank, which alone can hold the lock.
//!
//! The driver's fabric has to promise:
//!
//! - Reads and swaps of one connection happen in the order of posting, and behind all writes that were posted before.
//! - Messages of one connection arrive in order, and behind all writes that were posted before.
//! - Nothing else: two writes may be placed in any order, and a write may overtake an earlier read or message.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

pub mod diff;
mod engine;
pub mod limits;
mod log;
pub mod message;
mod model;

#[cfg(feature = "planted")]
pub use engine::Bug;
pub use engine::{
    Accesses, Action, Area, CallId, Engine, Event, Failure, HotPage, LocalPlace, Memory, Output, Payload, Request,
    Statistics, Tag, common_ranges, concurrent, merge_ranges,
};
pub use model::{
    Access, ChangedPages, Config, ConfigError, Homes, LogShape, Notice, Ordering, PageId, PageRange, Protocol, Rank,
    RankSet, SETTINGS_BYTES, SettingsError, Stamps, Tuning, VectorTime,
};
