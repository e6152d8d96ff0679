//! The daemon of one node: settings in, a [`Node`] that runs until it is told to stop.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

use clap::Parser;
use ddssd::{
    Arguments, Departure, ExitReason, FailureWatch, LogThrottle, Node, QuotaTable, Settings, StartError,
    drop_privileges, in_one_line, notify, strange_variables, watchdog_every,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

type LogFilter = reload::Handle<EnvFilter, Registry>;

/// What failed, and with which exit code.
struct Failed {
    code: u8,
    error: Box<dyn Error>,
}

impl Failed {
    fn settings(error: impl Into<Box<dyn Error>>) -> Self {
        Self { code: ExitReason::Settings.code(), error: error.into() }
    }
}

impl From<StartError> for Failed {
    fn from(error: StartError) -> Self {
        Self { code: error.exit_code(), error: error.into() }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self { code: ExitReason::Badly.code(), error: error.into() }
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

/// What the flags, the environment and the file say together.
fn read(arguments: &Arguments) -> Result<Settings, Failed> {
    let file = arguments.settings.file(arguments.config.as_deref());
    let from_file = file.map(|path| Settings::read(&path)).transpose().map_err(Failed::settings)?;
    Ok(arguments.settings.clone().or(from_file.unwrap_or_default()))
}

fn run(arguments: &Arguments) -> Result<(), Failed> {
    // Before there is another thread, and before anything is read as somebody who may read everything.
    let dropped = drop_privileges();
    let settings = read(arguments)?;
    if arguments.print_config {
        print!("{}", settings.resolved().to_toml().map_err(Failed::settings)?);
        return Ok(());
    }
    let filter = log_filter(&settings)?;
    let mut config = settings.clone().into_config()?;
    config.inherit_socket = true;
    if arguments.check_config {
        Node::check(&config)?;
        println!("the settings are good");
        return Ok(());
    }
    let rate = LogThrottle::default();
    let log = start_log(filter, rate.clone(), settings.log_json.unwrap_or_default());
    std::panic::set_hook(Box::new(tell_of_panic));
    if let Err(error) = dropped {
        tracing::warn!(%error, "cannot give away what this process may do beyond its user");
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for sentence in strange_variables(names) {
        tracing::warn!("{sentence}");
    }
    ddss_ipc::exit_on_lost_file(ExitReason::LostFile.code())?;
    // Before anything else runs, so that a signal during the start is a clean end, too.
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, config.told_to_stop.clone())?;
    }
    let patience = config.drain;
    let service = match Node::start(config) {
        Err(error) if error.is_stop() => {
            tracing::info!(why = %error, "stopping");
            return Ok(());
        }
        started => started?,
    };
    let node = service.node();
    let listen = service.address().map_or_else(|| "none".to_owned(), |address| address.to_string());
    println!("ready {node} socket {} listen {listen}", service.socket().display());
    std::io::stdout().flush()?;
    let core = |core: Option<usize>| core.map_or_else(|| "none".to_owned(), |core| core.to_string());
    let core = service.cores().into_iter().map(core).collect::<Vec<_>>().join(",");
    tracing::info!(node = node.0, socket = %service.socket().display(), listen, core, "ready");
    tell("READY=1");
    let (vigil, wait) = (service.vigil(), signals.handle());
    let (watch, watched) = (vigil.clone(), rate.clone());
    std::thread::Builder::new().name("ddss-vigil".to_owned()).spawn(move || keep_watch(&watch, &wait, &watched))?;
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(arguments, &settings, &log, &service);
            continue;
        }
        tracing::info!(signal, "stopping");
        tell("STOPPING=1");
        break;
    }
    if let Some(part) = vigil.ended() {
        return Err(part_ended(part, service));
    }
    if let Some(how) = vigil.departure() {
        return departed(how, service);
    }
    drain(&service, patience, || signals.pending().any(|signal| signal != SIGHUP));
    rate.report();
    Ok(service.stop()?)
}

/// Tells the service manager that the node lives, if it wants to know, and the log what it left out. A part that ends by itself ends
/// the wait for signals, and so does the end of the node's membership.
fn keep_watch(vigil: &FailureWatch, wait: &signal_hook::iterator::Handle, rate: &LogThrottle) {
    /// A sign of life comes some times a second.
    const SILENT_MAX: Duration = Duration::from_secs(2);
    let every = watchdog_every();
    let mut reported = Instant::now();
    // Not while a progress thread is silent: then it is for the service manager to end this daemon.
    while !vigil.wait(every.map_or(LogThrottle::REPORT_EVERY, |every| every.min(LogThrottle::REPORT_EVERY))) {
        if reported.elapsed() >= LogThrottle::REPORT_EVERY {
            rate.report();
            reported = Instant::now();
        }
        if every.is_some_and(|every| vigil.silence() <= every.max(SILENT_MAX)) {
            tell("WATCHDOG=1");
        }
    }
    if vigil.ended().is_some() || vigil.departure().is_some() {
        wait.close();
    }
    // It stops, and has its time for that.
    while let Some(every) = every {
        tell("WATCHDOG=1");
        std::thread::sleep(every);
    }
}

/// A part of the daemon is dead: the rest of it goes, too, so that whoever starts daemons starts another one.
fn part_ended(part: &str, service: Node) -> Failed {
    /// What hangs now hangs for ever.
    const STOP_MAX: Duration = Duration::from_secs(2);
    tell("STOPPING=1");
    let sentence = format!(
        "{part} ended by itself, which is a fault of ddssd: the log says where. \
         What was acknowledged is kept: start it again in the same folder"
    );
    tracing::error!(part, "a part of the daemon ended by itself: stopping");
    let stops = std::thread::spawn(move || service.stop());
    let until = Instant::now() + STOP_MAX;
    while !stops.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    Failed { code: ExitReason::Badly.code(), error: sentence.into() }
}

/// Ends a node that is out of its cluster. No request is begun any more: a put would be acknowledged that no other node knows of.
fn departed(how: Departure, service: Node) -> Result<(), Failed> {
    tell("STOPPING=1");
    let node = service.node();
    drain(&service, Duration::ZERO, || true);
    let stopped = service.stop();
    match how {
        Departure::Left => Ok(stopped?),
        Departure::Superseded => {
            let sentence = format!("{node} runs with a copy of this state folder, which is out of date: use the copy");
            Err(Failed { code: ExitReason::Settings.code(), error: sentence.into() })
        }
        _ => {
            let sentence = format!(
                "{node} was removed from its cluster, which has given up its names: it cannot come back under this number. \
                 Join anew with an empty state folder, or start it without a key to look at the segments that it has"
            );
            Err(Failed { code: ExitReason::Removed.code(), error: sentence.into() })
        }
    }
}

/// Lets what is under way end; a second word to stop is the last one.
fn drain(service: &Node, patience: Duration, mut told_again: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut again = false;
    let cut_short = service.drain(patience, || {
        again = told_again();
        again
    });
    let took_ms = began.elapsed().as_millis() as u64;
    if cut_short > 0 {
        tracing::warn!(requests = cut_short, again, took_ms, "stopped with requests under way");
    } else {
        tracing::info!(took_ms, again, "nothing is under way any more");
    }
}

fn tell(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, state, "cannot tell the service manager");
    }
}

fn log_filter(settings: &Settings) -> Result<EnvFilter, Failed> {
    let levels = settings.log.clone().unwrap_or_default();
    EnvFilter::try_new(levels.directives())
        .map_err(|error| Failed::settings(format!("log = {:?}: {error}", levels.to_string())))
}

fn start_log(filter: EnvFilter, rate: LogThrottle, json: bool) -> LogFilter {
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if json {
        lines.json().boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed()
    };
    tracing_subscriber::registry().with(filter).with(rate).with(lines).init();
    handle
}

/// A panic is a line of the log like any other; with `RUST_BACKTRACE=1` it says how it came there.
fn tell_of_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let why = panic.payload_as_str().unwrap_or("no words");
    let at = panic.location().map(ToString::to_string);
    let (thread, trace) = (std::thread::current(), Backtrace::capture());
    let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    tracing::error!(thread = thread.name(), at, why, trace, "a thread panicked");
}

/// Reads the settings again, takes what can be taken while the daemon runs, and names the rest.
fn reload(arguments: &Arguments, started_with: &Settings, log: &LogFilter, service: &Node) {
    let read = read(arguments).and_then(|settings| {
        let quotas = QuotaTable::new(settings.quota.as_deref().unwrap_or_default()).map_err(StartError::Quota)?;
        Ok((log_filter(&settings)?, quotas, settings))
    });
    let (filter, quotas, settings) = match read {
        Ok(read) => read,
        Err(Failed { error, .. }) => {
            let error = in_one_line(error.as_ref());
            return tracing::error!(error, "the settings are wrong: going on with those of before");
        }
    };
    if let Err(error) = log.reload(filter) {
        tracing::error!(%error, "cannot change what is logged");
    }
    service.set_quotas(quotas);
    let mut waits = started_with.changed(&settings);
    waits.retain(|name| name != "log" && name != "quota");
    tracing::info!(log = %settings.log.clone().unwrap_or_default(), "read the settings again");
    if !waits.is_empty() {
        tracing::warn!(settings = waits.join(", "), "these change with the next start");
    }
}
