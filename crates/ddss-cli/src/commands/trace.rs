//! The command `trace`: the steps of one call and their times, as sampled by the daemon.

use super::data::resolve_length;
use crate::arguments::{TraceCall, TraceOptions};
use crate::error::CommandError;
use crate::output::table::format_timestamp;
use crate::output::terminal_text::{print_sentence, wrapped};
use crate::status_page::{format_us, read, read_shards, us};
use ddss::{Client, ConnectOptions, Segment};
use ddss_core::Outcome;
use ddss_core::status::{Location, SampleRow, Step};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Number of calls: the daemon samples each of the first calls of a channel.
const CALLS: usize = 8;
/// Maximum time until the status page shows the samples.
const RETRY_TIME_MAX: Duration = Duration::from_secs(2);
/// Steps of a call in their order, without the total.
const STEPS: [Step; 4] = [Step::Submit, Step::Post, Step::Complete, Step::Reply];
/// Width of the explanations, which fits into every terminal.
const HELP_COLUMNS: usize = 78;

pub(crate) fn run(options: &TraceOptions, json: bool) -> Result<(), CommandError> {
    let page = read(&options.place)?;
    page.warn();
    let (samples, title) = match &options.name {
        Some(name) if !page.has_ended() => record_samples(options, name)?,
        _ => (page.status.samples.clone(), "the last traced call".to_owned()),
    };
    let Some(last) = samples.last() else {
        return Err(CommandError::Refused("the daemon has traced no call yet: name a segment to call".to_owned()));
    };
    if json {
        let samples: Vec<Value> = samples.iter().map(as_json).collect();
        println!("{}", json!({ "daemon": page.as_json(), "samples": samples }));
        return page.require_running();
    }
    print_sentence(&format!("{title}: {}", describe(last)), 2);
    println!("it ended {}\n", format_timestamp(last.ended_us));
    draw_path(last, page.status.daemon.node.0).iter().for_each(|line| println!("{line}"));
    println!();
    format_shares(last, &samples).iter().for_each(|line| println!("{line}"));
    page.require_running()
}

/// Default number of bytes of a call.
const TRACE_BYTES: u64 = 8;

/// Makes some calls and returns their samples from the status page.
fn record_samples(options: &TraceOptions, name: &str) -> Result<(Vec<SampleRow>, String), CommandError> {
    // A local read would bypass the daemon.
    let client =
        Client::connect_with(ConnectOptions::new().directory(options.place.folder()).channels(1).local_reads(false))?;
    let segment = client.segment(name).open()?;
    let length = resolve_length(&segment, 0, options.bytes, TRACE_BYTES)?;
    if length > Segment::TRANSFER_BYTES_MAX as u64 {
        let most = Segment::TRANSFER_BYTES_MAX;
        return Err(CommandError::InvalidInput(format!(
            "--bytes is {length}: give 0 to {most}, the limit of one call"
        )));
    }
    let mut bytes = vec![0; length as usize];
    // Opening the segment was the first call.
    for _ in 1..CALLS {
        match options.call {
            TraceCall::Get => segment.get_into(0, &mut bytes).map(drop)?,
            // The put writes the present contents: only the version changes.
            TraceCall::Put => {
                segment.get_into(0, &mut bytes)?;
                segment.put(0, &bytes).map(drop)?;
            }
            TraceCall::Ping => client.ping()?,
        }
    }
    let kind = options.call.kind();
    let begin = Instant::now();
    loop {
        let shards = read_shards(&options.place)?;
        // A daemon that was restarted with fewer shards may lack the shard of the segment.
        let shard = if options.call == TraceCall::Ping { 0 } else { segment.id().shard() };
        let Some(status) = shards.get(usize::from(shard)) else {
            return Err(CommandError::Refused(
                "the call does not appear in the daemon's status page: try again".to_owned(),
            ));
        };
        let own = status.clients.iter().find(|row| row.pid == std::process::id()).map(|row| row.client);
        let mine = |sample: &&SampleRow| Some(sample.client) == own && sample.kind == kind;
        let samples: Vec<SampleRow> = status.samples.iter().filter(mine).copied().collect();
        let expected = if options.call == TraceCall::Put { CALLS / 2 - 1 } else { CALLS - 1 };
        if samples.len() >= expected || (begin.elapsed() > RETRY_TIME_MAX && !samples.is_empty()) {
            return Ok((samples, format!("{} of {name}", options.call.title())));
        }
        if begin.elapsed() > RETRY_TIME_MAX {
            return Err(CommandError::Refused(
                "the call does not appear in the daemon's status page: try again".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn as_json(sample: &SampleRow) -> Value {
    let steps: serde_json::Map<String, Value> =
        Step::ALL.iter().map(|&step| (format!("{}_us", step.name()), us(sample.step_ns(step)).into())).collect();
    let end = match sample.outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed(failure) => format!("failed: {failure}"),
        Outcome::Indeterminate(failure) => format!("outcome unknown: {failure}"),
    };
    json!({ "call": sample.kind.name(), "location": sample.location.name(), "outcome": end, "bytes": sample.bytes,
        "client": sample.client.index, "segment": sample.segment.map(ddss::SegmentId::to_bits),
        "ended_us": sample.ended_us, "steps": steps })
}

fn describe(sample: &SampleRow) -> String {
    let place = sample.segment.map_or_else(String::new, |segment| format!(", {segment} at {}", segment.home()));
    let end = match sample.outcome {
        Outcome::Done => String::new(),
        Outcome::Failed(failure) => format!(", failed: {failure}"),
        Outcome::Indeterminate(failure) => format!(", outcome unknown: {failure}"),
    };
    // A line stays below 80 columns, however slow the call was.
    let total = match sample.step_ns(Step::Total) {
        Some(ns) if ns >= 10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{} µs", format_us(ns)),
    };
    format!("{}, {} bytes{place}, {total}{end}", sample.kind.name(), sample.bytes)
}

/// Draws the path of a call as a sequence diagram: time runs downwards, one column for each process.
fn draw_path(sample: &SampleRow, node: u16) -> Vec<String> {
    let time = |step: Step| {
        let ns = sample.step_ns(step)?;
        Some(format!("{} {} µs", step.name(), format_us(Some(ns))))
    };
    let or_bare = Option::unwrap_or_default;
    let mut names = vec!["client".to_owned(), format!("ddssd of node {node}")];
    let is_remote = sample.location == Location::Away;
    if is_remote {
        names.push(sample.segment.map_or_else(|| "another node".to_owned(), |segment| segment.home().to_string()));
    }
    let mut picture = Picture::new(&names);
    picture.arrow(0, 1, &or_bare(time(Step::Submit)));
    picture.note(1, &or_bare(time(Step::Post)));
    if is_remote {
        picture.arrow(1, 2, "");
        picture.arrow(2, 1, &or_bare(time(Step::Complete)));
    } else if let Some(waited) = time(Step::Complete) {
        picture.note(1, &waited);
    }
    picture.arrow(1, 0, &or_bare(time(Step::Reply)));
    picture.bars();
    picture.lines
}

/// A sequence diagram of columns and arrows.
struct Picture {
    columns: usize,
    lines: Vec<String>,
}

impl Picture {
    /// Offset of the first column, and distance between columns.
    const FIRST: usize = 4;
    const APART: usize = 30;

    fn new(names: &[String]) -> Self {
        let head: String = names.iter().map(|name| format!("{name:<width$}", width = Self::APART)).collect();
        let mut picture = Self { columns: names.len(), lines: vec![format!("  {}", head.trim_end())] };
        picture.bars();
        picture
    }

    fn at(column: usize) -> usize {
        Self::FIRST + column * Self::APART
    }

    fn blank(&self) -> Vec<char> {
        let mut line = vec![' '; Self::at(self.columns - 1) + 1];
        (0..self.columns).for_each(|column| line[Self::at(column)] = '|');
        line
    }

    fn bars(&mut self) {
        self.lines.push(self.blank().into_iter().collect());
    }

    fn write(line: &mut Vec<char>, at: usize, words: &str) {
        for (index, letter) in words.chars().enumerate() {
            line.resize(line.len().max(at + index + 1), ' ');
            line[at + index] = letter;
        }
    }

    /// Draws an arrow from a column to its neighbour.
    fn arrow(&mut self, from: usize, to: usize, words: &str) {
        let mut line = self.blank();
        let (left, right) = (Self::at(from.min(to)), Self::at(from.max(to)));
        line[left + 1..right].fill('-');
        line[if from < to { right - 1 } else { left + 1 }] = if from < to { '>' } else { '<' };
        if !words.is_empty() {
            Self::write(&mut line, left + 4, &format!(" {words} "));
        }
        self.lines.push(line.into_iter().collect());
    }

    /// Writes a step beside a column.
    fn note(&mut self, column: usize, words: &str) {
        let mut line = self.blank();
        Self::write(&mut line, Self::at(column) + 3, words);
        self.lines.push(line.into_iter().collect());
    }
}

/// Formats the share of each step in the total, and its median over all calls.
fn format_shares(last: &SampleRow, samples: &[SampleRow]) -> Vec<String> {
    let total = last.step_ns(Step::Total).unwrap_or(0).max(1);
    let mut lines = vec![format!(
        "{:<10}{:>10}{:>8}  {:<22}{:>14}",
        "STEP",
        "µs",
        "SHARE",
        "",
        format!("MEDIAN OF {}", samples.len())
    )];
    for step in STEPS.into_iter().chain([Step::Total]) {
        let ns = last.step_ns(step);
        let part = ns.unwrap_or(0) as f64 / total as f64;
        let mut all: Vec<u64> = samples.iter().filter_map(|sample| sample.step_ns(step)).collect();
        all.sort_unstable();
        let median = all.get(all.len() / 2).copied();
        let bar = "#".repeat((part * 20.0).round().min(20.0) as usize);
        lines.push(format!(
            "{:<10}{:>10}{:>7.0}%  {bar:<22}{:>14}",
            step.name(),
            format_us(ns),
            part * 100.0,
            format_us(median)
        ));
    }
    lines.push(String::new());
    for step in STEPS {
        lines.extend(wrapped(&format!("{:<10}{}", step.name(), step.help()), 10, HELP_COLUMNS));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_diagram_has_arrows_in_the_direction_of_the_call() {
        let mut picture = Picture::new(&["client".to_owned(), "ddssd of node 1".to_owned()]);
        picture.arrow(0, 1, "submit 0.41 µs");
        picture.note(1, "post 0.30 µs");
        picture.arrow(1, 0, "");
        assert_eq!(
            picture.lines,
            [
                "  client                        ddssd of node 1",
                "    |                             |",
                "    |--- submit 0.41 µs --------->|",
                "    |                             |  post 0.30 µs",
                "    |<----------------------------|",
            ]
        );
    }
}
