//! Figure 3: cache traffic of each byte, with the copies and messages behind it.

use super::lines::{BASIC, BATCHED, ENHANCED, Line, PLAIN_BASIC, PLAIN_ENHANCED};
use crate::report::figures::{bench, paper_value};
use crate::report::paper::STREAM_CACHE;
use crate::report::picture::{Bar, Bars, Panel, PaperValue, Part, Picture, Scale, Style, Table, TableRow};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "Cache traffic for a byte of a stream, and its copies";
const COUNTS: &str = "counts";
/// Bytes of a counted write.
const WRITE: u64 = 64 << 10;
/// The column of each side.
const SIDES: [(&str, &str); 2] = [("sender", "send_cache"), ("receiver", "receive_cache")];
const LINES: [Line; 5] = [BASIC, BATCHED, ENHANCED, PLAIN_BASIC, PLAIN_ENHANCED];

/// The figure.
pub(super) fn three(rows: &Rows) -> Picture {
    let missing = Picture::missing("stream-3", "Figure 3", TITLE, &bench("wire"));
    let panels: Vec<Panel> = (0..SIDES.len()).filter_map(|side| bars(rows, side)).chain(table(rows)).collect();
    if panels.is_empty() {
        return missing;
    }
    Picture {
        says: says(rows),
        panels,
        paper_values: paper_values(rows),
        notes: vec![
            "Copies are counted, exactly, by the code that makes them; headers do not count. Virtual machines show no cache counters, so traffic is the \
             paper's model of its section 5.3: each filled buffer is fetched, and flushed later; the application's own buffer stays in the \
             cache. Messages: 64-byte writes against a receiver that takes 1 KiB every 200 µs."
                .to_owned(),
        ],
        ..missing
    }
}

/// Numbers of the paper for a plan, on both sides.
fn paper(line: &Line) -> Option<[f64; 2]> {
    let is_compared = [BASIC, ENHANCED].iter().any(|other| (other.name, other.mode) == (line.name, line.mode));
    STREAM_CACHE.iter().find(|(plan, _)| is_compared && *plan == line.name).map(|(_, sides)| *sides)
}

fn bars(rows: &Rows, side: usize) -> Option<Panel> {
    let (title, column) = SIDES[side];
    let bar = |line: &Line| {
        let value = line.at(rows, COUNTS, WRITE)?.more(column)?;
        let part = Part { label: String::new(), curve_style: line.style, value };
        Some(Bar { label: line.label.to_owned(), parts: vec![part], paper: paper(line).map(|sides| sides[side]) })
    };
    let bars: Vec<Bar> = [BASIC, ENHANCED].iter().filter_map(bar).collect();
    (!bars.is_empty()).then(|| {
        let unit = ("bytes of cache traffic for a byte of the stream, modelled".to_owned(), Scale::Number);
        Panel::Bars(Bars { title: title.to_owned(), unit, bars })
    })
}

fn table(rows: &Rows) -> Option<Panel> {
    let row = |line: &Line| {
        let entry = line.at(rows, COUNTS, WRITE)?;
        let number = |column: &str| entry.more(column).map_or_else(|| "-".to_owned(), units::plain);
        let cells = ["send_copies", "receive_copies", "messages"].map(number);
        Some(TableRow {
            cells: std::iter::once(line.label.to_owned()).chain(cells).collect(),
            bar: both(entry),
            paper: paper(line).map(|sides| sides.iter().sum()),
        })
    };
    let found: Vec<TableRow> = LINES.iter().filter_map(row).collect();
    (!found.is_empty()).then(|| {
        Panel::Table(Table {
            title: "copies of a byte by user code, and messages of a 64-byte write".to_owned(),
            columns: ["", "copies: sender", "receiver", "messages"].map(str::to_owned).to_vec(),
            unit: ("cache traffic of both sides, bytes a byte".to_owned(), Scale::Number),
            curve_style: Style::Rcq,
            rows: found,
        })
    })
}

/// The modelled cache traffic of both sides.
fn both(entry: &Entry) -> Option<f64> {
    Some(entry.more("send_cache")? + entry.more("receive_cache")?)
}

/// The enhanced plan's part of basic's traffic on a side.
fn ratio(rows: &Rows, column: &str) -> Option<f64> {
    let of = |line: Line| line.at(rows, COUNTS, WRITE)?.more(column);
    Some(of(ENHANCED)? / of(BASIC).filter(|basic| *basic > 0.0)?)
}

fn says(rows: &Rows) -> String {
    let of = |(side, column): (&str, &str)| Some(format!("{:.0} % at the {side}", 100.0 * ratio(rows, column)?));
    let parts: Vec<String> = SIDES.into_iter().filter_map(of).collect();
    format!("The enhanced plan has this part of basic's modelled cache traffic: {}.", parts.join(", "))
}

fn paper_values(rows: &Rows) -> Vec<PaperValue> {
    const GOALS: [(&str, f64); 2] = [("2/4; goal 0.55", 0.55), ("1/3; goal 0.4", 0.4)];
    let traffic = SIDES.iter().zip(GOALS).filter_map(|((side, column), (paper, goal))| {
        let ratio = ratio(rows, column)?;
        let so = if ratio <= goal { "as in the paper" } else { "more than in the paper" };
        Some(paper_value(&format!("cache traffic of the {side}, enhanced to basic"), paper, units::plain(ratio), so))
    });
    let messages = |line: Line| line.at(rows, COUNTS, WRITE)?.more("messages");
    let few = messages(ENHANCED).map(|enhanced| {
        let basic = messages(BASIC).map_or_else(String::new, |basic| format!("; basic {}", units::plain(basic)));
        let so = if enhanced <= 0.2 { "reached" } else { "missed" };
        let what = "messages of a 64-byte write, enhanced";
        paper_value(what, "fewer by coalescing; goal 0.2", units::plain(enhanced) + &basic, so)
    });
    traffic.chain(few).collect()
}
