//! Filter streams: programs made of filters, each a process, with a stream from each filter to the next.
//!
//! A query enters the first filter, travels down the chain as units of work, and leaves the last one as an answer. While a unit is on its
//! way, the filter computes the next. Two published applications are built so: [`microscope`] and [`isosurface`].
//!
//! * [`Filter`] is one step; [`run_filter`] drives it from its input to its output.
//! * [`FilterGroup`] starts a process for each filter, sends queries and receives answers.
//! * [`LinkKind`] is the kind of stream between two filters.

mod filter;
mod frame;
mod group;
pub mod isosurface;
mod link;
pub mod microscope;
mod query;

pub use filter::{Filter, run_filter};
pub use frame::{FRAME_BYTES_MAX, Frame, FrameReader, FrameWriter};
pub use group::{Answer, FilterGroup, GroupConfig, StageCommand};
pub use link::{LinkKind, StageInput, StageOutput};
pub use query::Query;
