//! Arguments of `ddss map`.

use crate::arguments::values::{SegmentOptions, octal, placement, size};
use crate::examples;
use crate::output::value_format::ValueFormat;
use clap::{Args, Subcommand};
use ddss::{Placement, Storage};

#[derive(Subcommand, Debug)]
pub(crate) enum MapCommand {
    /// Allocate a map with keys and values of fixed sizes
    #[command(after_help = examples::MAP_ALLOCATE)]
    Allocate(MapAllocateOptions),
    /// Print the value of a key
    #[command(after_help = examples::MAP_GET)]
    Get(MapKeyOptions),
    /// Write the value of a key
    #[command(after_help = examples::MAP_PUT)]
    Put(MapPutOptions),
    /// Remove a key
    #[command(after_help = examples::MAP_REMOVE)]
    Remove(MapKeyOptions),
    /// List the entries of a map, in no order
    #[command(after_help = examples::MAP_LS)]
    Ls(MapListOptions),
    /// Print a line for each new value of a key until interrupted
    #[command(after_help = examples::MAP_WATCH)]
    Watch(MapWatchOptions),
}

#[derive(Args, Debug)]
pub(crate) struct MapAllocateOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Number of keys for which there is room; the suffixes K, M, G are powers of 1024
    #[arg(value_parser = size)]
    pub(crate) keys: u64,
    /// Bytes of a key, at most 1024
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) key_bytes: u32,
    /// Bytes of a value, at most 65536
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(crate) value_bytes: u32,
    /// Permission bits, octal
    #[arg(long, default_value = "600", value_parser = octal)]
    pub(crate) mode: u16,
    /// Home of the map: local (this node), a node number, round-robin, or hash (by name)
    #[arg(long, default_value = "local", value_name = "WHERE", value_parser = placement)]
    pub(crate) home: Placement,
    /// Nodes that store the map; with 2, a replica takes over when the home dies
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
    /// Storage at the home: memory, or a file that survives a reboot
    #[arg(long, default_value = "memory", value_name = "memory|file")]
    pub(crate) storage: Storage,
}

/// A map, and the formats of its keys and values.
#[derive(Args, Debug)]
pub(crate) struct MapOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Format of keys [default: text, filled up with zeroes]
    #[arg(long = "key-as", value_name = "KIND")]
    pub(crate) key_kind: Option<ValueFormat>,
    /// Format of values [default: text, filled up with zeroes; other bytes are shown as hex]
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<ValueFormat>,
}

#[derive(Args, Debug)]
pub(crate) struct MapKeyOptions {
    #[command(flatten)]
    pub(crate) map: MapOptions,
    /// Key
    pub(crate) key: String,
}

#[derive(Args, Debug)]
pub(crate) struct MapPutOptions {
    #[command(flatten)]
    pub(crate) entry: MapKeyOptions,
    /// Value
    pub(crate) value: String,
    /// Write only if the key is absent
    #[arg(long)]
    pub(crate) new: bool,
    /// Let the entry expire after some seconds
    #[arg(long = "expire", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) expire_s: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct MapListOptions {
    #[command(flatten)]
    pub(crate) map: MapOptions,
    /// List only keys that begin with this prefix
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct MapWatchOptions {
    #[command(flatten)]
    pub(crate) entry: MapKeyOptions,
    /// Stop after N lines; the first shows the present value
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
