//! How things are measured: pinned, warmed up, in turns, against a limit that is measured beside them.

mod bench;
mod compare;
mod cores;
mod distance;
mod figure;
mod measure;
mod more;
mod options;
mod report;
mod service;
mod spin;

pub use bench::Bench;
pub use compare::{Compared, Plan};
pub use cores::{Cores, pin};
pub use distance::NEAR;
pub use figure::{Figure, RoundTrip};
pub use measure::Sample;
pub use more::{Alone, MORE_COLUMNS, More};
pub use options::Options;
pub use report::{CONTRACT, Row};
pub use service::{Service, Turn};
pub use spin::Spinner;
