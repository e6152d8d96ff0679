//! What a daemon has counted since it was started.

use crate::arguments::CountersOptions;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::{Table, bytes_in_words};
use crate::output::terminal_text::say;
use crate::status_page::{Page, read, us, us_in_words};
use ddss::Failure;
use ddss_core::status::{Counter, Gauge, Histogram, Kind, PeerRow, Status, Step};
use serde_json::{Map, Value, json};

/// Every failure that a client can be told.
fn failures() -> impl Iterator<Item = Failure> {
    // An unknown code is taken for another failure, whose own code is not this one.
    (1..=u8::MAX)
        .map(Failure::from_code)
        .zip(1..=u8::MAX)
        .filter(|&(failure, code)| failure.code() == code)
        .map(|(known, _)| known)
}

/// A failure as a name for scripts.
fn name_of(failure: Failure) -> String {
    let words = format!("{failure:?}");
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
        return page.verdict();
    }
    let glob = Glob::new(options.pattern.as_deref().unwrap_or("*"));
    let shown = |name: &str, value: u64| glob.matches(name) && (options.all || value > 0 || options.pattern.is_some());
    let status = &page.status;
    say(&page.headline(), 2);
    let mut kinds = Table::new(&["CALL", "DONE", "FAILED", "NOBODY KNOWS", "BYTES", "p50 µs", "p99 µs"]);
    kinds.right(&[1, 2, 3, 4, 5, 6]);
    for &kind in Kind::ALL {
        let count = status.operation(kind);
        if shown(kind.name(), count.done + count.failed + count.indeterminate) {
            let times = status.histogram_of(kind, Step::Total);
            kinds.row(vec![
                kind.name().to_owned(),
                count.done.to_string(),
                count.failed.to_string(),
                count.indeterminate.to_string(),
                bytes_in_words(count.bytes),
                us_in_words(times.percentile_ns(0.5)),
                us_in_words(times.percentile_ns(0.99)),
            ]);
        }
    }
    print(kinds);
    let mut gauges = three("NOW");
    for &gauge in Gauge::ALL {
        let value = status.gauge(gauge);
        if shown(gauge.name(), value) {
            gauges.row(vec![gauge.name().to_owned(), value.to_string(), gauge.help().to_owned()]);
        }
    }
    print(gauges);
    let mut counters = three("SINCE ITS START");
    for &counter in Counter::ALL {
        let value = status.counter(counter);
        if shown(counter.name(), value) {
            counters.row(vec![counter.name().to_owned(), value.to_string(), counter.help().to_owned()]);
        }
    }
    print(counters);
    let mut failed = Table::new(&["FAILURE", "TOLD", "WHAT"]);
    failed.right(&[1]);
    failed.flows();
    for failure in failures() {
        let (name, value) = (name_of(failure), status.failure(failure));
        if shown(&name, value) {
            failed.row(vec![name, value.to_string(), failure.to_string()]);
        }
    }
    print(failed);
    if options.pattern.is_none() && !status.peers.is_empty() {
        print(peers(status));
    }
    page.verdict()
}

fn three(what: &str) -> Table {
    let mut table = Table::new(&["NAME", what, "WHAT"]);
    table.right(&[1]);
    table.flows();
    table
}

/// A table with something in it, after an empty line.
fn print(table: Table) {
    if !table.is_empty() {
        println!();
        table.print();
    }
}

/// The roads to the other nodes.
pub(crate) fn peers(status: &Status) -> Table {
    let mut table = Table::new(&["NODE", "ADDRESS", "ROAD", "WAITING", "WINDOWS"]);
    table.right(&[3, 4]);
    for &PeerRow { node, connected, waiting, windows, address, .. } in &status.peers {
        let road = if connected { "connected" } else { "none" };
        let (waiting, windows) = (waiting.to_string(), windows.to_string());
        table.row(vec![node.0.to_string(), address.to_string(), road.to_owned(), waiting, windows]);
    }
    table
}

fn as_json(page: &Page) -> Value {
    let status = &page.status;
    let counters: Map<String, Value> =
        Counter::ALL.iter().map(|&counter| (counter.name().to_owned(), status.counter(counter).into())).collect();
    let gauges: Map<String, Value> =
        Gauge::ALL.iter().map(|&gauge| (gauge.name().to_owned(), status.gauge(gauge).into())).collect();
    let failures: Map<String, Value> =
        failures().map(|failure| (name_of(failure), status.failure(failure).into())).collect();
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

/// What a histogram says, for scripts.
pub(crate) fn latency_json(times: &Histogram) -> Value {
    json!({ "sampled": times.count(), "p50_us": us(times.percentile_ns(0.5)), "p99_us": us(times.percentile_ns(0.99)),
        "mean_us": us(times.mean_ns()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_names_for_scripts() {
        // If this broke, an alert on a failure would never fire.
        assert_eq!(name_of(Failure::LockLost), "lock_lost");
        assert!(failures().count() > 10);
    }
}
