//! Figure 2: latency and bandwidth of a stream.

use super::lines::{BASIC, BATCHED, COMPARED, ENHANCED, LINES, Line, PLAIN_ENHANCED};
use crate::report::figures::{bench, paper_value};
use crate::report::paper::{STREAM_BANDWIDTH, STREAM_LATENCY};
use crate::report::picture::{Curves, Mark, Panel, PaperValue, Picture, Scale};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "Latency and bandwidth of a stream on the wire";
const MESSAGE: &str = "ping-pong";
const WRITE: &str = "stream";
/// Bytes of a small message, and of a write that the sentences are about.
const SMALL: u64 = 64;
const LARGE: u64 = 64 << 10;

/// A panel: title, operation, name and scale of the y axis, the paper's number, the lines, and the number of a row.
type Wish<'a> = (&'a str, &'a str, (&'a str, Scale), Option<f64>, &'a [Line], fn(&Entry) -> Option<f64>);

/// The figure.
pub(super) fn two(rows: &Rows) -> Picture {
    let missing = Picture::missing("stream-2", "Figure 2", TITLE, &bench("wire"));
    let ratio = |words| (words, Scale::Number);
    let wishes: [Wish<'_>; 6] = [
        ("latency", MESSAGE, ("half a round trip, log scale", Scale::Time), None, &LINES, |row| Some(row.p50_us)),
        ("latency to basic's", MESSAGE, ratio("lower is better"), Some(STREAM_LATENCY), &COMPARED, time_of_basic),
        ("processor time of a message", MESSAGE, ratio("both ends, to basic's"), None, &COMPARED, cpu_of_basic),
        ("bandwidth", WRITE, ("log scale", Scale::Bandwidth), None, &LINES, |row| Some(bandwidth(row))),
        ("bandwidth to basic's", WRITE, ratio("higher is better"), Some(STREAM_BANDWIDTH), &COMPARED, rate_of_basic),
        ("processor time of a write", WRITE, ratio("both ends, to basic's"), None, &COMPARED, cpu_of_basic),
    ];
    let panels: Vec<Panel> = wishes.into_iter().filter_map(|wish| panel(rows, wish)).collect();
    if panels.is_empty() {
        return missing;
    }
    Picture {
        says: says(rows),
        panels,
        paper_values: paper_values(rows),
        notes: vec![
            "Sender and receiver are threads of one process, on loopback: a message pays for waking its receiver, which took less of the paper's \
             latency. Ratios are medians of the rounds' ratios, so load that comes and goes falls on all streams. Processor time is that of both \
             ends, the kernel's part included."
                .to_owned(),
            "The wire travels inside of TCP. The kernel takes almost every write at once, so the enhanced plan has nothing to append to and sends \
             each write by a system call, as bare TCP does. Basic runs out of credits, collects small writes meanwhile, and sends full messages: \
             for small writes that counts for more than the copy that the enhanced plan saves."
                .to_owned(),
        ],
        ..missing
    }
}

fn panel(rows: &Rows, (title, op, y, paper, lines, number): Wish<'_>) -> Option<Panel> {
    let mark = |value| Mark { label: units::plain(value), curve_style: ENHANCED.style, value };
    let curves: Vec<_> = lines.iter().filter_map(|line| line.curve(rows, op, number)).collect();
    (!curves.is_empty()).then(|| {
        Panel::Curves(Curves {
            title: title.to_owned(),
            x: ("bytes".to_owned(), Scale::Bytes),
            y: (y.0.to_owned(), y.1),
            curves,
            marks: paper.map(mark).into_iter().collect(),
        })
    })
}

fn bandwidth(row: &Entry) -> f64 {
    row.ops_per_s * row.size as f64
}

fn rate_of_basic(row: &Entry) -> Option<f64> {
    row.more("rate_of_basic")
}

fn time_of_basic(row: &Entry) -> Option<f64> {
    rate_of_basic(row).filter(|rate| *rate > 0.0).map(|rate| 1.0 / rate)
}

fn cpu_of_basic(row: &Entry) -> Option<f64> {
    row.more("cpu_of_basic")
}

fn says(rows: &Rows) -> String {
    let both = |op, size| Some((ENHANCED.at(rows, op, size)?, BASIC.at(rows, op, size)?));
    let latency = both(MESSAGE, SMALL).map(|(enhanced, basic)| {
        let [enhanced, basic] = [enhanced.p50_us, basic.p50_us].map(units::time);
        format!(
            "A message of {} takes {enhanced} with the enhanced plan and {basic} with basic",
            units::bytes(SMALL as f64)
        )
    });
    let bandwidth = both(WRITE, LARGE).map(|(enhanced, basic)| {
        let [enhanced, basic] = [enhanced, basic].map(|row| units::bandwidth(bandwidth(row)));
        format!("writes of {} move {enhanced} and {basic}", units::bytes(LARGE as f64))
    });
    let parts: Vec<String> = [latency, bandwidth].into_iter().flatten().collect();
    if parts.is_empty() { "Only a part of it was measured.".to_owned() } else { format!("{}.", parts.join("; ")) }
}

/// A number of a row in words.
fn words(row: Option<&Entry>, columns: &[(&str, &str)]) -> Option<String> {
    let row = row?;
    let words = |(what, column): &(&str, &str)| Some(format!("{what} {}", units::times(row.more(column)?)));
    let words: Vec<String> = columns.iter().filter_map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn paper_values(rows: &Rows) -> Vec<PaperValue> {
    let large = units::bytes(LARGE as f64);
    let small = units::bytes(SMALL as f64);
    let of_basic = [("rate", "rate_of_basic"), ("processor time", "cpu_of_basic")];
    let of_tcp = [("rate", "rate_of_limit"), ("processor time", "cpu_of_limit")];
    let verdict = |row: Option<&Entry>, column: &str, goal: f64| match row.and_then(|row| row.more(column)) {
        Some(rate) if rate >= goal => "reached",
        Some(_) => "missed",
        None => "",
    };
    let line =
        |what: String, paper: String, line: Line, op: &str, size: u64, columns: &[(&str, &str)], goal: Option<f64>| {
            let row = line.at(rows, op, size);
            let so = goal.map_or("", |goal| verdict(row, columns[0].1, goal));
            Some(paper_value(&what, paper, words(row, columns)?, so))
        };
    let goal = |goal: f64| format!("goal {}", units::plain(goal));
    [
        line(
            format!("{small}, enhanced to basic"),
            "latency about 10 % lower".to_owned(),
            ENHANCED,
            MESSAGE,
            SMALL,
            &of_basic,
            None,
        ),
        line(
            format!("{large}, enhanced to basic"),
            "bandwidth nearly 20 % higher; goal 1.15".to_owned(),
            ENHANCED,
            WRITE,
            LARGE,
            &of_basic,
            Some(1.15),
        ),
        line("16 KiB, enhanced to basic".to_owned(), goal(1.03), ENHANCED, WRITE, 16 << 10, &of_basic, Some(1.03)),
        line(
            format!("{large}, one system call a write, to basic"),
            "none".to_owned(),
            BATCHED,
            WRITE,
            LARGE,
            &of_basic,
            None,
        ),
        line(
            format!("{large}, enhanced without markers and CRC, to bare TCP"),
            goal(0.9),
            PLAIN_ENHANCED,
            WRITE,
            LARGE,
            &of_tcp,
            Some(0.9),
        ),
        // A latency of at most 1.15 times TCP's is a rate of at least 0.87.
        line(
            format!("{small}, the same"),
            "goal: latency 1.15 ×, rate 0.87".to_owned(),
            PLAIN_ENHANCED,
            MESSAGE,
            SMALL,
            &of_tcp,
            Some(1.0 / 1.15),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
