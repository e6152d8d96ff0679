//! Command line of `ddssd`. It is part of a library, so that the manual page and the completions are generated from
//! the same text as the help.

use super::settings::Settings;
use crate::exit_code::ExitReason;
use crate::recovery::RecoveryMode;
use crate::release::Release;
use clap::Parser;
use std::path::PathBuf;

/// Help text below the flags.
const HELP: &str = "\
Examples:
  ddssd                                          one node, for this machine only
  ddss cluster init && ddssd --listen 10.0.0.1:7400
  ddssd --print-config > /etc/ddss/ddssd.conf    every setting, to be changed there

Flags come before the environment, the environment before the file, the file before defaults. SIGHUP reads the file
again: `log` and `quota` change at once, the rest with the next start.

Nodes of a cluster share a key (ddss cluster init, ddss cluster token). Without one a node is alone and does not listen.";

/// The node service of DDSS: shares memory segments with every process of this node and of its peers.
#[derive(Parser, Debug)]
#[command(
    name = "ddssd",
    version,
    long_version = Release::long(),
    after_help = format!("{HELP}\n\n{}", ExitReason::in_help())
)]
pub struct Arguments {
    /// A TOML file with settings, named as the flags are [default: ddssd.conf in the daemon's folder, if it is there]
    #[arg(long, env = "DDSS_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show every setting as it would be used, as a TOML file, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Check whether the daemon could start with these settings, and exit
    #[arg(long, conflicts_with = "print_config")]
    pub check_config: bool,
    /// Recover the cluster of a stopped node, for `ddss cluster recover`; prints a report
    #[arg(long, hide = true, value_enum, value_name = "MODE", conflicts_with_all = ["print_config", "check_config"])]
    pub recover: Option<RecoveryMode>,
    /// All settings.
    #[command(flatten)]
    pub settings: Settings,
}
