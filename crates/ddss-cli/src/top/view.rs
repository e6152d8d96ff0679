//! What is shown of two looks at the page: the same tables for the live view, for a pipe and for scripts.

use super::name_cache::Names;
use crate::commands::clients::program;
use crate::commands::counters::{latency_json, peers};
use crate::output::table::{Table, bytes_in_words};
use crate::output::terminal_text::columns;
use crate::status_page::{Page, count_in_words, us_in_words};
use ddss::SegmentId;
use ddss_core::status::{ClientRow, Counter, Gauge, Kind, OperationCount, Road, SegmentRow, Status, Step};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Two looks at one page, and what happened in between.
pub(super) struct Span<'a> {
    pub(super) now: &'a Page,
    /// An earlier look at the same daemon; without one, everything since its start.
    pub(super) before: Option<&'a Status>,
    /// Between the two; since the start if there is one only.
    pub(super) seconds: f64,
}

/// A part of the view.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) table: Table,
}

/// Everything in a moment.
pub(super) struct View {
    pub(super) head: String,
    /// Rates of the whole node, one by one.
    rates: Vec<String>,
    pub(super) latency: Section,
    pub(super) segments: Section,
    pub(super) clients: Section,
    pub(super) peers: Section,
}

fn calls(count: &OperationCount) -> u64 {
    count.done.saturating_add(count.failed).saturating_add(count.indeterminate)
}

impl Span<'_> {
    fn status(&self) -> &Status {
        &self.now.status
    }

    /// How often something happened in a second.
    fn rate(&self, value: impl Fn(&Status) -> u64) -> f64 {
        let then = self.before.map_or(0, &value);
        value(self.status()).saturating_sub(then) as f64 / self.seconds.max(0.001)
    }

    pub(super) fn calls_a_second(&self) -> f64 {
        self.rate(|status| calls(&status.operations()))
    }

    fn rates(&self) -> Vec<String> {
        let a_second =
            |kinds: &[Kind]| self.rate(|status| kinds.iter().map(|&kind| calls(&status.operation(kind))).sum());
        let bytes = |kinds: &[Kind]| {
            let rate = self.rate(|status| kinds.iter().map(|&kind| status.operation(kind).bytes).sum());
            let words = bytes_in_words(rate as u64);
            // 79 of what? 4.0K says it by itself.
            if words.ends_with(|last: char| last.is_ascii_digit()) { words + " B" } else { words }
        };
        let (gets, puts) = ([Kind::Get, Kind::GetMany], [Kind::Put, Kind::PutMany]);
        // Who waits for another version in vain asks again: nothing failed.
        let failed = self.rate(|status| {
            let (all, waits) = (status.operations(), status.operation(Kind::Await));
            (all.failed + all.indeterminate).saturating_sub(waits.failed + waits.indeterminate)
        });
        let gauge = |gauge| self.status().gauge(gauge);
        let words = |rate| count_in_words(rate);
        vec![
            format!("calls {}/s", words(self.calls_a_second())),
            format!("gets {}/s, {}/s", words(a_second(&gets)), bytes(&gets)),
            format!("puts {}/s, {}/s", words(a_second(&puts)), bytes(&puts)),
            format!("not done {}/s", words(failed)),
            format!("commits {}/s", words(self.rate(|status| status.counter(Counter::Commits)))),
            format!(
                "segments {} ({} of {})",
                gauge(Gauge::Segments),
                bytes_in_words(gauge(Gauge::PoolBytesUsed)),
                bytes_in_words(gauge(Gauge::PoolBytes))
            ),
            format!("clients {}", gauge(Gauge::Clients)),
            format!("locks held {}, waiting {}", gauge(Gauge::LockHolders), gauge(Gauge::LockWaiters)),
            format!("under way {}", gauge(Gauge::UnderWay)),
            format!("other nodes {} of {}", gauge(Gauge::Connections), gauge(Gauge::Peers)),
        ]
    }

    fn latency(&self) -> Table {
        let mut table = Table::new(&["CALL", "BY", "A SECOND", "p50 µs", "p90 µs", "p99 µs", "FOLLOWED"]);
        table.right(&[2, 3, 4, 5, 6]);
        for &kind in Kind::ALL {
            let mut rate = Some(self.rate(|status| calls(&status.operation(kind))));
            for &road in Road::ALL {
                let times = self.status().histogram(kind, road, Step::Total);
                let times = self
                    .before
                    .map_or_else(|| times.clone(), |old| times.since(old.histogram(kind, road, Step::Total)));
                if times.count() > 0 {
                    let by = if road == Road::Here { "this node" } else { "another" };
                    let mut row = vec![kind.name().to_owned(), by.to_owned()];
                    // Calls are counted by their kind only, so the number stands once.
                    row.push(rate.take().map_or_else(String::new, count_in_words));
                    row.extend([0.5, 0.9, 0.99].map(|part| us_in_words(times.percentile_ns(part))));
                    row.push(times.count().to_string());
                    table.row(row);
                }
            }
        }
        table
    }

    /// The segments by what was asked of them in between, the busiest first.
    pub(super) fn hottest(&self) -> Vec<(SegmentRow, f64)> {
        let old: HashMap<SegmentId, SegmentRow> =
            self.before.into_iter().flat_map(|status| &status.segments).map(|row| (row.segment, *row)).collect();
        let mut rows: Vec<(SegmentRow, f64)> = Vec::new();
        for &row in &self.status().segments {
            let then = old.get(&row.segment).copied();
            // A row that counts less than before is of another life.
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

    fn segments(&self, names: &Names, most: usize) -> Table {
        let mut table = Table::new(&["SEGMENT", "A SECOND", "GETS", "PUTS", "OTHER", "BYTES GOT", "BYTES PUT"]);
        table.right(&[1, 2, 3, 4, 5, 6]);
        for (row, rate) in self.hottest().into_iter().take(most) {
            let a_second = |value: u64| count_in_words(value as f64 / self.seconds.max(0.001));
            let bytes = |value: u64| bytes_in_words((value as f64 / self.seconds.max(0.001)) as u64);
            table.row(vec![
                names.of(row.segment),
                count_in_words(rate),
                a_second(row.gets),
                a_second(row.puts),
                a_second(row.others),
                bytes(row.bytes_got),
                bytes(row.bytes_put),
            ]);
        }
        table
    }

    /// The rings: the clients by what they ask, the busiest first.
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
        let mut table = Table::new(&["CLIENT", "PROCESS", "PROGRAM", "STRATEGY", "LANES", "A SECOND", "UNDER WAY"]);
        table.right(&[0, 1, 4, 5, 6]);
        table.spare(&[4, 3]);
        for (row, rate) in self.busiest() {
            table.row(vec![
                row.client.index.to_string(),
                row.pid.to_string(),
                program(row.pid),
                row.strategy_name().to_owned(),
                row.lanes.to_string(),
                count_in_words(rate),
                row.under_way.to_string(),
            ]);
        }
        table
    }

    /// Everything, with so many segments at the most.
    pub(super) fn view(&self, names: &Names, segments: usize) -> View {
        View {
            head: self.now.headline(),
            rates: self.rates(),
            latency: Section { title: "latency", table: self.latency() },
            segments: Section { title: "hottest segments, a second", table: self.segments(names, segments) },
            clients: Section { title: "rings", table: self.clients() },
            peers: Section { title: "connections", table: peers(self.status()) },
        }
    }

    /// The same for scripts.
    pub(super) fn as_json(&self, names: &Names, segments: usize) -> Value {
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
            for &road in Road::ALL {
                let times = self.status().histogram(kind, road, Step::Total);
                let times = self
                    .before
                    .map_or_else(|| times.clone(), |old| times.since(old.histogram(kind, road, Step::Total)));
                if times.count() > 0 {
                    latency.push(json!({ "call": kind.name(), "road": road.name(), "latency": latency_json(&times) }));
                }
            }
        }
        json!({ "daemon": self.now.as_json(), "seconds": self.seconds, "per_second": self.calls_a_second(),
            "latency": latency, "segments": hottest.collect::<Vec<_>>(), "clients": busiest.collect::<Vec<_>>() })
    }
}

impl View {
    /// The rates in lines of so many letters at the most.
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

    /// As text.
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
