//! Arguments of the demonstration and of its child processes.

use clap::Args;
use ddssd::PeerAddress;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Measuring time of each strategy on each node, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
}

/// Arguments of a node of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoNodeOptions {
    /// Folder of the node; its parent contains the cluster key.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) node: u16,
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    #[arg(long)]
    pub(crate) peer: PeerAddress,
}

/// Arguments of a client of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoClientOptions {
    /// Folder of the client's node.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}
