//! The command `counters`: operations, gauges, counters and failures of a daemon since its start.

use crate::arguments::CountersOptions;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::{Table, format_bytes};
use crate::output::terminal_text::print_sentence;
use crate::status_page::{StatusPage, format_us, read, us};
use ddss_core::Failure;
use ddss_core::status::{Counter, Gauge, Histogram, Kind, PeerRow, Status, Step};
use serde_json::{Map, Value, json};

/// Returns every failure that a daemon can report to a client.
fn failures() -> impl Iterator<Item = Failure> {
    // `from_code` maps an unknown code to a failure with another code.
    (1..=u8::MAX)
        .map(Failure::from_code)
        .zip(1..=u8::MAX)
        .filter(|&(failure, code)| failure.code() == code)
        .map(|(known, _)| known)
}

/// Returns the snake_case name of a failure for scripts.
fn failure_name(failure: Failure) -> String {
    let words = failure.name();
    let mut name = String::new();
    for letter in words.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

pub(crate) fn run(options: &CountersOptions, json: bool) -> Result<(), CommandError> {
    let page = read(&options.place)?;
    page.warn();
    if json {
        println!("{}", as_json(&page));
        return page.require_running();
    }
    let glob = Glob::new(options.pattern.as_deref().unwrap_or("*"));
    let shown = |name: &str, value: u64| glob.matches(name) && (options.all || value > 0 || options.pattern.is_some());
    let status = &page.status;
    print_sentence(&page.headline(), 2);
    let mut kinds = Table::new(&["CALL", "DONE", "FAILED", "UNKNOWN", "BYTES", "p50 µs", "p99 µs"]);
    kinds.align_right(&[1, 2, 3, 4, 5, 6]);
    for &kind in Kind::ALL {
        let count = status.operation(kind);
        if shown(kind.name(), count.done + count.failed + count.indeterminate) {
            let times = status.histogram_of(kind, Step::Total);
            kinds.row(vec![
                kind.name().to_owned(),
                count.done.to_string(),
                count.failed.to_string(),
                count.indeterminate.to_string(),
                format_bytes(count.bytes),
                format_us(times.percentile_ns(0.5)),
                format_us(times.percentile_ns(0.99)),
            ]);
        }
    }
    print(kinds);
    let mut gauges = three_columns("NOW");
    for &gauge in Gauge::ALL {
        let value = status.gauge(gauge);
        if shown(gauge.name(), value) {
            gauges.row(vec![gauge.name().to_owned(), value.to_string(), gauge.help().to_owned()]);
        }
    }
    print(gauges);
    let mut counters = three_columns("SINCE START");
    for &counter in Counter::ALL {
        let value = status.counter(counter);
        if shown(counter.name(), value) {
            counters.row(vec![counter.name().to_owned(), value.to_string(), counter.help().to_owned()]);
        }
    }
    print(counters);
    let mut failed = Table::new(&["FAILURE", "COUNT", "WHAT"]);
    failed.align_right(&[1]);
    failed.wrap_last();
    for failure in failures() {
        let (name, value) = (failure_name(failure), status.failure(failure));
        if shown(&name, value) {
            failed.row(vec![name, value.to_string(), failure.to_string()]);
        }
    }
    print(failed);
    if options.pattern.is_none() && !status.peers.is_empty() {
        print(peers(status));
    }
    page.require_running()
}

fn three_columns(what: &str) -> Table {
    let mut table = Table::new(&["NAME", what, "WHAT"]);
    table.align_right(&[1]);
    table.wrap_last();
    table
}

/// Prints a table with rows, after an empty line.
fn print(table: Table) {
    if !table.is_empty() {
        println!();
        table.print();
    }
}

/// Returns the table of connections to the other nodes.
pub(crate) fn peers(status: &Status) -> Table {
    let mut table = Table::new(&["NODE", "ADDRESS", "STATE", "WAITING", "WINDOWS"]);
    table.align_right(&[3, 4]);
    for &PeerRow { node, connected, waiting, windows, address, .. } in &status.peers {
        let state = if connected { "connected" } else { "none" };
        let (waiting, windows) = (waiting.to_string(), windows.to_string());
        table.row(vec![node.0.to_string(), address.to_string(), state.to_owned(), waiting, windows]);
    }
    table
}

fn as_json(page: &StatusPage) -> Value {
    let status = &page.status;
    let counters: Map<String, Value> =
        Counter::ALL.iter().map(|&counter| (counter.name().to_owned(), status.counter(counter).into())).collect();
    let gauges: Map<String, Value> =
        Gauge::ALL.iter().map(|&gauge| (gauge.name().to_owned(), status.gauge(gauge).into())).collect();
    let failures: Map<String, Value> =
        failures().map(|failure| (failure_name(failure), status.failure(failure).into())).collect();
    let operations: Map<String, Value> =
        Kind::ALL.iter().map(|&kind| (kind.name().to_owned(), operation_json(status, kind))).collect();
    let peers = status.peers.iter().map(|peer| {
        json!({ "node": peer.node.0, "address": peer.address, "connected": peer.connected, "waiting": peer.waiting,
            "windows": peer.windows, "since_us": peer.since_us })
    });
    json!({ "daemon": page.as_json(), "operations": operations, "gauges": gauges, "counters": counters,
        "failures": failures, "peers": peers.collect::<Vec<_>>() })
}

fn operation_json(status: &Status, kind: Kind) -> Value {
    let count = status.operation(kind);
    let times = status.histogram_of(kind, Step::Total);
    json!({ "done": count.done, "failed": count.failed, "indeterminate": count.indeterminate, "bytes": count.bytes,
        "waited": count.waited, "latency": latency_json(&times) })
}

/// Formats a histogram as JSON.
pub(crate) fn latency_json(times: &Histogram) -> Value {
    json!({ "sampled": times.count(), "p50_us": us(times.percentile_ns(0.5)), "p99_us": us(times.percentile_ns(0.99)),
        "mean_us": us(times.mean_ns()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_are_snake_case() {
        // Alerts match these names.
        assert_eq!(failure_name(Failure::LockLost), "lock_lost");
        assert!(failures().count() > 10);
    }
}
