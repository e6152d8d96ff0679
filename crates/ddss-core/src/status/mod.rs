//! What a daemon tells of itself, in a page of memory that everybody who may can read without its help.
//!
//! The page is a file beside the segments (see `crates/ddssd/src/status.rs`, which writes it, and `crates/ddss-ipc/src/shm/status_page.rs`, which
//! reads the file). It stays when its daemon ends, however that ends. Only numbers are in it: a segment is its id, and
//! who may not see a segment's name learns none here.
//!
//! | file | what it is |
//! | --- | --- |
//! | `layout.rs` | where each word of the page is |
//! | `counters.rs` | what is counted, and what it is called |
//! | `histogram.rs` | how a time becomes a bucket, and buckets a percentile |
//! | `rows.rs` | one client, segment, peer, sampled request |
//! | `snapshot.rs` | a copy of the page, checked: [`Status`] |
//!
//! ```
//! use ddss_core::status::{Counter, Layout, Status, StatusError};
//! let mut page = vec![0; Layout::BYTES];
//! assert_eq!(Status::decode(&page), Err(StatusError::NotOne));
//! Layout::begin(|at, word| page[at..at + 8].copy_from_slice(&word.to_ne_bytes()));
//! let at = Layout::counter_at(Counter::Requests);
//! page[at..at + 8].copy_from_slice(&7u64.to_ne_bytes());
//! assert_eq!(Status::decode(&page)?.counter(Counter::Requests), 7);
//! # Ok::<(), StatusError>(())
//! ```

mod aggregate;
mod counters;
mod histogram;
mod layout;
mod rows;
mod snapshot;

pub use counters::{Counter, Gauge, Kind, Road, Step, Tally};
pub use histogram::Histogram;
pub use layout::{IdentityWord, Layout, Section};
pub use rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
pub use snapshot::{DaemonIdentity, DaemonState, OperationCount, Status, StatusError};
