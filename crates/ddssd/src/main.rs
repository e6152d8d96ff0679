//! The daemon of one node: reads the settings and runs a [`Node`] until a stop signal.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

use clap::Parser;
use ddssd::{
    Arguments, Config, Departure, ExitReason, FailureWatch, LogThrottle, Node, QuotaTable, RecoveryMode, Settings,
    StartError, drop_privileges, forbid_core_dumps, format_error_chain, notify, record_command, recover,
    unknown_variables, watchdog_interval,
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

/// An error and the exit code for it.
struct DaemonError {
    code: u8,
    error: Box<dyn Error>,
}

impl DaemonError {
    fn settings(error: impl Into<Box<dyn Error>>) -> Self {
        Self { code: ExitReason::Settings.code(), error: error.into() }
    }
}

impl From<StartError> for DaemonError {
    fn from(error: StartError) -> Self {
        Self { code: error.exit_code(), error: error.into() }
    }
}

impl From<std::io::Error> for DaemonError {
    fn from(error: std::io::Error) -> Self {
        Self { code: ExitReason::Failure.code(), error: error.into() }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(DaemonError { code, error }) => {
            eprintln!("ddssd: {}", format_error_chain(error.as_ref()));
            ExitCode::from(code)
        }
    }
}

/// Merges the settings of the flags, the environment and the file.
fn read_settings(arguments: &Arguments) -> Result<Settings, DaemonError> {
    let file = arguments.settings.file(arguments.config.as_deref());
    let from_file = file.map(|path| Settings::read(&path)).transpose().map_err(DaemonError::settings)?;
    Ok(arguments.settings.clone().or(from_file.unwrap_or_default()))
}

/// Says whether the daemon could start now, and what it would change.
fn print_check(config: &Config) -> Result<(), DaemonError> {
    if let Some(note) = Node::check(config)? {
        println!("{note}");
    }
    println!("the settings are good");
    Ok(())
}

/// Recovers the cluster of this node, and prints the report for `ddss`.
fn print_recovery(config: &Config, mode: RecoveryMode) -> Result<(), DaemonError> {
    let report = recover(config, mode)?;
    println!("{}", serde_json::to_string(&report).map_err(std::io::Error::from)?);
    Ok(())
}

fn run(arguments: &Arguments) -> Result<(), DaemonError> {
    // Before another thread exists, and before any file is read with the privileges of root.
    let dropped = drop_privileges();
    let settings = read_settings(arguments)?;
    if arguments.print_config {
        print!("{}", settings.resolved().to_toml().map_err(DaemonError::settings)?);
        return Ok(());
    }
    let filter = log_filter(&settings)?;
    let mut config = Config::from_settings(settings.clone())?;
    config.inherit_socket = true;
    if arguments.check_config || arguments.recover.is_some() {
        return arguments.recover.map_or_else(|| print_check(&config), |mode| print_recovery(&config, mode));
    }
    let rate = LogThrottle::default();
    let log = start_log(filter, rate.clone(), settings.log_json.unwrap_or_default());
    std::panic::set_hook(Box::new(log_panic));
    let hidden = if config.key.is_some() { forbid_core_dumps() } else { Ok(()) };
    if let Err(error) = dropped.and(hidden) {
        tracing::warn!(%error, "cannot drop the privileges of this process");
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for sentence in unknown_variables(names) {
        tracing::warn!("{sentence}");
    }
    ddss_ipc::SharedMemory::exit_on_lost_file(ExitReason::LostFile.code())?;
    // Before anything else runs, so that a signal during the start is a clean stop as well.
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, config.stop_requested.clone())?;
    }
    let (grace_period, folder) = (config.drain, config.folder.clone());
    let service = match Node::start(config) {
        Err(error) if error.is_stop() => {
            tracing::info!(why = %error, "stopping");
            return Ok(());
        }
        started => started?,
    };
    if let Err(error) = record_command(&folder, std::env::args_os()) {
        tracing::debug!(%error, "cannot record the command line");
    }
    let (watch, wait) = (service.failure_watch(), signals.handle());
    match watch.unless_departed(|| announce_ready(&service)) {
        Ok(announced) => announced?,
        Err(departure) => return stop_after_departure(departure, service),
    }
    let (watch_clone, rate_clone) = (watch.clone(), rate.clone());
    std::thread::Builder::new()
        .name("ddss-watchdog".to_owned())
        .spawn(move || feed_watchdog(&watch_clone, &wait, &rate_clone))?;
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(arguments, &settings, &log, &service);
            continue;
        }
        tracing::info!(signal, "stopping");
        notify_service_manager("STOPPING=1");
        break;
    }
    if let Some(part) = watch.failed_task() {
        return Err(stop_after_failure(part, service));
    }
    if let Some(departure) = watch.departure() {
        return stop_after_departure(departure, service);
    }
    drain(&service, grace_period, || signals.pending().any(|signal| signal != SIGHUP));
    rate.report();
    Ok(service.stop()?)
}

/// Says that the node serves: to its user, in the log, and to the service manager.
fn announce_ready(service: &Node) -> std::io::Result<()> {
    let node = service.node();
    let listen = service.address().map_or_else(|| "none".to_owned(), |address| address.to_string());
    println!("ready {node} socket {} listen {listen}", service.socket().display());
    std::io::stdout().flush()?;
    let core = |core: Option<usize>| core.map_or_else(|| "none".to_owned(), |core| core.to_string());
    let core = service.cores().into_iter().map(core).collect::<Vec<_>>().join(",");
    tracing::info!(node = node.0, socket = %service.socket().display(), listen, core, "ready");
    notify_service_manager("READY=1");
    Ok(())
}

/// Feeds the service manager's watchdog, and reports suppressed log lines. Ends the wait for signals when a critical
/// task has failed or the node has left its cluster.
fn feed_watchdog(watch: &FailureWatch, wait: &signal_hook::iterator::Handle, rate: &LogThrottle) {
    /// Longest silence of a healthy progress thread, which gives several signs of life a second.
    const SILENT_MAX: Duration = Duration::from_secs(2);
    let every = watchdog_interval();
    let mut reported = Instant::now();
    // No watchdog message while a progress thread is silent: then the service manager has to restart this daemon.
    while !watch.wait(every.map_or(LogThrottle::REPORT_EVERY, |every| every.min(LogThrottle::REPORT_EVERY))) {
        if reported.elapsed() >= LogThrottle::REPORT_EVERY {
            rate.report();
            reported = Instant::now();
        }
        if every.is_some_and(|every| watch.silence() <= every.max(SILENT_MAX)) {
            notify_service_manager("WATCHDOG=1");
        }
    }
    if watch.failed_task().is_some() || watch.departure().is_some() {
        wait.close();
    }
    // The daemon is stopping, which may take longer than a watchdog period.
    while let Some(every) = every {
        notify_service_manager("WATCHDOG=1");
        std::thread::sleep(every);
    }
}

/// Stops the node after the failure of a critical task, so that the service manager starts a new daemon.
fn stop_after_failure(part: &str, service: Node) -> DaemonError {
    /// A thread that hangs now will not recover.
    const STOP_MAX: Duration = Duration::from_secs(2);
    notify_service_manager("STOPPING=1");
    let sentence = format!(
        "{part} ended by itself, which is a bug in ddssd: the log says where. \
         Acknowledged data is safe: start ddssd again in the same folder"
    );
    tracing::error!(part, "a critical task of the daemon failed: stopping");
    let stops = std::thread::spawn(move || service.stop());
    let until = Instant::now() + STOP_MAX;
    while !stops.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    DaemonError { code: ExitReason::Failure.code(), error: sentence.into() }
}

/// Stops a node that is out of its cluster. It begins no request any more: the cluster would not know of an
/// acknowledged put.
fn stop_after_departure(departure: Departure, service: Node) -> Result<(), DaemonError> {
    notify_service_manager("STOPPING=1");
    let node = service.node();
    drain(&service, Duration::ZERO, || true);
    let stopped = service.stop();
    match departure {
        Departure::Left => Ok(stopped?),
        Departure::Superseded => {
            let sentence = format!(
                "{node} runs with a copy of this state folder, or its cluster was recovered: the log says what to do"
            );
            Err(DaemonError { code: ExitReason::Settings.code(), error: sentence.into() })
        }
        _ => {
            let sentence = format!(
                "{node} was removed from its cluster, which has released its names: it cannot come back under this number. \
                 Join again with an empty state folder, or start it without a key to read its segments"
            );
            Err(DaemonError { code: ExitReason::Removed.code(), error: sentence.into() })
        }
    }
}

/// Drains pending requests; a second stop signal ends the wait.
fn drain(service: &Node, grace_period: Duration, mut has_second_signal: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut again = false;
    let cut_short = service.drain(grace_period, || {
        again = has_second_signal();
        again
    });
    let took_ms = began.elapsed().as_millis() as u64;
    if cut_short > 0 {
        tracing::warn!(requests = cut_short, again, took_ms, "stopped with pending requests");
    } else {
        tracing::info!(took_ms, again, "all requests are finished");
    }
}

fn notify_service_manager(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, state, "cannot notify the service manager");
    }
}

fn log_filter(settings: &Settings) -> Result<EnvFilter, DaemonError> {
    let levels = settings.log.clone().unwrap_or_default();
    EnvFilter::try_new(levels.directives())
        .map_err(|error| DaemonError::settings(format!("log = {:?}: {error}", levels.to_string())))
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

/// Logs a panic like any other event; `RUST_BACKTRACE=1` adds the backtrace.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let why = panic.payload_as_str().unwrap_or("no words");
    let at = panic.location().map(ToString::to_string);
    let (thread, trace) = (std::thread::current(), Backtrace::capture());
    let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    tracing::error!(thread = thread.name(), at, why, trace, "a thread panicked");
}

/// Reads the settings again, applies those that can change at run time, and logs the names of the others.
fn reload(arguments: &Arguments, started_with: &Settings, log: &LogFilter, service: &Node) {
    let read = read_settings(arguments).and_then(|settings| {
        let quotas = QuotaTable::new(settings.quota.as_deref().unwrap_or_default()).map_err(StartError::Quota)?;
        Ok((log_filter(&settings)?, quotas, settings))
    });
    let (filter, quotas, settings) = match read {
        Ok(read) => read,
        Err(DaemonError { error, .. }) => {
            let error = format_error_chain(error.as_ref());
            return tracing::error!(error, "the new settings are invalid: keeping the old ones");
        }
    };
    if let Err(error) = log.reload(filter) {
        tracing::error!(%error, "cannot change the log level");
    }
    service.set_quotas(quotas);
    let mut waits = started_with.changed(&settings);
    waits.retain(|name| name != "log" && name != "quota");
    tracing::info!(log = %settings.log.clone().unwrap_or_default(), "read the settings again");
    if !waits.is_empty() {
        tracing::warn!(settings = waits.join(", "), "these settings change at the next start");
    }
}
