//! Table 1 and Figures 5 and 6: applications.

use super::{curve_style, order, paper_value, path_title};
use crate::report::paper::{APPLICATIONS, CHECKPOINTS, Run, SHARING};
use crate::report::picture::{Curve, Curves, Panel, PaperValue, Picture, Scale};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const COMMAND: &str = "cargo bench -p ddss-benches --bench apps -- --csv apps.csv";

/// One figure for each of the paper's.
pub(super) fn applications(rows: &Rows) -> [Picture; 3] {
    let tables = [("rtree", "R-tree query"), ("btree", "B-tree query"), ("storm", "STORM selection")];
    let shares = [("rtree-data", "R-tree"), ("btree-data", "B-tree"), ("storm-data", "STORM")];
    let checkpoints = [("checkpoint", "commits and restarts")];
    [
        Picture {
            paper_values: table_one(rows).into_iter().chain(pages(rows)).collect(),
            ..figure(rows, "table-1", "Table 1", "Applications with and without DDSS", &tables)
        },
        figure(rows, "fig-5", "Figure 5", "The data sharing part of the applications alone", &shares),
        figure(rows, "fig-6", "Figure 6", "Checkpoints of more and more processes", &checkpoints),
    ]
}

/// Curve of a row: program and strategy.
fn label(entry: &Entry) -> (String, &'static str) {
    let (label, curve_style) = match &*entry.name {
        "ddss" => (path_title(entry.wait()), curve_style(entry.wait())),
        "none" => ("without".to_owned(), "without"),
        "raw" => ("bare sockets".to_owned(), "raw"),
        other => (other.to_owned(), "peer"),
    };
    if entry.outstanding > 1 {
        (format!("{label}, {} pages together", entry.outstanding), curve_style)
    } else {
        (label, curve_style)
    }
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

/// Position of a row on the axis: the amount requested, or the number of clients, or else the bytes.
fn along(entry: &Entry) -> u64 {
    match end(entry) {
        (_, _, Some(number)) => number,
        (_, _, None) => entry.size,
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
        paper_values: orders(rows, ops),
        commands: vec![COMMAND.to_owned()],
        notes: vec!["The applications are ours, of the same kind as the paper's and not the same programs.".to_owned()],
    }
}

/// One panel for each path of an operation.
fn panels(rows: &Rows, op: &str, title: &str) -> Vec<Panel> {
    let own = of(rows, op);
    let mut roads: Vec<&str> = own.iter().filter(|entry| entry.name == "ddss").map(|entry| entry.path()).collect();
    roads.sort_unstable();
    roads.dedup();
    let panel = |road: &&str| {
        let mut curves: Vec<Curve> = Vec::new();
        for entry in own.iter().filter(|entry| entry.path() == *road || entry.name != "ddss") {
            let (label, curve_style) = label(entry);
            let point = (along(entry) as f64, entry.p50_us);
            match curves.iter_mut().find(|curve| curve.label == label) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve { label, curve_style, points: vec![point] }),
            }
        }
        curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let axis = match op {
            "rtree" | "btree" | "rtree-data" | "btree-data" => ("percent of the records", Scale::Number),
            "storm" | "storm-data" => ("records", Scale::Count),
            _ => ("processes", Scale::Count),
        };
        Panel::Curves(Curves {
            title: if roads.len() > 1 { format!("data on {}", where_at(road)) } else { title.to_owned() },
            x: (axis.0.to_owned(), axis.1),
            y: ("median, log scale".to_owned(), Scale::Time),
            curves,
            marks: Vec::new(),
        })
    };
    roads.iter().map(panel).collect()
}

/// Placement of the data, by the PATH of a row.
fn where_at(road: &str) -> &str {
    match road {
        "shm" => "the processes' own node",
        spread if spread.ends_with("-spread") => "two nodes",
        _ => "one other node",
    }
}

/// The best saving of DDSS, with equal operations outstanding.
fn gain(rows: &Rows, op: &str, at: Option<u64>) -> Option<f64> {
    let own: Vec<&Entry> = of(rows, op).into_iter().filter(|entry| at.is_none_or(|at| along(entry) == at)).collect();
    let gains = own.iter().filter(|entry| entry.name == "none").filter_map(|none| {
        let same = |entry: &&&Entry| {
            entry.name == "ddss" && (along(entry), entry.outstanding) == (along(none), none.outstanding)
        };
        let ours = own.iter().filter(same).map(|entry| entry.p50_us);
        Some(1.0 - ours.min_by(f64::total_cmp)? / none.p50_us)
    });
    gains.max_by(f64::total_cmp)
}

fn says(rows: &Rows, op: &str) -> String {
    gain(rows, op, None).map_or_else(
        || {
            "What a process waits for its commit, or for its restart, while more and more of them do the same: under Auto those \
             who run are answered at once."
                .to_owned()
        },
        |gain| format!("With DDSS the application takes up to {:.0} % less time than without.", gain * 100.0),
    )
}

fn orders(rows: &Rows, ops: &[(&str, &str)]) -> Vec<PaperValue> {
    let mut lines = Vec::new();
    for (op, title) in ops {
        let own = of(rows, op);
        let Some(last) = own.iter().map(|entry| along(entry)).max() else { continue };
        let mut roads: Vec<&str> = own.iter().filter(|entry| entry.name == "ddss").map(|entry| entry.path()).collect();
        roads.sort_unstable();
        roads.dedup();
        for road in &roads {
            let at_last = own.iter().filter(|entry| along(entry) == last && entry.outstanding == 1);
            let there: Vec<&&Entry> = at_last.filter(|entry| entry.path() == *road || entry.name != "ddss").collect();
            let ours: Vec<(&str, f64)> =
                there.iter().filter(|entry| entry.name == "ddss").map(|entry| (entry.wait(), entry.p50_us)).collect();
            let others = there.iter().filter(|entry| entry.name != "ddss");
            let others: Vec<String> =
                others.map(|entry| format!("{} {}", label(entry).0, units::time(entry.p50_us))).collect();
            let best = ours.iter().map(|(_, us)| *us).min_by(f64::total_cmp);
            let without = there.iter().find(|entry| entry.name == "none").map(|entry| entry.p50_us);
            let verdict = match best.zip(without) {
                Some((best, without)) => format!("the best takes {:.0} % of without", 100.0 * best / without),
                None => "nothing to compare with".to_owned(),
            };
            let what = if roads.len() > 1 {
                format!("{last} processes, data on {}", where_at(road))
            } else {
                (*title).to_owned()
            };
            let here = std::iter::once(order(&ours, units::time)).chain(others).collect::<Vec<_>>().join("; ");
            let paper = if op.ends_with("-data") { SHARING } else { CHECKPOINTS };
            lines.push(paper_value(&what, paper, here, verdict));
        }
    }
    lines
}

fn table_one(rows: &Rows) -> Vec<PaperValue> {
    let size = |part: &str| match part.strip_suffix('K') {
        Some(thousands) => thousands.parse::<u64>().ok().map(|count| count * 1000),
        None => part.strip_suffix('%').and_then(|percent| percent.parse().ok()),
    };
    let line = |(op, part, operations, [none, mq, rmq, rcq]): &Run| {
        let saved_us = (none - rcq) * 1000.0 / f64::from(*operations);
        let saved = format!("RCQ saves {} in each of {operations} operations", units::time(saved_us));
        let less = (1.0 - rcq / none) * 100.0;
        let paper = format!("{none} ms without, MQ {mq}, RMQ {rmq}, RCQ {rcq}: {less:.0} % less; {saved}");
        let ours = gain(rows, op, size(part));
        let here = took(rows, op, size(part)).unwrap_or_else(|| "not measured".to_owned());
        let verdict = match ours {
            Some(gain) if gain > 0.0 => "as in the paper, DDSS is faster",
            Some(_) => "other than in the paper",
            None => "",
        };
        paper_value(&format!("{op} {part}"), paper, here, verdict)
    };
    APPLICATIONS.iter().map(line).collect()
}

/// Times of a row of Table 1: without DDSS and by each strategy, with the saving of the fastest, and its saving for
/// each operation, which does not depend on the rest of the program.
fn took(rows: &Rows, op: &str, at: Option<u64>) -> Option<String> {
    let own = of(rows, op);
    let there = || own.iter().filter(|entry| Some(along(entry)) == at && entry.outstanding == 1);
    let without = there().find(|entry| entry.name == "none")?.p50_us;
    let ours: Vec<&&Entry> = there().filter(|entry| entry.name == "ddss").collect();
    let best = ours.iter().min_by(|a, b| a.p50_us.total_cmp(&b.p50_us))?;
    let each = ours.iter().map(|entry| format!("{} {}", path_title(entry.wait()), units::time(entry.p50_us)));
    let each = each.collect::<Vec<_>>().join(", ");
    let less = (1.0 - best.p50_us / without) * 100.0;
    let saved = operations(best).map_or_else(String::new, |count| {
        let saved = units::time((without - best.p50_us) / count);
        format!("; {} saves {saved} in each of {count} operations", path_title(best.wait()))
    });
    Some(format!("{} without, {each}: {less:.0} % less{saved}", units::time(without)))
}

/// Operations of a program run, from its row's note.
fn operations(entry: &Entry) -> Option<f64> {
    let count: f64 = entry.notes.split_once(" operations")?.0.rsplit(' ').next()?.parse().ok()?;
    (count > 0.0).then_some(count)
}

/// A page of the store beside a bare get of as many bytes, and sixteen pages of one batch beside one.
fn pages(rows: &Rows) -> Option<PaperValue> {
    let median = |name: &str, op: &str, wait: &str, outstanding: u64| {
        let mut found = rows.of("apps").filter(|entry| entry.name == name && entry.op == op && entry.wait() == wait);
        found.find(|entry| entry.outstanding == outstanding && !end(entry).0).map(|entry| entry.p50_us)
    };
    let each: Vec<String> = ["rcq", "auto"]
        .into_iter()
        .filter_map(|wait| {
            let (bare, page) = (median("raw", "get", wait, 1)?, median("ddss", "get", wait, 1)?);
            let (one, many) = (median("ddss", "page", wait, 1)?, median("ddss", "page", wait, 16)?);
            let (page, many) = (page / bare, many / one);
            Some(format!(
                "{}: a page {page:.2} x the bare get, 16 of them in one batch {many:.2} x one",
                path_title(wait)
            ))
        })
        .collect();
    let what = "pages of 8 KiB from another node";
    (!each.is_empty()).then(|| paper_value(what, "not measured", each.join("; "), "goals: 1.2 and 3"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::CONTRACT;

    // If this failed, application rows would be drawn at wrong places, or parts would be mixed with totals.
    #[test]
    fn application_rows_are_distinguished_by_mode() {
        let lines = [
            "none,rtree,8192,tcp-lo/block/q20,1,3000,1,1,8 operations",
            "ddss,rtree,8192,tcp-lo/rcq/q20,1,1500,1,1,8 operations; saves 187.5 us each",
            "ddss,rtree,8192,tcp-lo/rcq/q20-data,1,500,1,1",
            "ddss,rtree,8192,tcp-lo/rcq/q20,32,1200,1,1",
            "ddss,checkpoint,64,shm/auto/t16,1,9,1,1",
            "ddss,storm,8,tcp-lo/auto/r10K,1,9,1,1",
        ];
        let rows = Rows::parse("apps", &format!("{CONTRACT},notes\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!((of(&rows, "rtree").len(), of(&rows, "rtree-data").len()), (3, 1));
        let places: Vec<u64> = rows.0.iter().map(along).collect();
        assert_eq!(places, [20, 20, 20, 20, 16, 10_000]);
        assert_eq!(label(&rows.0[3]).0, "RCQ, 32 pages together");
        // Two curves of equal style are one curve for a reader.
        let bare = Entry { name: "raw".to_owned(), ..rows.0[0].clone() };
        assert_ne!(label(&rows.0[0]).1, label(&bare).1);
        assert!(
            (gain(&rows, "rtree", Some(20)).unwrap() - 0.5).abs() < 1e-9,
            "32 pages together are no fair comparison"
        );
        let took = took(&rows, "rtree", Some(20)).unwrap();
        assert_eq!(took, "3 ms without, RCQ 1.5 ms: 50 % less; RCQ saves 188 µs in each of 8 operations");
    }
}
