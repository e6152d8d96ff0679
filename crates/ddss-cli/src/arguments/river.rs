//! Arguments of `ddss river`.

use crate::arguments::values::{DaemonOptions, size};
use crate::examples;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum RiverCommand {
    /// List flows, queues and lists of work
    #[command(after_help = examples::RIVER_LS)]
    Ls(DaemonOptions),
    /// Start processes of a flow
    #[command(after_help = examples::RIVER_RUN)]
    Run(RiverRunOptions),
    /// Show the members of a queue or a flow
    #[command(after_help = examples::RIVER_SHOW)]
    Show(RiverNameOptions),
    /// Show rates, fill, and time busy, blocked and idle of members
    #[command(after_help = examples::RIVER_TOP)]
    Top(RiverTopOptions),
    /// Print the graph of a flow for Graphviz
    #[command(after_help = examples::RIVER_DOT)]
    Dot(RiverNameOptions),
    /// Cancel a flow, or remove one that is over
    #[command(after_help = examples::RIVER_CANCEL)]
    Cancel(RiverNameOptions),
    /// Put lines or files into a queue
    #[command(after_help = examples::RIVER_PUT)]
    Put(RiverPutOptions),
    /// Take the messages of a queue
    #[command(after_help = examples::RIVER_TAKE)]
    Take(RiverTakeOptions),
    /// Serve a directory with mirrored files
    #[command(after_help = examples::RIVER_SERVE)]
    Serve(RiverServeOptions),
    /// Load a file onto two file servers
    #[command(after_help = examples::RIVER_LOAD)]
    Load(RiverLoadOptions),
    /// Write a collection to standard output, or into a file
    #[command(after_help = examples::RIVER_CAT)]
    Cat(RiverCatOptions),
    /// List the collections
    #[command(after_help = examples::RIVER_FILES)]
    Files(DaemonOptions),
    /// Check both mirrors of a collection
    #[command(after_help = examples::RIVER_VERIFY)]
    Verify(RiverFilesOptions),
    /// Write damaged and missing mirrors of a collection again
    #[command(after_help = examples::RIVER_REPAIR)]
    Repair(RiverFilesOptions),
    /// Lists of work that survive every process: add units, work them off, list and retry them
    #[command(subcommand, after_help = examples::RIVER_UNITS)]
    Units(UnitsCommand),
}

#[derive(Subcommand, Debug)]
pub(crate) enum UnitsCommand {
    /// Add units to a list of work
    #[command(after_help = examples::RIVER_UNITS_ADD)]
    Add(UnitsAddOptions),
    /// Run a program for each unit
    #[command(after_help = examples::RIVER_UNITS_WORK)]
    Work(UnitsWorkOptions),
    /// List the units
    #[command(after_help = examples::RIVER_UNITS_LS)]
    Ls(UnitsListOptions),
    /// Open the failed units again
    #[command(after_help = examples::RIVER_UNITS_RETRY)]
    Retry(UnitsOptions),
}

#[derive(Args, Debug)]
pub(crate) struct RiverRunOptions {
    /// Name of the flow
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Processes that this command starts
    #[arg(short = 'n', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: u16,
    /// Processes that begin the flow, on all nodes together [default: N]
    #[arg(long, value_name = "TOTAL", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) of: Option<u16>,
    /// Address of this node at which members on other nodes reach those that start here [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// Repeat what a flow that is over has not done: units that are done stay done
    #[arg(long)]
    pub(crate) resume: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A queue or a flow, and the daemon through which it is reached.
#[derive(Args, Debug)]
pub(crate) struct RiverNameOptions {
    /// Name of the queue or flow
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct RiverTopOptions {
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Queue or flow [default: all that processes have opened]
    pub(crate) name: Option<String>,
}

/// Settings of a process that joins a queue.
#[derive(Args, Debug)]
pub(crate) struct JoinQueueOptions {
    #[command(flatten)]
    pub(crate) queue: RiverNameOptions,
    /// Bytes of a message at most, of a queue that is created; the suffixes K, M are powers of 1024 [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) message_bytes: Option<u64>,
    /// Processes at most, of a queue that is created [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) members: Option<u16>,
    /// Address of this node at which the other members reach this process [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
}

#[derive(Args, Debug)]
pub(crate) struct RiverPutOptions {
    #[command(flatten)]
    pub(crate) join: JoinQueueOptions,
    /// Files, a message each [default: the lines of standard input]
    pub(crate) files: Vec<PathBuf>,
    /// Seconds to wait for room, and for the consumers at the end
    #[arg(long = "timeout", default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Close the queue behind the last message: its consumers end
    #[arg(long)]
    pub(crate) close: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RiverTakeOptions {
    #[command(flatten)]
    pub(crate) join: JoinQueueOptions,
    /// Stop after N messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Program and its arguments; `{}` in an argument is the message, which else is on standard input
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct RiverServeOptions {
    /// Directory for the parts, which is created if it does not exist
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Address of this node at which others reach the server [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// Nodes that store the directory of all file servers; with 2, they survive each of them
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
}

/// A collection, and the settings of a process that uses it.
#[derive(Args, Debug)]
pub(crate) struct RiverFilesOptions {
    /// Name of the collection
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Address of this node at which file servers reach this process [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// Seconds to wait for a file server
    #[arg(long = "timeout", default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
}

#[derive(Args, Debug)]
pub(crate) struct RiverCatOptions {
    #[command(flatten)]
    pub(crate) files: RiverFilesOptions,
    /// File for the collection; its chunks are written as they come, each from the mirror that is faster
    #[arg(long, value_name = "FILE")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct RiverLoadOptions {
    #[command(flatten)]
    pub(crate) files: RiverFilesOptions,
    /// File [default: standard input]
    pub(crate) file: Option<PathBuf>,
    /// Nodes that store the catalogue; 2 needs file servers that were started with 2
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
}

/// A list of units, and the daemon through which it is reached.
#[derive(Args, Debug)]
pub(crate) struct UnitsOptions {
    /// Name of the list
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct UnitsAddOptions {
    #[command(flatten)]
    pub(crate) list: UnitsOptions,
    /// Units [default: the lines of standard input]
    pub(crate) units: Vec<OsString>,
    /// Units of the list at most, finished ones included [default: 16384]
    #[arg(long, value_name = "UNITS", value_parser = size)]
    pub(crate) capacity: Option<u64>,
    /// Bytes of a unit at most [default: 256]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) unit_bytes: Option<u32>,
    /// Seconds after which the unit of a dead worker is claimed again [default: 10]
    #[arg(long = "lease", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) lease_s: Option<u64>,
    /// Nodes that store the list; with 2, it survives each of them [default: 1]
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: Option<u8>,
}

#[derive(Args, Debug)]
pub(crate) struct UnitsWorkOptions {
    #[command(flatten)]
    pub(crate) list: UnitsOptions,
    /// Programs that run at the same time
    #[arg(short = 'j', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Program and its arguments; `{}` in an argument is the unit, which else is on standard input
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct UnitsListOptions {
    #[command(flatten)]
    pub(crate) list: UnitsOptions,
    /// List only units in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<UnitState>,
}

/// States of units.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum UnitState {
    Open,
    Claimed,
    Done,
    Failed,
}
