//! Arguments of the demonstration and of its client processes.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Show this instead
    #[arg(value_enum)]
    pub(crate) part: Option<DemoPart>,
    /// Measuring time of each strategy on each node, in milliseconds; for `streams` a scale, for `dsm` and `river` not used
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
}

/// A demonstration besides the one of two nodes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DemoPart {
    /// Redis and its benchmark, or two programs in Python, over TCP and through shared memory
    Streams,
    /// A stencil on four ranks in each protocol, a rank that is killed, and the way on from a checkpoint
    Dsm,
    /// Messages for four processes, of which one is slowed down, with a part for each and with a queue; then one is killed
    River,
}

/// Arguments of a client of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoClientOptions {
    /// Folder of the client's node.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

/// Arguments of a rank of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoRankOptions {
    /// Writes checkpoints, and lets one rank wait to be killed.
    #[arg(long)]
    pub(crate) loses_rank: bool,
}
