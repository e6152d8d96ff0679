//! The figures of the paper about River: rates as parts of the peak, in virtual time and with real members.

use super::{bench, curve, paper_value};
use crate::report::picture::{Bar, Bars, Curve, Curves, Panel, Paper, PaperValue, Part, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

/// Levels of a figure: the word of a row, what a label says of it, and true for dashes.
const LEVELS: [(&str, &str, bool); 2] = [("virtual", "", false), ("paced", ", real members", true)];
/// Compared ways, with their labels and styles.
const SERIES: [(&str, &str, Style); 7] = [
    ("queue", "queue", Style::Rcq),
    ("queue-writing", "queue to disks", Style::Auto),
    ("mirrored", "graduated mirrors", Style::Rcq),
    ("recall-off", "queue without recall", Style::Rmq),
    ("static", "static", Style::Mq),
    ("plain", "plain mirrors", Style::Mq),
    ("ideal", "all that is left", Style::Raw),
];
const VIRTUAL: &str = "virtual";

/// A figure of curves: its number, its title, true if it is over nodes and not over slow ones, and the nodes of its panels.
type Kind = (u8, &'static str, bool, &'static [u64]);

const KINDS: [Kind; 6] = [
    (4, "Disks to processors through one queue, and processors to disks", true, &[0]),
    (5, "Slow processors of 15 behind a queue", false, &[15]),
    (6, "Slow disks of 15 behind a queue", false, &[15]),
    (7, "Slow disks of mirrored files", false, &[4, 15]),
    (9, "A sort on more and more nodes, without its work in memory", true, &[0]),
    (10, "Slow partitioners of a sort on 14 nodes and 14 others", false, &[14]),
];

/// Figures 1, 4 to 7, 9 and 10.
pub(crate) fn river(rows: &Rows) -> Vec<Picture> {
    let curves = KINDS.iter().map(|kind| picture_of_curves(rows, kind));
    std::iter::once(one(rows)).chain(curves).map(|picture| Picture { paper: Paper::River, ..picture }).collect()
}

fn points<'a>(rows: &'a Rows, figure: u8) -> impl Iterator<Item = &'a Entry> + Clone + use<'a> {
    let name = format!("fig-{figure}");
    rows.of("river").filter(move |entry| entry.name == name)
}

/// Returns a point in virtual time.
fn at(rows: &Rows, figure: u8, series: &str, slow: u64, nodes: u64) -> Option<f64> {
    let is_it =
        |entry: &&Entry| (&*entry.op, entry.size, &*entry.mode, entry.outstanding) == (series, slow, VIRTUAL, nodes);
    points(rows, figure).find(is_it).map(|entry| entry.ops_per_s)
}

fn missing(figure: u8, title: &str) -> Picture {
    Picture::missing(&format!("river-{figure}"), &format!("Figure {figure}"), title, &bench("river"))
}

fn one(rows: &Rows) -> Picture {
    let missing = missing(1, "One slow node of 8 in a static sort");
    let papers = [
        ("disk-half", "a disk at half", 0.5),
        ("disk-third", "a disk at a third", 0.33),
        ("processor-half", "a processor at half", 0.5),
    ];
    let bar = |(series, label, paper): &(&str, &str, f64)| {
        let part = Part { label: "rate".to_owned(), curve_style: Style::Mq, value: at(rows, 1, series, 1, 8)? };
        Some(Bar { label: (*label).to_owned(), parts: vec![part], paper: Some(*paper) })
    };
    let bars: Vec<Bar> = papers.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return missing;
    }
    let value = |(series, label, paper): &(&str, &str, f64)| {
        let here = at(rows, 1, series, 1, 8)?;
        Some(paper_value(label, units::plain(*paper), units::plain(here), "as in the paper"))
    };
    let unit = ("part of the peak".to_owned(), Scale::Number);
    Picture {
        says: "Without a queue the slowest node decides.".to_owned(),
        panels: vec![Panel::Bars(Bars { title: "rate".to_owned(), unit, bars })],
        paper_values: papers.iter().filter_map(value).collect(),
        ..missing
    }
}

fn picture_of_curves(rows: &Rows, &(figure, title, is_over_nodes, nodes): &Kind) -> Picture {
    let missing = missing(figure, title);
    let panels: Vec<Panel> =
        nodes.iter().filter_map(|nodes| panel(rows, figure, is_over_nodes, *nodes)).map(Panel::Curves).collect();
    if panels.is_empty() {
        return missing;
    }
    let (says, paper_values) = values(rows, figure);
    let mut notes = Vec::new();
    if points(rows, figure).any(|entry| entry.mode == "paced") {
        notes.push(
            "Real members: processes' ends of real queues, whose disks and processors are clocks: 2 MiB a second, messages of 64 KiB."
                .to_owned(),
        );
    }
    Picture { says, panels, paper_values, notes, ..missing }
}

/// A panel; `nodes` is 0 if its axis is the number of nodes.
fn panel(rows: &Rows, figure: u8, is_over_nodes: bool, nodes: u64) -> Option<Curves> {
    let curve_of = |(series, label, style): &(&str, &str, Style), (level, words, is_dashed): &(&str, &str, bool)| {
        let mut points: Vec<(f64, f64)> = points(rows, figure)
            .filter(|entry| entry.op == *series && entry.mode == *level && (nodes == 0 || entry.outstanding == nodes))
            .map(|entry| (if is_over_nodes { entry.outstanding } else { entry.size } as f64, entry.ops_per_s))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!points.is_empty())
            .then(|| Curve { is_dashed: *is_dashed, ..curve(&format!("{label}{words}"), *style, points) })
    };
    let curves: Vec<Curve> =
        SERIES.iter().flat_map(|series| LEVELS.iter().filter_map(|level| curve_of(series, level))).collect();
    let (x, scale) = if is_over_nodes { ("nodes", Scale::Count) } else { ("slow ones", Scale::Number) };
    (!curves.is_empty()).then(|| Curves {
        title: if nodes == 0 { "rate".to_owned() } else { format!("{nodes} nodes") },
        x: (x.to_owned(), scale),
        y: ("part of the peak".to_owned(), Scale::Number),
        curves,
        marks: Vec::new(),
    })
}

/// The sentence of a figure, and its numbers beside the paper's.
fn values(rows: &Rows, figure: u8) -> (String, Vec<PaperValue>) {
    let words = |series, slow, nodes| at(rows, figure, series, slow, nodes).map_or("?".to_owned(), units::plain);
    let verdict = |series, slow, nodes, least: f64| {
        if at(rows, figure, series, slow, nodes).is_some_and(|here| here >= least) {
            "as in the paper"
        } else {
            "lower"
        }
    };
    match figure {
        4 => (
            format!("At 32 nodes the queue carries {} of the rate of all disks.", words("queue", 0, 32)),
            vec![paper_value(
                "32 nodes",
                "168.6 of 174.4 MB/s: 0.97",
                words("queue", 0, 32),
                verdict("queue", 0, 32, 0.97),
            )],
        ),
        5 | 6 => (
            format!(
                "With 8 slow ones of 15 the queue keeps {} of the peak; static is at {} with the first.",
                words("queue", 8, 15),
                words("static", 1, 15)
            ),
            vec![
                paper_value(
                    "8 slow ones",
                    if figure == 5 { "flat until 8 to 10" } else { "falls slowly" },
                    format!("{} of {}", words("queue", 8, 15), words("ideal", 8, 15)),
                    verdict("queue", 8, 15, if figure == 5 { 0.9 } else { 0.7 }),
                ),
                paper_value("static, one slow one", "falls with the first", words("static", 1, 15), "as in the paper"),
            ],
        ),
        7 => (
            format!(
                "With one slow disk of four graduated mirrors keep {} of the peak, plain ones {}.",
                words("mirrored", 1, 4),
                words("plain", 1, 4)
            ),
            vec![
                paper_value("quiet", "0.90 to 0.95", words("mirrored", 0, 4), verdict("mirrored", 0, 4, 0.9)),
                paper_value("plain mirrors, one slow disk", "0.5", words("plain", 1, 4), "as in the paper"),
            ],
        ),
        9 => (
            format!("On 14 nodes a sort moves {} of what its disks give.", words("static", 0, 14)),
            vec![paper_value(
                "14 nodes",
                "0.86, of which 0.10 is lost in memory",
                words("static", 0, 14),
                verdict("static", 0, 14, 0.96),
            )],
        ),
        _ => (
            format!(
                "With 8 slow partitioners of 14 the sort keeps {} of the peak; static is at {} with the first.",
                words("queue", 8, 14),
                words("static", 1, 14)
            ),
            vec![paper_value(
                "8 slow ones",
                "flat until 8",
                format!("{} of {}", words("queue", 8, 14), words("queue", 0, 14)),
                verdict("queue", 8, 14, 0.93),
            )],
        ),
    }
}
