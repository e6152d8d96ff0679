//! Meaning of an application's row: its curve, its place on the axis, and its part of the program.

use crate::report::figures::{curve_style, path_title};
use crate::report::picture::Style;
use crate::report::rows::{Entry, Rows};

/// A row's program and strategy, in words.
pub(super) fn label(entry: &Entry) -> (String, Style) {
    let (label, curve_style) = match &*entry.name {
        "ddss" => (path_title(entry.wait()), curve_style(entry.wait())),
        "none" => ("without".to_owned(), Style::Without),
        "raw" => ("bare sockets".to_owned(), Style::Raw),
        other => (other.to_owned(), Style::Peer),
    };
    if entry.outstanding > 1 {
        (format!("{label}, {} pages together", entry.outstanding), curve_style)
    } else {
        (label, curve_style)
    }
}

/// Parses the end of a mode like `q20-data` or `t4`: true for the data sharing part alone, then the letter and the
/// number.
pub(super) fn end(entry: &Entry) -> (bool, char, Option<u64>) {
    let end = entry.mode.split('/').nth(2).unwrap_or_default();
    let (end, is_data) = end.strip_suffix("-data").map_or((end, false), |end| (end, true));
    let letter = end.chars().next().unwrap_or('t');
    let number = end.get(1..).unwrap_or_default().trim_end_matches('K');
    let times = if end.ends_with('K') { 1000 } else { 1 };
    (is_data || entry.op.ends_with("-data"), letter, number.parse::<u64>().ok().map(|number| number * times))
}

/// Position of a row on the axis: the amount requested, or the number of clients, or else the bytes.
pub(super) fn along(entry: &Entry) -> u64 {
    match end(entry) {
        (_, _, Some(number)) => number,
        (_, _, None) => entry.size,
    }
}

/// Returns the rows of an operation: the total times, or with `-data` those of its data sharing part.
pub(super) fn of<'a>(rows: &'a Rows, op: &str) -> Vec<&'a Entry> {
    let (name, is_data) = op.strip_suffix("-data").map_or((op, false), |name| (name, true));
    let own = rows.of("apps").filter(|entry| entry.op.trim_end_matches("-data") == name);
    own.filter(|entry| end(entry).0 == is_data).collect()
}

/// The paths of DDSS among these rows.
pub(super) fn paths<'a>(rows: &[&'a Entry]) -> Vec<&'a str> {
    let mut paths: Vec<&str> = rows.iter().filter(|entry| entry.name == "ddss").map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Placement of the data, by the PATH of a row.
pub(super) fn where_at(road: &str) -> &str {
    match road {
        "shm" => "the processes' own node",
        spread if spread.ends_with("-spread") => "two nodes",
        _ => "one other node",
    }
}
