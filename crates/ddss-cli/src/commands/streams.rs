//! The commands `run` and `streams`: unmodified programs on streams in shared memory.

use crate::arguments::RunOptions;
use crate::commands::clients::program;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the preload library.
const LIBRARY: &str = "libddss_preload.so";
/// Variable with the libraries that the loader loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Replaces this process by the program, which the loader gives the preload library.
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
        command.env("DDSS_STREAMS_RULES", rules);
    }
    if let Some(spin) = options.spin {
        command.env("DDSS_STREAMS_SPIN_US", spin.to_string());
    }
    let failed = command.exec();
    Err(CommandError::File { tried: "run", path: PathBuf::from(name), source: failed })
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
    let transport = |is_shared: bool| if is_shared { "same-node" } else { "tcp" };
    if json {
        let rows = rows.iter().map(|row| {
            json!({ "pid": row.process, "program": program(row.process), "end": end(row.is_acceptor),
                "connector": row.connector.to_string(), "acceptor": row.acceptor.to_string(),
                "transport": transport(row.is_shared), "reason": row.reason.text(),
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
            transport(row.is_shared).to_owned(),
            row.reason.text().to_owned(),
            format_bytes(row.tcp_read),
            format_bytes(row.tcp_written),
        ]);
    }
    table.print_or("no program runs with the library");
    Ok(())
}
