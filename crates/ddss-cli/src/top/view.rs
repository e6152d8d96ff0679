//! Rates and tables between two reads of the status page, for the live view, for text output and for JSON.

use super::name_cache::NameCache;
use crate::commands::clients::program;
use crate::commands::counters::{latency_json, peers};
use crate::output::table::{Table, format_bytes};
use crate::output::terminal_text::columns;
use crate::status_page::{StatusPage, format_count, format_us};
use ddss::SegmentId;
use ddss_core::status::{ClientRow, Counter, Gauge, Kind, Location, OperationCount, SegmentRow, Status, Step};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The interval between two reads of one status page.
pub(super) struct Interval<'a> {
    pub(super) now: &'a StatusPage,
    /// Earlier status of the same daemon; `None` means its start.
    pub(super) before: Option<&'a Status>,
    /// Length of the interval.
    pub(super) seconds: f64,
}

/// A titled table.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) table: Table,
}

/// All parts of the view.
pub(super) struct View {
    pub(super) head: String,
    /// Rates of the node.
    rates: Vec<String>,
    pub(super) latency: Section,
    pub(super) segments: Section,
    pub(super) clients: Section,
    pub(super) peers: Section,
}

fn calls(count: &OperationCount) -> u64 {
    count.done.saturating_add(count.failed).saturating_add(count.indeterminate)
}

impl Interval<'_> {
    fn status(&self) -> &Status {
        &self.now.status
    }

    /// Returns the growth of a counter per second.
    fn rate(&self, value: impl Fn(&Status) -> u64) -> f64 {
        let then = self.before.map_or(0, &value);
        value(self.status()).saturating_sub(then) as f64 / self.seconds.max(0.001)
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        self.rate(|status| calls(&status.operations()))
    }

    fn rates(&self) -> Vec<String> {
        let per_second =
            |kinds: &[Kind]| self.rate(|status| kinds.iter().map(|&kind| calls(&status.operation(kind))).sum());
        let bytes = |kinds: &[Kind]| {
            let rate = self.rate(|status| kinds.iter().map(|&kind| status.operation(kind).bytes).sum());
            let words = format_bytes(rate as u64);
            // A number without a suffix gets a unit.
            if words.ends_with(|last: char| last.is_ascii_digit()) { words + " B" } else { words }
        };
        let (gets, puts) = ([Kind::Get, Kind::GetMany], [Kind::Put, Kind::PutMany]);
        // A client repeats a wait for a version that timed out: this is no failure.
        let failed = self.rate(|status| {
            let (all, waits) = (status.operations(), status.operation(Kind::Await));
            (all.failed + all.indeterminate).saturating_sub(waits.failed + waits.indeterminate)
        });
        let gauge = |gauge| self.status().gauge(gauge);
        let words = |rate| format_count(rate);
        vec![
            format!("calls {}/s", words(self.calls_per_second())),
            format!("gets {}/s, {}/s", words(per_second(&gets)), bytes(&gets)),
            format!("puts {}/s, {}/s", words(per_second(&puts)), bytes(&puts)),
            format!("failed {}/s", words(failed)),
            format!("commits {}/s", words(self.rate(|status| status.counter(Counter::Commits)))),
            format!(
                "segments {} ({} of {})",
                gauge(Gauge::Segments),
                format_bytes(gauge(Gauge::PoolBytesUsed)),
                format_bytes(gauge(Gauge::PoolBytes))
            ),
            format!("clients {}", gauge(Gauge::Clients)),
            format!("locks held {}, waiting {}", gauge(Gauge::LockHolders), gauge(Gauge::LockWaiters)),
            format!("in flight {}", gauge(Gauge::UnderWay)),
            format!("other nodes {} of {}", gauge(Gauge::Connections), gauge(Gauge::Peers)),
        ]
    }

    fn latency(&self) -> Table {
        let mut table = Table::new(&["CALL", "PATH", "PER SECOND", "p50 µs", "p90 µs", "p99 µs", "SAMPLES"]);
        table.align_right(&[2, 3, 4, 5, 6]);
        for &kind in Kind::ALL {
            let mut rate = Some(self.rate(|status| calls(&status.operation(kind))));
            for &location in Location::ALL {
                let times = self.status().histogram(kind, location, Step::Total);
                let times = self
                    .before
                    .map_or_else(|| times.clone(), |old| times.since(old.histogram(kind, location, Step::Total)));
                if times.count() > 0 {
                    let by = if location == Location::Here { "local" } else { "remote" };
                    let mut row = vec![kind.name().to_owned(), by.to_owned()];
                    // Calls are counted by kind only, so the rate appears in the first row.
                    row.push(rate.take().map_or_else(String::new, format_count));
                    row.extend([0.5, 0.9, 0.99].map(|part| format_us(times.percentile_ns(part))));
                    row.push(times.count().to_string());
                    table.row(row);
                }
            }
        }
        table
    }

    /// Returns the segments with their calls in the interval, the busiest first.
    pub(super) fn hottest(&self) -> Vec<(SegmentRow, f64)> {
        let old: HashMap<SegmentId, SegmentRow> =
            self.before.into_iter().flat_map(|status| &status.segments).map(|row| (row.segment, *row)).collect();
        let mut rows: Vec<(SegmentRow, f64)> = Vec::new();
        for &row in &self.status().segments {
            let then = old.get(&row.segment).copied();
            // A lower count than before belongs to a new segment in the same row.
            let then = then.filter(|then| then.calls() <= row.calls());
            let since = |value: fn(&SegmentRow) -> u64| value(&row).saturating_sub(then.as_ref().map_or(0, value));
            let fresh = SegmentRow {
                gets: since(|row| row.gets),
                puts: since(|row| row.puts),
                others: since(|row| row.others),
                bytes_got: since(|row| row.bytes_got),
                bytes_put: since(|row| row.bytes_put),
                ..row
            };
            rows.push((fresh, fresh.calls() as f64 / self.seconds.max(0.001)));
        }
        rows.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.segment.cmp(&other.0.segment)));
        rows
    }

    fn segments(&self, names: &NameCache, most: usize) -> Table {
        let mut table = Table::new(&["SEGMENT", "PER SECOND", "GETS", "PUTS", "OTHER", "BYTES GOT", "BYTES PUT"]);
        table.align_right(&[1, 2, 3, 4, 5, 6]);
        for (row, rate) in self.hottest().into_iter().take(most) {
            let per_second = |value: u64| format_count(value as f64 / self.seconds.max(0.001));
            let bytes = |value: u64| format_bytes((value as f64 / self.seconds.max(0.001)) as u64);
            table.row(vec![
                names.of(row.segment),
                format_count(rate),
                per_second(row.gets),
                per_second(row.puts),
                per_second(row.others),
                bytes(row.bytes_got),
                bytes(row.bytes_put),
            ]);
        }
        table
    }

    /// Returns the clients with their calls per second, the busiest first.
    fn busiest(&self) -> Vec<(ClientRow, f64)> {
        let old = |row: &ClientRow| {
            let same = self.before?.clients.iter().find(|old| old.client == row.client)?;
            Some(same.operations)
        };
        let mut rows: Vec<(ClientRow, f64)> = Vec::new();
        for &row in &self.status().clients {
            let fresh = row.operations.saturating_sub(old(&row).unwrap_or(0));
            rows.push((row, fresh as f64 / self.seconds.max(0.001)));
        }
        rows.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.client.cmp(&other.0.client)));
        rows
    }

    fn clients(&self) -> Table {
        let mut table =
            Table::new(&["CLIENT", "PROCESS", "PROGRAM", "STRATEGY", "CHANNELS", "PER SECOND", "IN FLIGHT"]);
        table.align_right(&[0, 1, 4, 5, 6]);
        table.set_optional(&[4, 3]);
        for (row, rate) in self.busiest() {
            table.row(vec![
                row.client.index.to_string(),
                row.pid.to_string(),
                program(row.pid),
                row.strategy_name().to_owned(),
                row.channels.to_string(),
                format_count(rate),
                row.under_way.to_string(),
            ]);
        }
        table
    }

    /// Builds the view with at most `segments` rows of segments.
    pub(super) fn view(&self, names: &NameCache, segments: usize) -> View {
        View {
            head: self.now.headline(),
            rates: self.rates(),
            latency: Section { title: "latency", table: self.latency() },
            segments: Section { title: "busiest segments, per second", table: self.segments(names, segments) },
            clients: Section { title: "clients", table: self.clients() },
            peers: Section { title: "connections", table: peers(self.status()) },
        }
    }

    /// Formats the interval as JSON.
    pub(super) fn as_json(&self, names: &NameCache, segments: usize) -> Value {
        let hottest = self.hottest().into_iter().take(segments).map(|(row, rate)| {
            json!({ "segment": row.segment.to_bits(), "name": names.of(row.segment), "per_second": rate,
                "gets": row.gets, "puts": row.puts, "others": row.others, "bytes_got": row.bytes_got,
                "bytes_put": row.bytes_put })
        });
        let busiest = self.busiest().into_iter().map(|(row, rate)| {
            json!({ "client": row.client.index, "pid": row.pid, "program": program(row.pid),
                "strategy": row.strategy_name(), "per_second": rate, "under_way": row.under_way })
        });
        let mut latency = Vec::new();
        for &kind in Kind::ALL {
            for &location in Location::ALL {
                let times = self.status().histogram(kind, location, Step::Total);
                let times = self
                    .before
                    .map_or_else(|| times.clone(), |old| times.since(old.histogram(kind, location, Step::Total)));
                if times.count() > 0 {
                    latency.push(
                        json!({ "call": kind.name(), "location": location.name(), "latency": latency_json(&times) }),
                    );
                }
            }
        }
        json!({ "daemon": self.now.as_json(), "seconds": self.seconds, "per_second": self.calls_per_second(),
            "latency": latency, "segments": hottest.collect::<Vec<_>>(), "clients": busiest.collect::<Vec<_>>() })
    }
}

impl View {
    /// Joins the rates into lines of at most `most` characters.
    pub(super) fn rate_lines(&self, most: usize) -> Vec<String> {
        const GAP: &str = "   ";
        let mut lines: Vec<String> = Vec::new();
        for rate in &self.rates {
            match lines.last_mut() {
                Some(line) if line.chars().count() + GAP.len() + rate.chars().count() <= most => {
                    line.push_str(GAP);
                    line.push_str(rate);
                }
                _ => lines.push(rate.clone()),
            }
        }
        lines
    }

    /// Prints the view as text.
    pub(super) fn print(&self) {
        println!("{}", self.head);
        self.rate_lines(columns(std::io::stdout()).unwrap_or(160)).iter().for_each(|line| println!("{line}"));
        for section in [&self.latency, &self.segments, &self.clients, &self.peers] {
            if !section.table.is_empty() {
                println!("\n{}", section.title);
                section.table.print();
            }
        }
    }
}
