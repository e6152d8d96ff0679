//! The measurement harness: pinned, warmed up, interleaved, and compared with a limit from the same time.
//!
//! `bench` runs one bench with its `options`; `compare` interleaves its figures; `measure` has clock and histogram;
//! `report` prints rows.

mod bench;
mod cache_line;
mod compare;
mod core_distance;
mod cores;
mod extra_columns;
mod figure;
mod measure;
mod options;
mod report;
mod service;
mod spin;
mod veth;

pub use bench::Bench;
pub use cache_line::line_ping_pong;
pub use compare::{Compared, Plan};
pub use core_distance::SAME_CORE_NOTE;
pub use cores::{Cores, on_all_cores, pin};
pub use extra_columns::{EXTRA_COLUMNS, ExtraColumns, StandaloneResult};
pub use figure::{Figure, RoundTrip};
pub use measure::Sample;
pub use options::Options;
pub use report::{CONTRACT, Row};
pub use service::{Service, Turn};
pub use spin::Spinner;
pub use veth::VethPair;
