//! Panels of the applications.

use super::rows::{along, label, of, paths, where_at};
use super::values::part_of;
use crate::report::figures::{STRATEGIES, curve, paper_marks, path_title};
use crate::report::paper::{APPLICATIONS, Run, SHARING_PERCENT};
use crate::report::picture::{Curve, Curves, Panel, Scale, Style, Table, TableRow};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

/// Quantity and scale of an axis.
type AxisOf = (&'static str, Scale);

fn amount(op: &str) -> AxisOf {
    match op {
        "rtree" | "btree" | "rtree-data" | "btree-data" => ("percent of the records", Scale::Number),
        "storm" | "storm-data" => ("records", Scale::Count),
        _ => ("processes", Scale::Count),
    }
}

/// Curves of these rows, one for each program, strategy and number of pages together.
fn curves<'a>(rows: impl Iterator<Item = &'a Entry>, y: impl Fn(&Entry) -> Option<f64>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for entry in rows {
        let ((label, curve_style), Some(y)) = (label(entry), y(entry)) else { continue };
        let point = (along(entry) as f64, y);
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(curve(&label, curve_style, vec![point])),
        }
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    curves
}

fn panel(title: String, op: &str, y: AxisOf, curves: Vec<Curve>) -> Option<Panel> {
    let x = amount(op);
    (!curves.is_empty()).then(|| {
        let (x, y) = ((x.0.to_owned(), x.1), (y.0.to_owned(), y.1));
        Panel::Curves(Curves { title, x, y, curves, marks: Vec::new() })
    })
}

const TIME: AxisOf = ("median, log scale", Scale::Time);

/// One panel for each path of the checkpoints.
pub(super) fn checkpoints(rows: &Rows) -> Vec<Panel> {
    let own = of(rows, "checkpoint");
    let on_path = |path: &&str| {
        let there = own.iter().copied().filter(|entry| entry.path() == *path);
        panel(format!("data on {}", where_at(path)), "checkpoint", TIME, curves(there, |entry| Some(entry.p50_us)))
    };
    paths(&own).iter().filter_map(on_path).collect()
}

/// The strategies as parts of the time without DDSS, one page at a time, with the paper's parts.
pub(super) fn shares(rows: &Rows, (op, title): (&str, &str)) -> Option<Panel> {
    let own = of(rows, op);
    let one = || own.iter().copied().filter(|entry| entry.outstanding == 1);
    let without = |entry: &Entry| one().find(|none| none.name == "none" && along(none) == along(entry));
    let share = |entry: &Entry| Some(100.0 * entry.p50_us / without(entry)?.p50_us);
    let strategies = one().filter(|entry| entry.name == "ddss");
    let y = ("part of the time without DDSS", Scale::Percent);
    let mut panel = panel(title.to_owned(), op, y, curves(strategies, share))?;
    if let Panel::Curves(curves) = &mut panel {
        curves.marks = paper_marks(&SHARING_PERCENT, Scale::Percent);
    }
    Some(panel)
}

/// Auto beside other programs, with one page at a time and with many together (dashed).
pub(super) fn beside_others(rows: &Rows, (op, title): (&str, &str)) -> Option<Panel> {
    let others = |entry: &&Entry| entry.wait() == "auto" || !["ddss", "none"].contains(&&*entry.name);
    let own = of(rows, op);
    let mut curves = curves(own.iter().copied().filter(others), |entry| Some(entry.p50_us));
    for curve in &mut curves {
        curve.is_dashed = curve.label.ends_with("together");
    }
    panel(format!("{title}, beside other programs"), op, TIME, curves)
}

/// The strategies with many pages together.
pub(super) fn together(rows: &Rows, (op, title): (&str, &str)) -> Option<Panel> {
    let own = of(rows, op);
    let ours = own.iter().copied().filter(|entry| entry.outstanding > 1 && ["ddss", "none"].contains(&&*entry.name));
    let pages = ours.clone().map(|entry| entry.outstanding).max()?;
    let mut curves = curves(ours, |entry| Some(entry.p50_us));
    for curve in &mut curves {
        curve.label = curve.label.split(',').next().unwrap_or_default().to_owned();
    }
    panel(format!("{title}, {pages} pages together"), op, TIME, curves)
}

/// Table 1: the times of each part, and how much less RCQ takes than the program without DDSS.
pub(super) fn table_one(rows: &Rows) -> Option<Panel> {
    let line = |(op, part, _, [none, mq, rmq, rcq]): &Run| {
        let own = of(rows, op);
        let find = |name: &str, wait: &str| {
            let mut there = own.iter().filter(|entry| Some(along(entry)) == part_of(part) && entry.outstanding == 1);
            there.find(|entry| entry.name == name && (name == "none" || entry.wait() == wait)).map(|entry| entry.p50_us)
        };
        let without = find("none", "");
        let ours = STRATEGIES.map(|wait| find("ddss", wait));
        let paper = [none, mq, rmq, rcq].map(|ms| Some(ms * 1e3));
        let words = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), units::time);
        let times = [without].into_iter().chain(ours).chain(paper).map(words);
        let less = |without: Option<f64>, with: Option<f64>| Some(100.0 * (1.0 - with? / without?));
        TableRow {
            cells: std::iter::once(format!("{op} {part}")).chain(times).collect(),
            bar: less(without, ours[2]),
            paper: less(paper[0], paper[3]),
        }
    };
    let rows: Vec<TableRow> = APPLICATIONS.iter().map(line).collect();
    let paper = ["paper: without", "MQ", "RMQ", "RCQ"].map(str::to_owned);
    let ours = ["", "without"].map(str::to_owned).into_iter().chain(STRATEGIES.map(path_title));
    rows.iter().any(|row| row.bar.is_some()).then(|| {
        Panel::Table(Table {
            title: "median time of a run, one page at a time; the mark is the paper's saving".to_owned(),
            columns: ours.chain(paper).collect(),
            unit: ("less time by RCQ".to_owned(), Scale::Percent),
            curve_style: Style::Rcq,
            rows,
        })
    })
}
