//! Table 1 and Figures 5 to 7: applications.

use super::{beside, called, look};
use crate::report::paper::APPLICATIONS;
use crate::report::picture::{Beside, Curve, Curves, Panel, Picture, Scale};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const COMMAND: &str = "cargo bench -p ddss-benches --bench apps -- --csv apps.csv";

/// One figure for each of the paper's.
pub(super) fn applications(rows: &Rows) -> [Picture; 4] {
    let tables = [("rtree", "R-tree query"), ("btree", "B-tree query"), ("storm", "STORM selection")];
    let shares = [("rtree-data", "R-tree"), ("btree-data", "B-tree"), ("storm-data", "STORM")];
    let checkpoints = [("checkpoint", "checkpoints and restarts")];
    let monitors = [("monitor", "a request beside monitoring")];
    [
        Picture {
            beside: table_one(rows),
            ..figure(rows, "table-1", "Table 1", "Applications with and without DDSS", &tables)
        },
        figure(rows, "fig-5", "Figure 5", "The data sharing part of the applications alone", &shares),
        figure(rows, "fig-6", "Figure 6", "Checkpoints of more and more processes", &checkpoints),
        figure(
            rows,
            "fig-7",
            "Figure 7",
            "A web request beside monitoring, on a shared core and on its own",
            &monitors,
        ),
    ]
}

/// What a row is a point of: who, and how.
fn label(entry: &Entry) -> (String, &'static str) {
    let (label, look) = match &*entry.name {
        "ddss" => (called(entry.wait()), look(entry.wait())),
        "none" => ("without".to_owned(), "raw"),
        other => (other.to_owned(), "peer"),
    };
    if entry.outstanding > 1 { (format!("{label}, {} a call", entry.outstanding), look) } else { (label, look) }
}

/// The end of a mode like `q20-data` or `t4`: whether it is of the data sharing part alone, its letter, and its number.
fn end(entry: &Entry) -> (bool, char, Option<u64>) {
    let end = entry.mode.split('/').nth(2).unwrap_or_default();
    let (end, is_data) = end.strip_suffix("-data").map_or((end, false), |end| (end, true));
    let letter = end.chars().next().unwrap_or('t');
    let number = end.get(1..).unwrap_or_default().trim_end_matches('K');
    let times = if end.ends_with('K') { 1000 } else { 1 };
    (is_data || entry.op.ends_with("-data"), letter, number.parse::<u64>().ok().map(|number| number * times))
}

/// Where a row stands along the axis: how much was asked, else how many asked, else how many bytes.
fn along(entry: &Entry) -> u64 {
    match end(entry) {
        (_, 't', Some(clients)) if clients > 1 => clients,
        (_, 't', _) | (_, _, None) => entry.size,
        (_, _, Some(number)) => number,
    }
}

/// The rows of an operation, whole or its data sharing part.
fn of<'a>(rows: &'a Rows, op: &str) -> Vec<&'a Entry> {
    let (name, is_data) = op.strip_suffix("-data").map_or((op, false), |name| (name, true));
    let own = rows.of("apps").filter(|entry| entry.op.trim_end_matches("-data") == name);
    own.filter(|entry| end(entry).0 == is_data).collect()
}

fn figure(rows: &Rows, id: &'static str, number: &'static str, title: &str, ops: &[(&str, &str)]) -> Picture {
    let panels: Vec<Panel> = ops.iter().flat_map(|(op, title)| panels(rows, op, title)).collect();
    if panels.is_empty() {
        return Picture::missing(id, number, title, COMMAND);
    }
    let op = ops[0].0;
    Picture {
        id,
        number,
        title: title.to_owned(),
        says: says(rows, op),
        panels,
        beside: orders(rows, ops),
        commands: vec![COMMAND.to_owned()],
        notes: vec!["The applications are ours, of the same kind as the paper's and not the same programs.".to_owned()],
    }
}

/// One panel for each road of an operation.
fn panels(rows: &Rows, op: &str, title: &str) -> Vec<Panel> {
    let own = of(rows, op);
    let mut roads: Vec<&str> = own.iter().filter(|entry| entry.name == "ddss").map(|entry| entry.path()).collect();
    roads.sort_unstable();
    roads.dedup();
    let panel = |road: &&str| {
        let mut curves: Vec<Curve> = Vec::new();
        for entry in own.iter().filter(|entry| entry.path() == *road || entry.name != "ddss") {
            let (label, look) = label(entry);
            let point = (along(entry) as f64, entry.p50_us);
            match curves.iter_mut().find(|curve| curve.label == label) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve { label, look, points: vec![point] }),
            }
        }
        curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let axis = match op {
            "rtree" | "btree" | "rtree-data" | "btree-data" => ("percent of the records", Scale::Number),
            "storm" | "storm-data" => ("records", Scale::Count),
            "checkpoint" => ("processes", Scale::Count),
            _ => ("web servers watched", Scale::Number),
        };
        Panel::Curves(Curves {
            title: format!("{title}, {road}"),
            x: (axis.0.to_owned(), axis.1),
            y: ("median, log scale".to_owned(), Scale::Time),
            curves,
            marks: Vec::new(),
        })
    };
    roads.iter().map(panel).collect()
}

/// How much less time DDSS takes than doing without, at the best.
fn gain(rows: &Rows, op: &str, at: Option<u64>) -> Option<f64> {
    let own: Vec<&Entry> = of(rows, op).into_iter().filter(|entry| at.is_none_or(|at| along(entry) == at)).collect();
    let gains = own.iter().filter(|entry| entry.name == "none").filter_map(|none| {
        let same = |entry: &&&Entry| entry.name == "ddss" && along(entry) == along(none);
        let ours = own.iter().filter(same).map(|entry| entry.p50_us);
        Some(1.0 - ours.min_by(f64::total_cmp)? / none.p50_us)
    });
    gains.max_by(f64::total_cmp)
}

fn says(rows: &Rows, op: &str) -> String {
    gain(rows, op, None).map_or_else(
        || "What an application takes under each strategy.".to_owned(),
        |gain| format!("With DDSS the application takes up to {:.0} % less time than without.", gain * 100.0),
    )
}

fn orders(rows: &Rows, ops: &[(&str, &str)]) -> Vec<Beside> {
    let line = |(op, title): &(&str, &str)| {
        let own = of(rows, op);
        let last = own.iter().map(|entry| along(entry)).max()?;
        let at_last = own.iter().filter(|entry| along(entry) == last);
        let numbers: Vec<(String, f64)> = at_last.map(|entry| (label(entry).0, entry.p50_us)).collect();
        let words: Vec<String> = numbers.iter().map(|(name, us)| format!("{name} {}", units::time(*us))).collect();
        Some(beside(title, "a curve without numbers", words.join(", "), "at the most of the axis"))
    };
    ops.iter().filter_map(line).collect()
}

fn table_one(rows: &Rows) -> Vec<Beside> {
    let size = |part: &str| match part.strip_suffix('K') {
        Some(thousands) => thousands.parse::<u64>().ok().map(|count| count * 1000),
        None => part.strip_suffix('%').and_then(|percent| percent.parse().ok()),
    };
    let line = |(op, part, [none, mq, rmq, rcq]): &(&str, &str, [f64; 4])| {
        let best = mq.min(*rmq).min(*rcq);
        let paper = format!("{none} ms without, {best} ms with: {:.0} % less", (1.0 - best / none) * 100.0);
        let ours = gain(rows, op, size(part));
        let here = ours.map_or_else(|| "not measured".to_owned(), |gain| format!("{:.0} % less", gain * 100.0));
        let verdict = match ours {
            Some(gain) if gain > 0.0 => "as in the paper, DDSS is faster",
            Some(_) => "other than in the paper",
            None => "",
        };
        beside(&format!("{op} {part}"), paper, here, verdict)
    };
    APPLICATIONS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::CONTRACT;

    // If this failed, the rows of the applications would be drawn at wrong places, or its parts be mixed with the whole.
    #[test]
    fn rows_of_applications_are_told_apart() {
        let lines = [
            "none,rtree,8192,tcp-lo/block/q20,1,3000,1,1",
            "ddss,rtree,8192,tcp-lo/rcq/q20,1,1500,1,1",
            "ddss,rtree,8192,tcp-lo/rcq/q20-data,1,500,1,1",
            "ddss,rtree,8192,tcp-lo/rcq/q20,32,1200,1,1",
            "ddss,checkpoint,64,shm/auto/t16,1,9,1,1",
            "ddss,storm,8,tcp-lo/auto/r10K,1,9,1,1",
        ];
        let rows = Rows::parse("apps", &format!("{CONTRACT}\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!((of(&rows, "rtree").len(), of(&rows, "rtree-data").len()), (3, 1));
        let places: Vec<u64> = rows.0.iter().map(along).collect();
        assert_eq!(places, [20, 20, 20, 20, 16, 10_000]);
        assert_eq!(label(&rows.0[3]).0, "RCQ, 32 a call");
        assert!((gain(&rows, "rtree", Some(20)).unwrap() - 0.6).abs() < 1e-9);
    }
}
