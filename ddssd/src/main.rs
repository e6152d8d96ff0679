//! The daemon of one node: settings in, a [`Service`] that runs until it is told to stop.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

use clap::Parser;
use ddssd::{Service, Settings, StartError, in_one_line, notify};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// The node service of DDSS: shares memory segments with every process of this node and of its peers.
#[derive(Parser, Debug)]
#[command(
    name = "ddssd",
    version,
    after_help = "\
Examples:
  ddssd                                          one node, for this machine only
  ddss cluster init && ddssd --listen 10.0.0.1:7400
  ddssd --print-config > /etc/ddss/ddssd.conf    every setting, to be changed there

Flags come before the environment, the environment before the file, the file before defaults. SIGHUP reads the file
again: `log` changes at once, the rest with the next start.

Nodes of a cluster share a key (ddss cluster init, ddss cluster token). Without one a node is alone and does not listen.

Exit codes: 0 stopped as asked, 1 ended badly, 2 wrong flags or configuration, 3 another ddssd works in the folder,
4 folder, memory or disk cannot be used, 5 no key or none that can be used, 6 the network or the cluster."
)]
struct Arguments {
    /// A TOML file with settings, named as the flags are [default: ddssd.conf in the daemon's folder, if it is there]
    #[arg(long, env = "DDSS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show every setting as it would be used, as a TOML file, and end
    #[arg(long)]
    print_config: bool,
    /// Look whether the daemon could start with these settings, and end
    #[arg(long, conflicts_with = "print_config")]
    check_config: bool,
    #[command(flatten)]
    settings: Settings,
}

type LogFilter = reload::Handle<EnvFilter, Registry>;

/// What failed, and with which exit code.
struct Failed {
    code: u8,
    error: Box<dyn Error>,
}

impl Failed {
    const CONFIGURATION: u8 = 2;

    fn settings(error: impl Into<Box<dyn Error>>) -> Self {
        Self { code: Self::CONFIGURATION, error: error.into() }
    }
}

impl From<StartError> for Failed {
    fn from(error: StartError) -> Self {
        Self { code: error.exit_code(), error: error.into() }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self { code: 1, error: error.into() }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { code, error }) => {
            eprintln!("ddssd: {}", in_one_line(error.as_ref()));
            ExitCode::from(code)
        }
    }
}

impl Arguments {
    /// What the flags, the environment and the file say together.
    fn read(&self) -> Result<Settings, Failed> {
        let file = self.settings.file(self.config.as_deref());
        let from_file = file.map(|path| Settings::read(&path)).transpose().map_err(Failed::settings)?;
        Ok(self.settings.clone().or(from_file.unwrap_or_default()))
    }
}

fn run(arguments: &Arguments) -> Result<(), Failed> {
    let settings = arguments.read()?;
    if arguments.print_config {
        print!("{}", settings.resolved().to_toml().map_err(Failed::settings)?);
        return Ok(());
    }
    let filter = log_filter(&settings)?;
    let config = settings.clone().into_config()?;
    if arguments.check_config {
        println!("the settings are good");
        return Ok(());
    }
    let log = start_log(filter, settings.log_json.unwrap_or_default());
    // Before anything else runs, so that a signal during the start is a clean end, too.
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let service = Service::start(config)?;
    let node = service.node();
    let listen = service.address().map_or_else(|| "none".to_owned(), |address| address.to_string());
    println!("ready {node} socket {} listen {listen}", service.socket().display());
    std::io::stdout().flush()?;
    let core = service.core().map_or_else(|| "none".to_owned(), |core| core.to_string());
    tracing::info!(node = node.0, socket = %service.socket().display(), listen, core, "ready");
    tell("READY=1");
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(arguments, &settings, &log);
            continue;
        }
        tracing::info!(signal, "stopping");
        tell("STOPPING=1");
        break;
    }
    Ok(service.stop()?)
}

fn tell(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, state, "cannot tell the service manager");
    }
}

fn log_filter(settings: &Settings) -> Result<EnvFilter, Failed> {
    let levels = settings.log.as_deref().unwrap_or("info");
    // The library of the group tells of each of its steps; whoever wants to hear that names it.
    let all = format!("openraft=warn,{levels}");
    EnvFilter::try_new(all).map_err(|error| Failed::settings(format!("log = {levels:?}: {error}")))
}

fn start_log(filter: EnvFilter, json: bool) -> LogFilter {
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if json {
        lines.json().boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed()
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    handle
}

/// Reads the settings again, takes what can be taken while the daemon runs, and names the rest.
fn reload(arguments: &Arguments, started_with: &Settings, log: &LogFilter) {
    let read = arguments.read().and_then(|settings| Ok((log_filter(&settings)?, settings)));
    let (filter, settings) = match read {
        Ok(read) => read,
        Err(Failed { error, .. }) => {
            let error = in_one_line(error.as_ref());
            return tracing::error!(error, "the settings are wrong: going on with those of before");
        }
    };
    if let Err(error) = log.reload(filter) {
        tracing::error!(%error, "cannot change what is logged");
    }
    let mut waits = started_with.changed(&settings);
    waits.retain(|name| name != "log");
    tracing::info!(log = settings.log.as_deref().unwrap_or("info"), "read the settings again");
    if !waits.is_empty() {
        tracing::warn!(settings = waits.join(", "), "these change with the next start");
    }
}
