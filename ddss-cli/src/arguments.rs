//! What can be written behind `ddss`.

use clap::{Args, Parser, Subcommand};
use ddss::{Model, NodeId};
use std::path::PathBuf;

/// Shows and touches the shared segments of a cluster.
#[derive(Parser, Debug)]
#[command(
    name = "ddss",
    version,
    after_help = "\
Examples:
  ddss demo                          two nodes, real clients, measured; ends by itself
  ddss allocate scores 4096          a segment of 4096 bytes on this node
  echo hello | ddss put scores -     its first bytes from a pipe
  ddss get scores --length 5         and back
  ddss get scores --json             the same with version and timestamp

Exit codes: 0 done, 1 failed (nothing happened), 2 wrong arguments, 3 nobody knows whether it happened, 4 no daemon."
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
    /// Start two nodes and real client processes, show a put here and a get there, and what each costs
    Demo(DemoOptions),
    #[command(hide = true)]
    DemoClient(DemoClientOptions),
    /// One round trip to the daemon's progress thread
    Ping(Place),
    /// Make a segment
    Allocate(AllocateOptions),
    /// What a segment is
    Stat(Named),
    /// Write a segment's bytes to standard output
    Get(GetOptions),
    /// Write bytes into a segment
    Put(PutOptions),
    /// Take a segment away from everybody
    Release(Named),
    /// The nodes of the cluster, one a line
    Nodes(Place),
    /// Make a cluster, and bring nodes into it
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// Make the key of a new cluster on this node
    Init(StatePlace),
    /// Show the key, to be carried to another node: it is the whole secret
    Token(StatePlace),
    /// Prepare this node to join a cluster when its daemon starts
    Join(JoinOptions),
    /// Take the node of the running daemon out of its cluster, with the names of its segments
    Leave(Place),
    /// Take a node out that will not come back, with the names of its segments
    Remove(RemoveOptions),
    /// Who leads, who votes, who is alive
    Status(Place),
}

#[derive(Args, Debug)]
pub(crate) struct JoinOptions {
    /// A node of the cluster and where it listens
    pub(crate) address: std::net::SocketAddr,
    /// The word that `ddss cluster token` shows there; `-` takes it from standard input
    pub(crate) token: String,
    #[command(flatten)]
    pub(crate) state: StatePlace,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveOptions {
    /// Number of the node
    #[arg(value_parser = node)]
    pub(crate) node: NodeId,
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
    /// Folder of the daemon [default: $DDSS_DIR, else this user's own]
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
pub(crate) struct DemoOptions {
    /// How long each figure is measured, in milliseconds
    #[arg(long, default_value_t = 500, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) measure_ms: u64,
}

#[derive(Args, Debug)]
pub(crate) struct DemoClientOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    #[arg(long)]
    pub(crate) role: DemoRole,
    #[arg(long)]
    pub(crate) measure_ms: u64,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DemoRole {
    Writer,
    Reader,
}

#[derive(Args, Debug)]
pub(crate) struct AllocateOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Size in bytes
    pub(crate) bytes: u64,
    /// Coherence: null, read, write, strict, version, delta=N, temporal=MICROSECONDS
    #[arg(long, default_value = "strict", value_parser = model)]
    pub(crate) model: Model,
    /// Permission bits, octal
    #[arg(long, default_value = "600", value_parser = octal)]
    pub(crate) mode: u16,
    /// The node that shall be its home [default: this one]
    #[arg(long, value_name = "N", value_parser = node)]
    pub(crate) home: Option<NodeId>,
}

#[derive(Args, Debug)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// First byte
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: u64,
    /// How many bytes [default: all to the end]
    #[arg(long)]
    pub(crate) length: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The bytes, as text; `-` takes them from standard input
    pub(crate) bytes: String,
    /// First byte
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: u64,
}

fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| format!("{text:?} is no permission: give three octal digits, as in 640"))
}

fn node(text: &str) -> Result<NodeId, String> {
    let node = text.parse().ok().filter(|&node| node != 0).map(NodeId);
    node.ok_or_else(|| format!("{text:?} is no node: give its number, 1 or more"))
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
        assert!(octal("888").is_err() && octal("1777").is_err() && node("0").is_err());
    }
}
