//! Command line arguments of `ddss`.

pub(crate) mod cluster;
pub(crate) mod demo;
pub(crate) mod dsm;
pub(crate) mod map;
pub(crate) mod river;
pub(crate) mod values;

pub(crate) use crate::arguments::cluster::{
    BackupCommand, ClusterCommand, JoinOptions, LeadOptions, LeaveOptions, MembershipCommand, RecoverOptions,
    RestoreOptions, SnapshotOptions,
};
pub(crate) use crate::arguments::values::{DaemonOptions, SegmentOptions, model};

use crate::arguments::demo::{DemoClientOptions, DemoOptions, DemoRankOptions};
use crate::arguments::dsm::{DsmCommand, DsmRankOptions};
use crate::arguments::map::MapCommand;
use crate::arguments::river::RiverCommand;
use crate::arguments::values::{octal, placement, size};
use crate::examples;
use crate::node_process::DemoNodeOptions;
use crate::output::value_format::ValueFormat;
use clap::{Args, Parser, Subcommand};
use ddss::{Model, Placement, Storage};
use ddss_admin::Release;
use ddss_core::status::Kind as CallKind;
use std::path::PathBuf;

/// Reads, writes and inspects the shared segments of a cluster
#[derive(Parser, Debug)]
#[command(
    name = "ddss",
    version,
    long_version = Release::long(),
    after_help = "\
Examples:
  ddss demo                          run two nodes, measure them, kill some
  ddss allocate scores 4096          allocate 4096 bytes on this node
  echo hello | ddss put scores -     write bytes from a pipe
  ddss get scores --length 5         read them back
  ddss get scores --json             the same with version and timestamp
  ddss put scores --as u64 '1 2 3'   write numbers instead of text
  ddss watch scores                  print a line for each new version
  ddss ls 's*'                       list segments of all nodes
  ddss doctor                        check the set-up of this machine

Exit codes: 0 done, 1 failed (no effect), 2 wrong arguments, 3 outcome
unknown (may have taken effect), 4 no daemon runs there."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print answers and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a demonstration: two nodes, latency of each strategy, and the kill of a client and of a daemon
    #[command(after_help = examples::DEMO)]
    Demo(DemoOptions),
    #[command(hide = true)]
    DemoNode(DemoNodeOptions),
    #[command(hide = true)]
    DemoClient(DemoClientOptions),
    #[command(hide = true)]
    DemoRank(DemoRankOptions),
    /// List the segments of all reachable nodes
    #[command(after_help = examples::LS)]
    Ls(ListOptions),
    /// Show the metadata of one segment
    #[command(after_help = examples::STAT)]
    Stat(SegmentOptions),
    /// Write a segment's bytes to standard output
    #[command(after_help = examples::GET)]
    Get(GetOptions),
    /// Write bytes into a segment
    #[command(after_help = examples::PUT)]
    Put(PutOptions),
    /// Show bytes with their offsets
    #[command(after_help = examples::HEXDUMP)]
    Hexdump(RangeOptions),
    /// Print a line for each new version until interrupted
    #[command(after_help = examples::WATCH)]
    Watch(WatchOptions),
    /// Allocate a segment
    #[command(after_help = examples::ALLOCATE)]
    Allocate(AllocateOptions),
    /// Release segments: their contents are lost for all clients
    #[command(after_help = examples::RELEASE)]
    Release(ReleaseOptions),
    /// Change the permission bits of a segment
    #[command(after_help = examples::CHMOD)]
    Chmod(ChmodOptions),
    /// Show the versions in the history of a segment
    #[command(after_help = examples::HISTORY)]
    History(HistoryOptions),
    /// Copy a segment into a file
    #[command(after_help = examples::EXPORT)]
    Export(FileOptions),
    /// Copy a file into a segment, which is allocated if it does not exist
    #[command(after_help = examples::IMPORT)]
    Import(FileOptions),
    /// Read and write the entries of maps
    #[command(subcommand, after_help = examples::MAP)]
    Map(MapCommand),
    /// Show the state of a node: its daemon, its segments and its cluster
    #[command(after_help = examples::STATUS)]
    Status(DaemonOptions),
    /// List the nodes of the cluster
    #[command(after_help = examples::NODES)]
    Nodes(DaemonOptions),
    /// List the client processes of the node and their activity
    #[command(after_help = examples::CLIENTS)]
    Clients(DaemonOptions),
    /// List the locks that are held or waited for
    #[command(after_help = examples::LOCKS)]
    Locks(LocksOptions),
    /// Show the daemon's counters since its start, also after the daemon has ended
    #[command(after_help = examples::COUNTERS)]
    Counters(CountersOptions),
    /// Show a live view: rates, latency percentiles, busiest segments, clients, connections
    #[command(after_help = examples::TOP)]
    Top(TopOptions),
    /// Trace one call: its steps and the time of each
    #[command(after_help = examples::TRACE)]
    Trace(TraceOptions),
    /// Measure one round trip to the daemon's progress thread
    #[command(after_help = examples::PING)]
    Ping(DaemonOptions),
    /// Check this machine: missing or slow parts, and advice for each
    #[command(after_help = examples::DOCTOR)]
    Doctor(DaemonOptions),
    /// Measure this machine: calls under each strategy, local and remote gets and puts
    #[command(after_help = examples::BENCH)]
    Bench(BenchOptions),
    /// Run a program whose connections use shared memory or the wire
    #[command(after_help = examples::RUN)]
    Run(RunOptions),
    /// List the streams of programs under `ddss run`, with transport and reason
    #[command(after_help = examples::STREAMS)]
    Streams,
    #[command(hide = true)]
    StreamPump(PumpOptions),
    /// Start, list and remove the ranks of page-based shared memory
    #[command(subcommand, after_help = examples::DSM)]
    Dsm(DsmCommand),
    #[command(hide = true)]
    DsmRank(DsmRankOptions),
    /// Queues and lists of work that processes on several nodes share
    #[command(subcommand, after_help = examples::RIVER)]
    River(RiverCommand),
    /// Create a cluster, add nodes and remove them
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(ClusterCommand),
    /// Print shell completions
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
        /// Program to complete
        #[arg(long, default_value = "ddss", value_name = "PROGRAM")]
        of: Program,
    },
    /// Write manual pages into a folder
    #[command(hide = true)]
    Man {
        /// Output folder
        folder: PathBuf,
    },
}

/// Programs of the workspace that have completions and manual pages.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    Ddss,
    Ddssd,
}

/// State folder of a daemon: the files that survive a restart.
#[derive(Args, Debug)]
pub(crate) struct StateOptions {
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// State folder of the daemon [default: $DDSS_STATE_DIR, else the default of ddssd]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Options of the hidden command of the pump.
#[derive(Args, Debug)]
pub(crate) struct PumpOptions {
    /// Start the pump as a process of its own, and end
    #[arg(long)]
    pub(crate) detach: bool,
}

/// Program to run with the preload library.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// File with rules: which connections use shared memory, TCP or the wire
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Longest spin before a thread sleeps, in microseconds; 0 never spins
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(..=1000))]
    pub(crate) spin: Option<u64>,
    /// Preload library [default: libddss_preload.so beside this command, or in ../lib/ddss]
    #[arg(long, value_name = "FILE", env = "DDSS_PRELOAD")]
    pub(crate) library: Option<PathBuf>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct AllocateOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Size in bytes; the suffixes K, M, G, T are powers of 1024
    #[arg(value_parser = size)]
    pub(crate) bytes: u64,
    /// Coherence model: null, read, write, strict, version, delta=N, temporal=MICROSECONDS
    #[arg(long, default_value = "strict", value_parser = model)]
    pub(crate) model: Model,
    /// Permission bits, octal
    #[arg(long, default_value = "600", value_parser = octal)]
    pub(crate) mode: u16,
    /// Home of the segment: local (this node), a node number, round-robin, or hash (by name)
    #[arg(long, default_value = "local", value_name = "WHERE", value_parser = placement)]
    pub(crate) home: Placement,
    /// Make a table of rows of this many bytes each, a multiple of 8; each row has its own version
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(8..))]
    pub(crate) row: Option<u32>,
    /// Old versions in the history, at most 1024
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) history: u16,
    /// Nodes that store the segment; with 2, a replica takes over when the home dies
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
    /// Storage at the home: memory, or a file that survives a reboot
    #[arg(long, default_value = "memory", value_name = "memory|file")]
    pub(crate) storage: Storage,
}

/// Pattern of names, and the daemon that is asked.
#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// Name pattern: `*` matches any run of characters, `?` any one [default: all]
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LocksOptions {
    #[command(flatten)]
    pub(crate) list: ListOptions,
    /// Break these locks, after confirmation
    #[arg(long = "break", requires = "pattern")]
    pub(crate) break_locks: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "break_locks")]
    pub(crate) yes: bool,
}

/// Range of a segment's bytes.
#[derive(Args, Debug)]
pub(crate) struct RangeOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Offset of the first byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// Number of bytes [default: to the end of the segment]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Show the bytes of each version in this format
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<ValueFormat>,
    /// Offset of the first byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// Number of bytes to show [default: to the end of the segment]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
    /// Stop after N versions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct HistoryOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Number of bytes to show of each version [default: 16, or all of a smaller segment]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
}

/// Segment and the file that it is exported to or imported from.
#[derive(Args, Debug)]
pub(crate) struct FileOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Path of the file
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ChmodOptions {
    /// Permission bits, octal
    #[arg(value_parser = octal)]
    pub(crate) mode: u16,
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseOptions {
    /// Names or patterns (`*`, `?`); matches of a pattern need confirmation
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CountersOptions {
    /// Name pattern: `*` matches any run of characters, `?` any one [default: all that are not zero]
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Show zero values, too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Print the rates of one interval as text, and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Refresh interval in milliseconds
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Maximum number of segments to show
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) segments: usize,
}

impl TopOptions {
    pub(crate) fn interval(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.interval_ms)
    }
}

#[derive(Args, Debug)]
pub(crate) struct TraceOptions {
    /// Segment to call [default: make no call and show the last traced one]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Call to trace; a put writes the present contents, so that only the version changes
    #[arg(long, default_value = "get", value_name = "CALL", requires = "name")]
    pub(crate) call: TraceCall,
    /// Number of bytes, at most 1M [default: 8, or all of a smaller segment]
    #[arg(long, value_name = "N", requires = "name", value_parser = size)]
    pub(crate) bytes: Option<u64>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceCall {
    Get,
    Put,
    Ping,
}

impl TraceCall {
    pub(crate) fn kind(self) -> CallKind {
        match self {
            TraceCall::Get => CallKind::Get,
            TraceCall::Put => CallKind::Put,
            TraceCall::Ping => CallKind::Null,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            TraceCall::Get => "a get",
            TraceCall::Put => "a put",
            TraceCall::Ping => "a null call, besides an open",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    /// Daemon to measure, with another node of its cluster [default: two nodes of its own]
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Measuring time of each figure, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
    /// Write a chart into this file, too
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) range: RangeOptions,
    /// Print the bytes in this format instead of writing them unchanged
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<ValueFormat>,
    /// Version to read, if it is still in the history [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) named: SegmentOptions,
    /// Bytes to write, as text; `-` reads them from standard input
    pub(crate) bytes: String,
    /// Offset of the first byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// Format of the input
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<ValueFormat>,
    /// Write only if the segment has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        // clap reports a contradictory definition only when a user runs the command.
        Arguments::command().debug_assert();
    }
}
