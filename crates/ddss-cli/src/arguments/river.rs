//! Arguments of `ddss river`.

use crate::arguments::values::{DaemonOptions, size};
use crate::examples;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;

#[derive(Subcommand, Debug)]
pub(crate) enum RiverCommand {
    /// Lists of work that survive every process: add units, work them off, list and retry them
    #[command(subcommand, after_help = examples::RIVER_UNITS)]
    Units(UnitsCommand),
}

#[derive(Subcommand, Debug)]
pub(crate) enum UnitsCommand {
    /// Add units of work to a list, which is created if it does not exist
    #[command(after_help = examples::RIVER_UNITS_ADD)]
    Add(UnitsAddOptions),
    /// Run a program for each unit; exit code 0 of the program means that the unit is done
    #[command(after_help = examples::RIVER_UNITS_WORK)]
    Work(UnitsWorkOptions),
    /// List the units with state, attempts and result
    #[command(after_help = examples::RIVER_UNITS_LS)]
    Ls(UnitsListOptions),
    /// Open the failed units again
    #[command(after_help = examples::RIVER_UNITS_RETRY)]
    Retry(UnitsOptions),
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
