//! Arguments of the demonstration and of its client processes.

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Measuring time of each strategy on each node, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
}

/// Arguments of a client of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoClientOptions {
    /// Folder of the client's node.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}
