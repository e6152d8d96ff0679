//! What the demonstration is told, and what it tells the processes that it starts.

use clap::Args;
use ddssd::PeerAddress;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// How long each strategy is measured on each node, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
}

/// A node of the demonstration, in a process that can be killed.
#[derive(Args, Debug)]
pub(crate) struct DemoNodeOptions {
    /// Its folder; the key of the cluster lies one above.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) node: u16,
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    #[arg(long)]
    pub(crate) peer: PeerAddress,
}

/// A client of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoClientOptions {
    /// The folder of its node.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}
