//! Status page of a daemon: counters in shared memory that permitted processes read without the daemon's help.
//!
//! The page is a file beside the segments. `ddssd` writes it (`crates/ddssd/src/status/`) and `ddss-ipc` maps it
//! (`crates/ddss-ipc/src/shm/status_page.rs`). It stays when its daemon ends, however that ends. It holds numbers only:
//! a segment appears by its id, so that the page discloses no names.
//!
//! | file | what it is |
//! | --- | --- |
//! | `layout.rs` | offsets of all words of the page |
//! | `counters.rs` | counters, gauges and their names |
//! | `histogram.rs` | durations by bucket, and percentiles |
//! | `rows.rs` | rows of clients, segments, peers and sampled requests |
//! | `snapshot.rs` | a checked copy of the page: [`Status`] |
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

pub use counters::{Counter, Gauge, Kind, Location, Step, Tally};
pub use histogram::Histogram;
pub use layout::{IdentityWord, Layout, Section};
pub use rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
pub use snapshot::{DaemonIdentity, DaemonState, OperationCount, Status, StatusError};
