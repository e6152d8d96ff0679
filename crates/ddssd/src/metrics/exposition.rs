//! The status page in the text format of Prometheus (0.0.4).
//!
//! Clients, processes and segments are no labels: they come and go, and each would leave a time series for ever. `ddss
//! top` shows them.

use super::process::ProcessSample;
use crate::status::RaftValues;
use ddss_admin::Release;
use ddss_core::Failure;
use ddss_core::status::{Counter, Gauge, Histogram, Kind, Location, PeerRow, Status, Step};
use ddss_ipc::clock_ns;
use std::fmt::Write;

/// Exported histogram bounds: powers of two of nanoseconds, from 128 ns to 4.3 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 7..=32;

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP ddss_{name} {help}\n# TYPE ddss_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.0, "ddss_{name} {value}"),
            labels => writeln!(self.0, "ddss_{name}{{{labels}}} {value}"),
        };
    }

    /// Writes a line for each shard; the shard is a label if there are several.
    fn each(&mut self, all: &[Status], name: &str, labels: &str, value: impl Fn(&Status) -> u64) {
        for status in all {
            self.line(name, &with_shard(status, labels), value(status));
        }
    }
}

/// Adds the shard to the labels, if there are several.
fn with_shard(status: &Status, labels: &str) -> String {
    let shard = status.daemon.shard;
    match labels {
        labels if shard.is_only() => labels.to_owned(),
        "" => format!("shard=\"{}\"", shard.index()),
        labels => format!("shard=\"{}\",{labels}", shard.index()),
    }
}

/// Values of the node beside those of its shards.
#[derive(Debug, Default)]
pub(super) struct NodeValues {
    pub(super) process: ProcessSample,
    pub(super) raft: Option<RaftValues>,
}

/// Formats the pages of all shards, and the values of the node.
pub(super) fn exposition(all: &[Status], node: &NodeValues) -> String {
    let mut text = Text(String::with_capacity((32 << 10) * all.len()));
    identity(&mut text, all);
    for &counter in Counter::ALL {
        let name = format!("{}_total", counter.name());
        text.head(&name, "counter", counter.help());
        text.each(all, &name, "", |status| status.counter(counter));
    }
    for &gauge in Gauge::ALL {
        let name = gauge.metric_name();
        text.head(name, "gauge", gauge.help());
        if gauge == Gauge::LatencyNs {
            for status in all {
                text.line(name, &with_shard(status, ""), status.gauge(gauge) as f64 / 1e9);
            }
        } else {
            text.each(all, name, "", |status| status.gauge(gauge));
        }
    }
    operations(&mut text, all);
    text.head("failures_total", "counter", "failures reported to clients, by kind");
    for code in 0..u8::MAX {
        let failure = Failure::from_code(code);
        if failure.code() == code {
            let label = format!("failure=\"{}\"", snake(failure));
            text.each(all, "failures_total", &label, |status| status.failure(failure));
        }
    }
    peers(&mut text, all);
    text.head("step_seconds", "histogram", "duration of each step of a request, sampled from one request in 128");
    for &kind in Kind::ALL {
        for &location in Location::ALL {
            for &step in Step::ALL {
                let labels =
                    format!("operation=\"{}\",location=\"{}\",step=\"{}\"", kind.name(), location.name(), step.name());
                for status in all {
                    histogram(
                        &mut text,
                        "step_seconds",
                        &with_shard(status, &labels),
                        status.histogram(kind, location, step),
                    );
                }
            }
        }
    }
    if let Some(values) = &node.raft {
        raft(&mut text, values);
    }
    process(&mut text, &node.process);
    text.0
}

fn raft(text: &mut Text, values: &RaftValues) {
    let RaftValues { term, applied_index, elections, log_bytes, log_syncs, clock_ahead_us } = values;
    text.head("raft_term", "gauge", "term of the Raft group");
    text.line("raft_term", "", term);
    text.head("raft_applied_index", "gauge", "newest log entry that this node has applied");
    text.line("raft_applied_index", "", applied_index);
    text.head("raft_elections_total", "counter", "terms that have begun since this daemon started");
    text.line("raft_elections_total", "", elections);
    text.head("raft_log_bytes", "gauge", "bytes of the log on the disk");
    text.line("raft_log_bytes", "", log_bytes);
    text.head(
        "raft_log_sync_seconds",
        "histogram",
        "duration of a write to the log, until it would survive a loss of power",
    );
    histogram(text, "raft_log_sync_seconds", "", log_syncs);
    text.head("clock_ahead_seconds", "gauge", "time by which this clock is ahead of the leader's");
    text.line("clock_ahead_seconds", "", *clock_ahead_us as f64 / 1e6);
}

/// Writes what the kernel knows, under the names that every exporter uses where there are some.
fn process(text: &mut Text, sample: &ProcessSample) {
    let ProcessSample {
        cpu_seconds,
        resident_bytes,
        open_descriptors,
        descriptors_max,
        memory_limit_bytes,
        file_systems,
    } = sample;
    for (name, kind, help, value) in [
        ("cpu_seconds_total", "counter", "processor time of this daemon", *cpu_seconds),
        ("resident_memory_bytes", "gauge", "resident memory of this daemon", resident_bytes.map(|bytes| bytes as f64)),
        ("open_fds", "gauge", "open descriptors of this daemon", open_descriptors.map(|count| count as f64)),
        ("max_fds", "gauge", "limit of open descriptors", descriptors_max.map(|count| count as f64)),
    ] {
        if let Some(value) = value {
            // Writing to a string does not fail.
            let _ =
                writeln!(text.0, "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}");
        }
    }
    if let Some(bytes) = memory_limit_bytes {
        text.head("memory_limit_bytes", "gauge", "memory limit of the control group of this daemon");
        text.line("memory_limit_bytes", "", bytes);
    }
    for (name, help, column) in [
        ("file_system_free_bytes", "free bytes of the file systems under the directories of memory and state", 0),
        ("file_system_bytes", "all bytes of these file systems", 1),
    ] {
        if !file_systems.is_empty() {
            text.head(name, "gauge", help);
        }
        for (role, free, bytes) in file_systems {
            text.line(name, &format!("of=\"{role}\""), [free, bytes][column]);
        }
    }
}

fn identity(text: &mut Text, all: &[Status]) {
    text.head("info", "gauge", "identity of this daemon");
    for status in all {
        let daemon = &status.daemon;
        let labels = format!(
            "node=\"{}\",release=\"{}\",commit=\"{}\",protocol=\"{}\",layout=\"{}\",register=\"{}\"",
            daemon.node.0,
            daemon.release,
            Release::COMMIT,
            Release::protocols(),
            Release::LAYOUT,
            Release::REGISTER
        );
        text.line("info", &with_shard(status, &labels), 1);
    }
    text.head("start_time_seconds", "gauge", "start time, in seconds since 1970");
    for status in all {
        text.line("start_time_seconds", &with_shard(status, ""), status.daemon.started_us as f64 / 1e6);
    }
    text.head("silent_seconds", "gauge", "time since the last sign of life of the progress thread");
    for status in all {
        let silent = clock_ns().saturating_sub(status.daemon.heartbeat_ns) as f64 / 1e9;
        text.line("silent_seconds", &with_shard(status, ""), silent);
    }
}

fn peers(text: &mut Text, all: &[Status]) {
    let each = || all.iter().flat_map(|status| status.peers.iter().map(move |peer| (status, peer)));
    let label = |status: &Status, peer: &PeerRow| with_shard(status, &format!("peer=\"{}\"", peer.node.0));
    text.head("peer_connected", "gauge", "1 if the other node is connected");
    for (status, peer) in each() {
        text.line("peer_connected", &label(status, peer), u8::from(peer.connected));
    }
    text.head("peer_messages_waiting", "gauge", "queued messages to another node");
    for (status, peer) in each() {
        text.line("peer_messages_waiting", &label(status, peer), peer.waiting);
    }
}

fn operations(text: &mut Text, all: &[Status]) {
    let label = |kind: Kind| format!("operation=\"{}\"", kind.name());
    text.head("operations_total", "counter", "finished requests, by operation and outcome");
    for &kind in Kind::ALL {
        for outcome in ["done", "failed", "indeterminate"] {
            let labels = format!("{},outcome=\"{outcome}\"", label(kind));
            text.each(all, "operations_total", &labels, |status| {
                let count = status.operation(kind);
                match outcome {
                    "done" => count.done,
                    "failed" => count.failed,
                    _ => count.indeterminate,
                }
            });
        }
    }
    text.head("operation_bytes_total", "counter", "bytes that requests moved");
    for &kind in Kind::ALL {
        text.each(all, "operation_bytes_total", &label(kind), |status| status.operation(kind).bytes);
    }
    text.head("operations_waited_total", "counter", "requests without an immediate reply");
    for &kind in Kind::ALL {
        text.each(all, "operations_waited_total", &label(kind), |status| status.operation(kind).waited);
    }
}

/// Writes one histogram, if it is not empty.
fn histogram(text: &mut Text, name: &str, labels: &str, histogram: &Histogram) {
    let count = histogram.count();
    if count == 0 {
        return;
    }
    let before = if labels.is_empty() { String::new() } else { format!("{labels},") };
    let (mut below, mut bucket) = (0, 0);
    for power in BOUNDS {
        let end = Histogram::bucket_of(1 << power);
        below += histogram.counts()[bucket..end].iter().sum::<u64>();
        bucket = end;
        // The bound is inclusive and in whole nanoseconds; a value on the power of two belongs to the next bucket.
        let bound = ((1u64 << power) - 1) as f64 / 1e9;
        text.line(&format!("{name}_bucket"), &format!("{before}le=\"{bound}\""), below);
    }
    text.line(&format!("{name}_bucket"), &format!("{before}le=\"+Inf\""), count);
    text.line(&format!("{name}_sum"), labels, histogram.sum_ns() as f64 / 1e9);
    text.line(&format!("{name}_count"), labels, count);
}

/// Converts `NodeDown` to `node_down`.
fn snake(failure: Failure) -> String {
    let mut name = String::new();
    for letter in failure.name().chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::Shard;
    use ddss_core::status::{Layout, Tally};
    use std::collections::{HashMap, HashSet};
    use std::slice::from_ref;

    #[test]
    fn every_line_parses_and_buckets_only_grow() {
        // If this broke, a monitor would show nothing, or percentiles that go backwards.
        let mut page = vec![0; Layout::BYTES];
        let mut set = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        Layout::begin(&mut set);
        set(Layout::counter_at(Counter::Commits), 42);
        set(Layout::operation_at(Kind::Get, Tally::Done), 7);
        set(Layout::failure_at(Failure::NodeDown.code()), 3);
        let at = Layout::histogram_at(Kind::Get, Location::Away, Step::Total);
        for (ns, count) in [(3, 1), (127, 1), (128, 1), (5000, 10), (u64::MAX, 2)] {
            set(at + Histogram::bucket_of(ns) * 8, count);
        }
        set(at + Layout::SUM_AT, 50_000);
        let status = Status::decode(&page).unwrap();
        let mut node = NodeValues::default();
        let text = exposition(from_ref(&status), &node);
        let (mut typed, mut values) = (HashSet::new(), HashMap::new());
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert!(typed.insert(kind.split_once(' ').unwrap().0.to_owned()), "{kind} twice");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
                assert!(values.insert(name.to_owned(), value.parse::<f64>().unwrap()).is_none(), "{name} twice");
                let family = name.split('{').next().unwrap();
                let family =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end)).unwrap_or(family);
                assert!(typed.contains(family), "{line} has no type");
            }
        }
        assert_eq!(values["ddss_commits_total"], 42.0);
        assert_eq!(values["ddss_operations_total{operation=\"get\",outcome=\"done\"}"], 7.0);
        assert_eq!(values["ddss_failures_total{failure=\"node_down\"}"], 3.0);
        let labels = "operation=\"get\",location=\"away\",step=\"total\"";
        assert_eq!(values[&format!("ddss_step_seconds_bucket{{{labels},le=\"0.000000127\"}}")], 2.0);
        assert_eq!(values[&format!("ddss_step_seconds_bucket{{{labels},le=\"0.000000255\"}}")], 3.0);
        assert_eq!(values[&format!("ddss_step_seconds_bucket{{{labels},le=\"+Inf\"}}")], 15.0);
        assert_eq!(values[&format!("ddss_step_seconds_count{{{labels}}}")], 15.0);
        let mut last = 0.0;
        for line in text.lines().filter(|line| line.starts_with("ddss_step_seconds_bucket")) {
            let value = line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
            assert!(value >= last, "{line}");
            last = value;
        }
        // With two shards each has its lines, and each type is declared once.
        let all = [0, 1].map(|index| {
            let mut status = status.clone();
            status.daemon.shard = Shard::new(index, 2).unwrap();
            status
        });
        let both = exposition(&all, &node);
        assert!(both.contains("ddss_commits_total{shard=\"1\"} 42\n"), "{both}");
        assert!(both.contains("ddss_operations_total{shard=\"0\",operation=\"get\",outcome=\"done\"} 7\n"));
        let types = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
        let values = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!((types(&both), values(&both)), (types(&text), 2 * values(&text)));
        // Values of the node stand once.
        node.raft = Some(RaftValues { term: 7, clock_ahead_us: -1500, ..RaftValues::default() });
        node.process = ProcessSample { cpu_seconds: Some(0.25), ..ProcessSample::default() };
        node.process.file_systems.push(("state", 5, 9));
        let text = exposition(&all, &node);
        for line in [
            "ddss_raft_term 7",
            "ddss_clock_ahead_seconds -0.0015",
            "process_cpu_seconds_total 0.25",
            "ddss_file_system_free_bytes{of=\"state\"} 5",
            "ddss_file_system_bytes{of=\"state\"} 9",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}");
        }
    }
}
