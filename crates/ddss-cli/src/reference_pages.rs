//! Generated tables of the reference pages. (Compiled for tests only.)
//!
//! A place begins with `<!-- begin NAME -->` and ends with `<!-- end NAME -->`. The test compares it with the code;
//! `DDSS_UPDATE_DOCS=1 cargo test -p ddss-cli reference_pages` writes it anew.

use crate::arguments::Arguments;
use clap::{Command, CommandFactory};
use ddss_core::status::{Counter, Gauge, Kind, Step};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes a table row; a `|` inside a cell is escaped.
fn row(table: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

fn head(cells: &[&str]) -> String {
    let mut table = String::new();
    row(&mut table, cells);
    row(&mut table, &vec!["---"; cells.len()]);
    table
}

/// Lists every command that `--help` shows, with its one-line description.
fn commands() -> String {
    fn add(table: &mut String, path: &str, command: &Command) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            if !below.has_subcommands() {
                row(table, &[&format!("`{path}`"), &about]);
            }
            add(table, &path, below);
        }
    }
    let mut command = Arguments::command();
    command.build();
    let mut table = head(&["command", "what it does"]);
    add(&mut table, "ddss", &command);
    table
}

/// Lists every setting of the daemon: flag, environment variable, help.
fn settings() -> String {
    let mut table = head(&["flag", "environment", "meaning"]);
    for argument in ddss_admin::Arguments::command().get_arguments().filter(|argument| !argument.is_hide_set()) {
        let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long)) else { continue };
        let value = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let takes_value = argument.get_action().takes_values() && !matches!(value, "" | "BOOL");
        let flag = if takes_value { format!("`--{long} {value}`") } else { format!("`--{long}`") };
        let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        row(&mut table, &[&flag, &variable, &help]);
    }
    table
}

fn counters() -> String {
    let mut table = head(&["metric", "meaning"]);
    for counter in Counter::ALL {
        row(&mut table, &[&format!("`ddss_{}_total`", counter.name()), counter.help()]);
    }
    table
}

fn gauges() -> String {
    let mut table = head(&["metric", "meaning"]);
    for gauge in Gauge::ALL {
        row(&mut table, &[&format!("`ddss_{}`", gauge.metric_name()), gauge.help()]);
    }
    table
}

fn steps() -> String {
    let mut table = head(&["`step`", "meaning"]);
    for step in Step::ALL {
        row(&mut table, &[&format!("`{}`", step.name()), step.help()]);
    }
    let operations: Vec<String> = Kind::ALL.iter().map(|kind| format!("`{}`", kind.name())).collect();
    let _ = write!(table, "\nValues of `operation`: {}.\n", operations.join(", "));
    table
}

/// The value of a constant: a number, or a number that is shifted.
fn value_of(words: &str) -> Option<u64> {
    let number = |words: &str| words.trim().replace('_', "").parse::<u64>().ok();
    match words.split_once("<<") {
        Some((value, by)) => Some(number(value)? << number(by)?),
        None => number(words),
    }
}

/// A number of bytes with the largest unit that divides it; any other number as it is.
fn with_unit(name: &str, value: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(power, _)| value >= 1 << power && value.is_multiple_of(1 << power));
    match unit {
        Some((power, unit)) if name.contains("BYTES") => format!("{} {unit}", value >> power),
        _ if name.ends_with("_US") && value.is_multiple_of(1_000_000) => format!("{} s", value / 1_000_000),
        _ => value.to_string(),
    }
}

/// Lists the constants of `limits.rs`, each with the first line of its documentation.
fn limits() -> String {
    let path = root().join("crates/ddss-core/src/limits.rs");
    let source = fs::read_to_string(path).expect("the limits can be read");
    let mut table = head(&["limit", "value", "constant"]);
    let mut document: Option<String> = None;
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            document = document.or_else(|| Some(text.trim().trim_end_matches('.').to_owned()));
            continue;
        }
        let constant = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": "));
        if let (Some((name, rest)), Some(document)) = (constant, document.take()) {
            let value = rest.split_once(" = ").map(|(_, value)| value.trim_end_matches(';'));
            if let Some(value) = value.and_then(value_of) {
                row(&mut table, &[&document, &with_unit(name, value), &format!("`{name}`")]);
            }
        }
    }
    table
}

/// Returns the page with the place filled, or an error that names the missing place.
fn filled(page: &str, name: &str, table: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("the page has no place called {name}"))?;
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}

// If this failed, a reference page would describe another release.
#[test]
fn reference_pages_match_the_code() {
    let folder = root().join("docs/book/src/reference");
    let update = std::env::var_os("DDSS_UPDATE_DOCS").is_some();
    let places = [
        ("commands", commands()),
        ("settings", settings()),
        ("counters", counters()),
        ("gauges", gauges()),
        ("steps", steps()),
        ("limits", limits()),
    ];
    for (name, table) in places {
        assert!(table.lines().count() > 6, "the table {name} is nearly empty:\n{table}");
        let page = match name {
            "counters" | "gauges" | "steps" => "metrics",
            other => other,
        };
        let path = folder.join(page).with_extension("md");
        let text = fs::read_to_string(&path).expect("the page can be read");
        let wanted = filled(&text, name, &table).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if update {
            fs::write(&path, &wanted).expect("the page can be written");
        } else {
            let hint = "run `DDSS_UPDATE_DOCS=1 cargo test -p ddss-cli reference_pages`";
            assert!(text == wanted, "{} differs from the code in {name}: {hint}", path.display());
        }
    }
}

#[test]
fn a_place_is_filled_and_the_rest_stays() {
    let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
    let wanted = "a\n<!-- begin x -->\n\n| n |\n\n<!-- end x -->\nb\n";
    assert_eq!(filled(page, "x", "| n |\n").as_deref(), Ok(wanted));
    assert_eq!(filled(wanted, "x", "| n |\n").as_deref(), Ok(wanted));
    assert!(filled(page, "y", "").is_err());
    assert_eq!((with_unit("A_BYTES", 8 << 20), with_unit("N", 1 << 20)), ("8 MiB".to_owned(), "1048576".to_owned()));
    assert_eq!((value_of("64 << 10"), value_of("2_000"), value_of("A * 2")), (Some(65536), Some(2000), None));
}
