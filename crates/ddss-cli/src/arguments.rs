//! What can be written behind `ddss`.

use crate::demo::{DemoClientOptions, DemoNodeOptions, DemoOptions};
use crate::examples;
use crate::output::value_format::Kind;
use clap::{Args, Parser, Subcommand};
use ddss::{Model, NodeId, Placement, Storage};
use ddss_core::status::Kind as CallKind;
use std::path::PathBuf;

/// Shows and touches the shared segments of a cluster.
#[derive(Parser, Debug)]
#[command(
    name = "ddss",
    version,
    after_help = "\
Examples:
  ddss demo                          two nodes and clients, timed and killed
  ddss allocate scores 4096          a segment of 4096 bytes on this node
  echo hello | ddss put scores -     its first bytes from a pipe
  ddss get scores --length 5         and back
  ddss get scores --json             the same with version and timestamp
  ddss put scores --as u64 '1 2 3'   numbers instead of bytes
  ddss watch scores                  a line with each new version
  ddss ls 's*'                       what there is, on all nodes
  ddss doctor                        whether this machine is set up well

Exit codes: 0 done, 1 failed (nothing happened), 2 wrong arguments, 3 nobody
knows whether it happened, 4 no daemon runs there."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start two nodes and real clients: a value travels, each strategy is timed, a client and a daemon are killed
    #[command(after_help = examples::DEMO)]
    Demo(DemoOptions),
    #[command(hide = true)]
    DemoNode(DemoNodeOptions),
    #[command(hide = true)]
    DemoClient(DemoClientOptions),
    /// The segments of all nodes that can be reached
    #[command(after_help = examples::LS)]
    Ls(ListOptions),
    /// Everything about one segment
    #[command(after_help = examples::STAT)]
    Stat(Named),
    /// Write a segment's bytes to standard output
    #[command(after_help = examples::GET)]
    Get(GetOptions),
    /// Write bytes into a segment
    #[command(after_help = examples::PUT)]
    Put(PutOptions),
    /// Show bytes with their places
    #[command(after_help = examples::HEXDUMP)]
    Hexdump(HexdumpOptions),
    /// A line with each new version, until somebody stops it
    #[command(after_help = examples::WATCH)]
    Watch(WatchOptions),
    /// Make a segment
    #[command(after_help = examples::ALLOCATE)]
    Allocate(AllocateOptions),
    /// Take segments away from everybody
    #[command(after_help = examples::RELEASE)]
    Release(ReleaseOptions),
    /// Change who may do what
    #[command(after_help = examples::CHMOD)]
    Chmod(ChmodOptions),
    /// The versions that are kept
    #[command(after_help = examples::HISTORY)]
    History(HistoryOptions),
    /// Copy a segment into a file
    #[command(after_help = examples::EXPORT)]
    Export(ExportOptions),
    /// Copy a file into a segment, made if it is not there
    #[command(after_help = examples::IMPORT)]
    Import(ImportOptions),
    /// One look at a node: does its daemon run, what does it hold, how is its cluster
    #[command(after_help = examples::STATUS)]
    Status(Place),
    /// The nodes of the cluster, one a line
    #[command(after_help = examples::NODES)]
    Nodes(Place),
    /// The clients of the node: which processes they are, and what they do
    #[command(after_help = examples::CLIENTS)]
    Clients(Place),
    /// The locks that somebody holds or waits for
    #[command(after_help = examples::LOCKS)]
    Locks(LocksOptions),
    /// What the daemon has counted since it was started; also of a daemon that is dead
    #[command(after_help = examples::COUNTERS)]
    Counters(CountersOptions),
    /// A live view: rates, latency percentiles, the hottest segments, rings, connections
    #[command(after_help = examples::TOP)]
    Top(TopOptions),
    /// One call and its way: its steps and their times
    #[command(after_help = examples::TRACE)]
    Trace(TraceOptions),
    /// One round trip to the daemon's progress thread
    #[command(after_help = examples::PING)]
    Ping(Place),
    /// Look at this machine: what is missing or slow, and what to do about it
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorOptions),
    /// Measure this machine: calls under each strategy, gets and puts here and on another node
    #[command(after_help = examples::BENCH)]
    Bench(BenchOptions),
    /// Make a cluster, and bring nodes into it
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(ClusterCommand),
    /// Completions for a shell, to standard output
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
        /// Of which program
        #[arg(long, default_value = "ddss", value_name = "PROGRAM")]
        of: Program,
    },
    /// Manual pages, into a folder
    #[command(hide = true)]
    Man {
        /// Where they go
        folder: PathBuf,
    },
}

/// The programs that there are.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    Ddss,
    Ddssd,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// Make the key of a new cluster on this node
    #[command(after_help = examples::CLUSTER_INIT)]
    Init(StatePlace),
    /// Show the key, to be carried to another node: it is the whole secret
    #[command(after_help = examples::CLUSTER_TOKEN)]
    Token(StatePlace),
    /// Prepare this node to join a cluster when its daemon starts
    #[command(after_help = examples::CLUSTER_JOIN)]
    Join(JoinOptions),
    /// Take the node of the running daemon out of its cluster, with the names of its segments
    #[command(after_help = examples::CLUSTER_LEAVE)]
    Leave(LeaveOptions),
    /// Take a node out that will not come back, with the names of its segments
    #[command(after_help = examples::CLUSTER_REMOVE)]
    Remove(RemoveOptions),
    /// Who leads, who votes, who is alive
    #[command(after_help = examples::CLUSTER_STATUS)]
    Status(Place),
}

#[derive(Args, Debug)]
pub(crate) struct JoinOptions {
    /// A node of the cluster and where it listens
    pub(crate) address: ddssd::HostPort,
    /// The word that `ddss cluster token` shows there; `-` takes it from standard input
    pub(crate) token: String,
    #[command(flatten)]
    pub(crate) state: StatePlace,
}

#[derive(Args, Debug)]
pub(crate) struct LeaveOptions {
    /// Also if segments are only on this node: they go with it
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveOptions {
    /// Number of the node
    #[arg(value_parser = node)]
    pub(crate) node: NodeId,
    /// Also if the node is alive: it ends, and segments that are only there go with it
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Where a daemon keeps what survives a restart.
#[derive(Args, Debug)]
pub(crate) struct StatePlace {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Folder of what survives a restart [default: $DDSS_STATE_DIR, else as ddssd has it]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Which daemon.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// Folder of the daemon [default: $DDSS_DIR, else where this user's is, else /run/ddss]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Which segment, and through which daemon.
#[derive(Args, Debug)]
pub(crate) struct Named {
    /// Name of the segment
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct AllocateOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Size in bytes; 64K, 16M, 2G are 1024 each time
    #[arg(value_parser = size)]
    pub(crate) bytes: u64,
    /// Coherence: null, read, write, strict, version, delta=N, temporal=MICROSECONDS
    #[arg(long, default_value = "strict", value_parser = model)]
    pub(crate) model: Model,
    /// Permission bits, octal
    #[arg(long, default_value = "600", value_parser = octal)]
    pub(crate) mode: u16,
    /// Its home: this node (local), a node's number, round-robin, or hash (by its name)
    #[arg(long, default_value = "local", value_name = "WHERE", value_parser = placement)]
    pub(crate) home: Placement,
    /// How many versions before the newest one are kept, 1024 at the most
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) history: u16,
    /// On how many nodes it is kept: with 2 it has a mirror, which takes over when its home dies
    #[arg(long, default_value_t = 1, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
    /// Where its home keeps it: in memory, or in a file that outlives a boot of the machine
    #[arg(long, default_value = "memory", value_name = "memory|file")]
    pub(crate) storage: Storage,
}

#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// Which: `*` is any run of characters, `?` any one [default: all]
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct LocksOptions {
    /// Of which segments: `*` is any run of characters, `?` any one [default: all]
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Take them from whoever holds them, after a question
    #[arg(long = "break", requires = "pattern")]
    pub(crate) break_them: bool,
    /// Do not ask before
    #[arg(long, requires = "break_them")]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct HexdumpOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// First byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// How many bytes [default: all to the end]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Show the bytes as well, as this kind
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// First byte that is shown
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// How many bytes are shown [default: all to the end]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
    /// End after so many versions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct HistoryOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// How many bytes of each are shown [default: 16, or all of a smaller segment]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct ExportOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The file
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ImportOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The file
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ChmodOptions {
    /// Permission bits, octal
    #[arg(value_parser = octal)]
    pub(crate) mode: u16,
    #[command(flatten)]
    pub(crate) named: Named,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseOptions {
    /// Names; `*` is any run of characters, `?` any one, and what they match is asked about first
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Do not ask before
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct CountersOptions {
    /// Which: `*` is any run of characters, `?` any one [default: all that are not zero]
    pub(crate) pattern: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Those that are zero as well
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Two looks as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Between two looks, in milliseconds
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// How many segments are shown at the most
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
    /// Of which segment [default: no call is made, and the last one that was followed is shown]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// What is called; a put writes what is there, so that only the version changes
    #[arg(long, default_value = "get", value_name = "CALL", requires = "name")]
    pub(crate) call: TraceCall,
    /// How many bytes, 1M at the most [default: 8, or all of a smaller segment]
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

    pub(crate) fn words(self) -> &'static str {
        match self {
            TraceCall::Get => "a get",
            TraceCall::Put => "a put",
            TraceCall::Ping => "a call that does nothing, beside an open",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    /// On the daemon in this folder, and on another node of its cluster [default: on two nodes in this process]
    #[command(flatten)]
    pub(crate) place: Place,
    /// How long each figure is measured, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
    /// Draw a picture as well
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// First byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// How many bytes [default: all to the end]
    #[arg(long, value_parser = size)]
    pub(crate) length: Option<u64>,
    /// Show them as numbers, text or JSON instead of writing the bytes themselves
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Of this version, if it is still kept [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The bytes, as text; `-` takes them from standard input
    pub(crate) bytes: String,
    /// First byte
    #[arg(long, default_value = "0", value_parser = size)]
    pub(crate) offset: u64,
    /// What is written are numbers, text or JSON
    #[arg(long = "as", value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Only if the segment has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
}

fn node(text: &str) -> Result<NodeId, String> {
    let node = text.parse().ok().filter(|&node| node != 0).map(NodeId);
    node.ok_or_else(|| format!("{text:?} is no node: give its number, 1 or more"))
}

fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 64,
    };
    let number = digits.parse::<u64>().ok().filter(|_| digits.starts_with(|first: char| first.is_ascii_digit()));
    let bytes = number.and_then(|number| number.checked_mul(1_u64.checked_shl(power)?));
    bytes.ok_or_else(|| format!("{text:?} is no size: give bytes, or as in 64K, 16M, 2G"))
}

fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| format!("{text:?} is no permission: give three octal digits, as in 640"))
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "local" => Ok(Placement::Local),
        "round-robin" => Ok(Placement::RoundRobin),
        "hash" => Ok(Placement::Hash),
        number => {
            let node = number.parse().ok().filter(|&node| node != 0).map(NodeId);
            let wrong = || format!("{text:?} is no home: give local, round-robin, hash, or a node's number, 1 or more");
            node.map(Placement::Node).ok_or_else(wrong)
        }
    }
}

fn model(text: &str) -> Result<Model, String> {
    let (kind, parameter) = text.split_once('=').unwrap_or((text, ""));
    let number = || parameter.parse().map_err(|_| format!("{kind} needs a number, as in {kind}=5"));
    match kind {
        "delta" => return Ok(Model::Delta(number()?)),
        "temporal" => return Ok(Model::Temporal(number()?)),
        _ if !parameter.is_empty() => return Err(format!("{kind} takes no number")),
        _ => {}
    }
    Ok(match kind {
        "null" => Model::Null,
        "read" => Model::Read,
        "write" => Model::Write,
        "strict" => Model::Strict,
        "version" => Model::Version,
        _ => {
            return Err(format!(
                "{text:?} is no model: null, read, write, strict, version, delta=VERSIONS, temporal=MICROSECONDS"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        // If this broke, a flag would panic when somebody uses it.
        Arguments::command().debug_assert();
        assert_eq!(model("delta=3"), Ok(Model::Delta(3)));
        assert!(model("delta").is_err() && model("strict=1").is_err() && model("fast").is_err());
        assert_eq!([size("7"), size("64K"), size("2G")], [Ok(7), Ok(65_536), Ok(2 << 30)]);
        for wrong in ["", "K", "+7", "-1", "1KK", "1k", "1.5G", "99999999T", "7 "] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(octal("888").is_err() && octal("1777").is_err() && placement("0").is_err());
        assert_eq!(placement("7"), Ok(Placement::Node(NodeId(7))));
    }
}
