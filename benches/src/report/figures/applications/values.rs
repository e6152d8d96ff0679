//! The paper's numbers of the applications beside ours.

use super::rows::{along, end, label, of, paths, where_at};
use crate::report::figures::{order, paper_value, path_title};
use crate::report::paper::{APPLICATIONS, CHECKPOINTS, Run, SHARING};
use crate::report::picture::PaperValue;
use crate::report::rows::{Entry, Rows};
use crate::report::units;

/// The best saving of DDSS, with equal operations outstanding.
pub(super) fn gain(rows: &Rows, op: &str, at: Option<u64>) -> Option<f64> {
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

/// The order of the strategies in each panel.
pub(super) fn orders(rows: &Rows, ops: &[(&str, &str)]) -> Vec<PaperValue> {
    let mut lines = Vec::new();
    for (op, title) in ops {
        let own = of(rows, op);
        let Some(last) = own.iter().map(|entry| along(entry)).max() else { continue };
        let roads = paths(&own);
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

/// Position on the axis of a part of Table 1.
pub(super) fn part_of(part: &str) -> Option<u64> {
    match part.strip_suffix('K') {
        Some(thousands) => thousands.parse::<u64>().ok().map(|count| count * 1000),
        None => part.strip_suffix('%').and_then(|percent| percent.parse().ok()),
    }
}

/// A line for each row of Table 1.
pub(super) fn table_one(rows: &Rows) -> Vec<PaperValue> {
    let line = |(op, part, operations, [none, mq, rmq, rcq]): &Run| {
        let saved_us = (none - rcq) * 1000.0 / f64::from(*operations);
        let saved = format!("RCQ saves {} in each of {operations} operations", units::time(saved_us));
        let less = (1.0 - rcq / none) * 100.0;
        let paper = format!("{none} ms without, MQ {mq}, RMQ {rmq}, RCQ {rcq}: {less:.0} % less; {saved}");
        let ours = gain(rows, op, part_of(part));
        let here = took(rows, op, part_of(part)).unwrap_or_else(|| "not measured".to_owned());
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
pub(super) fn took(rows: &Rows, op: &str, at: Option<u64>) -> Option<String> {
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
pub(super) fn pages(rows: &Rows) -> Option<PaperValue> {
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
