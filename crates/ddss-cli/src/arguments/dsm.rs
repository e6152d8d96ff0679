//! Arguments of `ddss dsm`.

use crate::arguments::values::DaemonOptions;
use crate::examples;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;

#[derive(Subcommand, Debug)]
pub(crate) enum DsmCommand {
    /// Start the ranks of a space: a program several times, each with a number of its own
    #[command(after_help = examples::DSM_RUN)]
    Run(DsmRunOptions),
    /// List the spaces, with the ranks that live, and checkpoints
    #[command(after_help = examples::DSM_LS)]
    Ls(DaemonOptions),
    /// Show what the ranks of spaces do: fetches, diffs, handlers, locks, barriers
    #[command(after_help = examples::DSM_TOP)]
    Top(DsmTopOptions),
    /// Release the names and checkpoints of spaces whose ranks are gone
    #[command(after_help = examples::DSM_RM)]
    Rm(DsmRemoveOptions),
}

#[derive(Args, Debug)]
pub(crate) struct DsmRunOptions {
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Number of ranks of the space, on all nodes together
    #[arg(short = 'n', long = "count", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) count: u16,
    /// Name of the space [default: run-PID, of this process]
    #[arg(long, value_name = "NAME")]
    pub(crate) space: Option<String>,
    /// Ranks that this command starts, such as 0-3 or 5; others start on other nodes [default: all]
    #[arg(long, value_name = "RANKS", requires = "space", value_parser = rank_range)]
    pub(crate) ranks: Option<(u16, u16)>,
    /// Address of this node at which ranks on other nodes reach those that start here [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// Times that all ranks are started again after one has failed: they go on from the last complete checkpoint
    #[arg(long, value_name = "TIMES", default_value_t = 0, conflicts_with = "ranks")]
    pub(crate) restart: u32,
    /// Look for races when all ranks have ended: accesses of two ranks to one byte that nothing orders
    #[arg(long, conflicts_with = "ranks")]
    pub(crate) check: bool,
    /// Protocol of the pages
    #[arg(long, value_enum, default_value_t = ProtocolName::Newgendsm)]
    pub(crate) protocol: ProtocolName,
    /// Order of diffs and fetches
    #[arg(long, value_enum, default_value_t = OrderingName::Stamped)]
    pub(crate) ordering: OrderingName,
    /// Stamps that report one-sided diffs to a home
    #[arg(long, value_enum, default_value_t = StampsName::Home)]
    pub(crate) stamps: StampsName,
    /// Way in which uses of pages that a rank does not hold are reported, for programs that use regions in place
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) page_faults: Option<PageFaultsName>,
    /// Give the program the same addresses in all ranks: programs in C copy variables by address
    #[arg(long)]
    pub(crate) same_addresses: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Arguments of the hidden command that becomes a rank.
#[derive(Args, Debug)]
pub(crate) struct DsmRankOptions {
    /// Process that started this one
    #[arg(long)]
    pub(crate) parent: i32,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct DsmTopOptions {
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
    /// Space [default: all whose ranks live]
    #[arg(value_name = "SPACE")]
    pub(crate) space: Option<String>,
    /// Show the pages that ranks fetch most, and those that several ranks write between barriers, too
    #[arg(long)]
    pub(crate) pages: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DsmRemoveOptions {
    /// Names of the spaces
    #[arg(required = true, value_name = "SPACE")]
    pub(crate) spaces: Vec<String>,
    /// Release the name of a space whose ranks live: they go on without it
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

/// Protocols, from the paper.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ProtocolName {
    /// Every request is a message to a handler
    Async,
    /// Pages and homes are read one-sided
    Ardmar,
    /// Diffs are written one-sided
    Draw,
    /// Both
    Newgendsm,
}

/// Orders of diffs and fetches.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum OrderingName {
    /// A fetch looks at the stamps of a page
    Stamped,
    /// A release waits until its writes are placed
    Placed,
}

/// Stamps of one-sided diffs.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum StampsName {
    /// One for all pages of a home
    Home,
    /// One for each page: readers wait less, homes have more messages
    Page,
}

/// Ways to report page faults.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum PageFaultsName {
    /// Permissions of pages, and a signal
    Mprotect,
}

fn rank_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("name ranks such as 0-3 or 5".to_owned()),
    }
}
