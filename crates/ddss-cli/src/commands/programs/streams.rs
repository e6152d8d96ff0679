//! The commands `run` and `streams`: unmodified programs on streams in shared memory and on the wire.

use crate::arguments::{PumpOptions, RunOptions};
use crate::commands::clients::program;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use ddss_stream::Transport;
use ddss_stream::pump::Pump;
use rustix::process::{Resource, Rlimit};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// File name of the preload library.
const LIBRARY: &str = "libddss_preload.so";
/// Time without a program and a connection after which a pump ends: longer than a program needs to start.
const PUMP_IDLE_MAX: Duration = Duration::from_secs(30);
/// Variable with the libraries that the loader loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Replaces this process by the program, into which the loader loads the preload library.
pub(crate) fn run(options: &RunOptions) -> Result<(), CommandError> {
    let library = library(options.library.as_deref())?;
    let mut preload = OsString::from(&library);
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(CommandError::InvalidInput("name a program to run".to_owned()));
    };
    let mut command = Command::new(name);
    command.args(arguments).env(PRELOAD, preload);
    if let Some(rules) = &options.rules {
        let rules = rules.canonicalize().map_err(CommandError::file("read the rules in", rules))?;
        if names_wire(&rules)? {
            command.env("DDSS_STREAMS_PUMP", start_pump()?);
        }
        command.env("DDSS_STREAMS_RULES", rules);
    }
    if let Some(spin) = options.spin {
        command.env("DDSS_STREAMS_SPIN_US", spin.to_string());
    }
    let failed = command.exec();
    Err(CommandError::File { tried: "run", path: PathBuf::from(name), source: failed })
}

/// Returns true if a rule of the file chooses the wire.
fn names_wire(rules: &Path) -> Result<bool, CommandError> {
    let text = std::fs::read_to_string(rules).map_err(CommandError::file("read the rules in", rules))?;
    Ok(text.lines().any(|line| line.split_whitespace().take(2).eq(["use", "wire"])))
}

/// Starts a pump that is no child of the program, and returns its name.
fn start_pump() -> Result<String, CommandError> {
    let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
    let started = Command::new(own)
        .args(["stream-pump", "--detach"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(CommandError::system("start the pump of the wire"))?;
    let name = String::from_utf8(started.stdout).unwrap_or_default().trim_end().to_owned();
    if !started.status.success() || name.is_empty() {
        return Err(CommandError::Refused("the pump of the wire did not start: run without the rule".to_owned()));
    }
    Ok(name)
}

/// Carries streams of unmodified programs on the wire, or starts a process that does.
pub(crate) fn pump(options: &PumpOptions) -> Result<(), CommandError> {
    if options.detach {
        return detach_pump();
    }
    // Signals of the program's terminal do not concern its pump: it ends with its last connection.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    let mut pump = Pump::bind().map_err(CommandError::system("bind the pump of the wire"))?;
    println!("{}", pump.name());
    pump.run(PUMP_IDLE_MAX).map_err(CommandError::system("carry streams on the wire"))
}

/// Starts the pump as a child of this process, which then exits: the program gets no child that it does not know.
fn detach_pump() -> Result<(), CommandError> {
    let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
    let mut pump = Command::new(own)
        .arg("stream-pump")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(CommandError::system("start the pump of the wire"))?;
    let mut name = String::new();
    if let Some(output) = pump.stdout.take() {
        BufReader::new(output).read_line(&mut name).map_err(CommandError::system("read the name of the pump"))?;
    }
    print!("{name}");
    Ok(())
}

/// Returns the path of the preload library.
pub(crate) fn library(given: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(library) = given {
        return library.canonicalize().map_err(CommandError::file("load", library));
    }
    let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/ddss").join(LIBRARY)];
    places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        CommandError::Refused(format!(
            "cannot find {LIBRARY} beside this program or in ../lib/ddss: build it with `cargo build --release -p ddss-preload`, or name it with --library or DDSS_PRELOAD"
        ))
    })
}

/// Lists the streams of all processes that this user may inspect.
pub(crate) fn list(json: bool) -> Result<(), CommandError> {
    let rows = ddss_stream::list();
    let end = |is_acceptor: bool| if is_acceptor { "accepted" } else { "connected" };
    let transport = |transport: Transport| match transport {
        Transport::SameNode => "same-node",
        Transport::Wire => "wire",
        _ => "tcp",
    };
    if json {
        let rows = rows.iter().map(|row| {
            json!({ "pid": row.process, "program": program(row.process), "end": end(row.is_acceptor),
                "connector": row.connector.to_string(), "acceptor": row.acceptor.to_string(),
                "transport": transport(row.transport), "reason": row.reason.text(),
                "tcp_read": row.tcp_read, "tcp_written": row.tcp_written })
        });
        println!("{}", Value::Array(rows.collect()));
        return Ok(());
    }
    let mut table =
        Table::new(&["PROCESS", "PROGRAM", "END", "FROM", "TO", "TRANSPORT", "REASON", "TCP READ", "TCP WRITTEN"]);
    table.align_right(&[0, 7, 8]);
    table.set_optional(&[8, 7]);
    for row in rows {
        table.row(vec![
            row.process.to_string(),
            program(row.process),
            end(row.is_acceptor).to_owned(),
            row.connector.to_string(),
            row.acceptor.to_string(),
            transport(row.transport).to_owned(),
            row.reason.text().to_owned(),
            format_bytes(row.tcp_read),
            format_bytes(row.tcp_written),
        ]);
    }
    table.print_or(match ddss_stream::processes().len() {
        0 => "no program runs with the library",
        _ => "no program that runs with the library has a connection",
    });
    Ok(())
}
