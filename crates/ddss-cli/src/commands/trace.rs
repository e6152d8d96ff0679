//! One call and its way: its steps and their times, as the daemon followed it.

use super::data::length_of;
use crate::arguments::{TraceCall, TraceOptions};
use crate::error::CommandError;
use crate::output::table::time_in_words;
use crate::output::terminal_text::{say, wrapped};
use crate::status_page::{read, read_planes, us, us_in_words};
use ddss::{Client, Segment};
use ddss_core::Outcome;
use ddss_core::status::{Road, SampleRow, Step};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The first calls of a lane are all followed.
const CALLS: usize = 8;
/// How long the page may take to show them.
const PATIENCE: Duration = Duration::from_secs(2);
/// The steps of a call in their order, without their sum.
const STEPS: [Step; 4] = [Step::Submit, Step::Post, Step::Complete, Step::Reply];
/// Letters of a line of explanation: what fits everywhere.
const PAGE_COLUMNS: usize = 78;

pub(crate) fn run(options: &TraceOptions, json: bool) -> Result<(), CommandError> {
    let page = read(&options.place)?;
    page.warn();
    let (samples, title) = match &options.name {
        Some(name) if !page.is_over() => made(options, name)?,
        _ => (page.status.samples.clone(), "the last call that was followed".to_owned()),
    };
    let Some(last) = samples.last() else {
        return Err(CommandError::Refused("the daemon has followed no call yet: name a segment".to_owned()));
    };
    if json {
        let samples: Vec<Value> = samples.iter().map(as_json).collect();
        println!("{}", json!({ "daemon": page.as_json(), "samples": samples }));
        return page.verdict();
    }
    say(&format!("{title}: {}", in_words(last)), 2);
    println!("it ended {}\n", time_in_words(last.ended_us));
    road(last, page.status.daemon.node.0).iter().for_each(|line| println!("{line}"));
    println!();
    shares(last, &samples).iter().for_each(|line| println!("{line}"));
    page.verdict()
}

/// How many bytes a call moves if nothing is said.
const TRACE_BYTES: u64 = 8;

/// Makes some calls, and takes what the page says of them.
fn made(options: &TraceOptions, name: &str) -> Result<(Vec<SampleRow>, String), CommandError> {
    // A get that is read in place does not come to the daemon.
    let client = Client::builder().folder(options.place.folder()).channels(1).local_reads(false).connect()?;
    let segment = client.open(name)?;
    let length = length_of(&segment, 0, options.bytes, TRACE_BYTES)?;
    if length > Segment::TRANSFER_BYTES_MAX as u64 {
        let most = Segment::TRANSFER_BYTES_MAX;
        return Err(CommandError::Kind(format!("--bytes is {length}, and may be 0 to {most}: one call moves no more")));
    }
    let mut bytes = vec![0; length as usize];
    // One has been made already: the segment was opened.
    for _ in 1..CALLS {
        match options.call {
            TraceCall::Get => segment.get_into(0, &mut bytes).map(drop)?,
            // What is there is put again: nobody sees another value, and the version grows.
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
        let planes = read_planes(&options.place)?;
        // A daemon that was started anew with fewer planes has closed the segment's.
        let plane = if options.call == TraceCall::Ping { 0 } else { segment.id().plane() };
        let Some(status) = planes.get(usize::from(plane)) else {
            return Err(CommandError::Refused("the daemon's page does not show the call".to_owned()));
        };
        let own = status.clients.iter().find(|row| row.pid == std::process::id()).map(|row| row.client);
        let mine = |sample: &&SampleRow| Some(sample.client) == own && sample.kind == kind;
        let samples: Vec<SampleRow> = status.samples.iter().filter(mine).copied().collect();
        let expected = if options.call == TraceCall::Put { CALLS / 2 - 1 } else { CALLS - 1 };
        if samples.len() >= expected || (begin.elapsed() > PATIENCE && !samples.is_empty()) {
            return Ok((samples, format!("{} of {name}", options.call.words())));
        }
        if begin.elapsed() > PATIENCE {
            return Err(CommandError::Refused("the daemon's page does not show the call".to_owned()));
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
        Outcome::Indeterminate(failure) => format!("nobody knows: {failure}"),
    };
    json!({ "call": sample.kind.name(), "road": sample.road.name(), "end": end, "bytes": sample.bytes,
        "client": sample.client.index, "segment": sample.segment.map(ddss::SegmentId::to_bits),
        "ended_us": sample.ended_us, "steps": steps })
}

fn in_words(sample: &SampleRow) -> String {
    let place = sample.segment.map_or_else(String::new, |segment| format!(", {segment} at {}", segment.home()));
    let end = match sample.outcome {
        Outcome::Done => String::new(),
        Outcome::Failed(failure) => format!(", failed: {failure}"),
        Outcome::Indeterminate(failure) => format!(", nobody knows whether it happened: {failure}"),
    };
    let total = us_in_words(sample.step_ns(Step::Total));
    format!("{}, {} bytes{place}, {total} µs{end}", sample.kind.name(), sample.bytes)
}

/// The way as a picture: time goes down, and whoever has the call stands in his column.
fn road(sample: &SampleRow, node: u16) -> Vec<String> {
    let time = |step: Step| {
        let ns = sample.step_ns(step)?;
        Some(format!("{} {} µs", step.name(), us_in_words(Some(ns))))
    };
    let or_bare = Option::unwrap_or_default;
    let mut names = vec!["client".to_owned(), format!("ddssd of node {node}")];
    let far = sample.road == Road::Away;
    if far {
        names.push(sample.segment.map_or_else(|| "another node".to_owned(), |segment| segment.home().to_string()));
    }
    let mut picture = Picture::new(&names);
    picture.arrow(0, 1, &or_bare(time(Step::Submit)));
    picture.note(1, &or_bare(time(Step::Post)));
    if far {
        picture.arrow(1, 2, "");
        picture.arrow(2, 1, &or_bare(time(Step::Complete)));
    } else if let Some(waited) = time(Step::Complete) {
        picture.note(1, &waited);
    }
    picture.arrow(1, 0, &or_bare(time(Step::Reply)));
    picture.bars();
    picture.lines
}

/// Columns with arrows between them.
struct Picture {
    columns: usize,
    lines: Vec<String>,
}

impl Picture {
    /// Where the first column is, and how far the next ones are.
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

    /// From one column to its neighbour.
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

    /// What happens in a column.
    fn note(&mut self, column: usize, words: &str) {
        let mut line = self.blank();
        Self::write(&mut line, Self::at(column) + 3, words);
        self.lines.push(line.into_iter().collect());
    }
}

/// How much of the whole each step took, and what it is over all calls.
fn shares(last: &SampleRow, samples: &[SampleRow]) -> Vec<String> {
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
            us_in_words(ns),
            part * 100.0,
            us_in_words(median)
        ));
    }
    lines.push(String::new());
    for step in STEPS {
        lines.extend(wrapped(&format!("{:<10}{}", step.name(), step.help()), 10, PAGE_COLUMNS));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_goes_from_who_has_the_call_to_who_gets_it() {
        // If this broke, a person would look for the time in the wrong place.
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
