//! Latency under open-loop load, which does not wait for replies.

use super::{bench, curve, curve_style, paper_value, path_title};
use crate::report::picture::{Curve, Curves, Panel, Paper, PaperValue, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "A load that does not wait for its answers";

/// A number of a row.
type Of = fn(&Entry) -> Option<f64>;

/// Returns the interval between two requests in microseconds, from a path like `shm-every-10us`.
fn every_us(entry: &Entry) -> Option<f64> {
    entry.path().strip_prefix("shm-every-")?.strip_suffix("us")?.parse().ok()
}

/// Percentiles over the offered load.
pub(super) fn open_loop(rows: &Rows) -> Picture {
    let panel = |wait: &str| {
        let own = || rows.of("ipc").filter(|entry| entry.op == "paced" && entry.wait() == wait);
        let of_column = |(label, curve_style, of): (&str, Style, Of)| {
            let mut points: Vec<(f64, f64)> =
                own().filter_map(|entry| Some((1e6 / every_us(entry)?, of(entry)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            (!points.is_empty()).then(|| curve(label, curve_style, points))
        };
        let median = format!("median, {}", path_title(wait));
        let curves: Vec<Curve> = [
            ("999 of 1000", Style::Raw, (|entry: &Entry| entry.more("p999_us")) as Of),
            ("99 of 100", Style::Peer, |entry| Some(entry.p99_us)),
            (&*median, curve_style(wait), |entry| Some(entry.p50_us)),
        ]
        .into_iter()
        .filter_map(of_column)
        .collect();
        (!curves.is_empty()).then(|| {
            Panel::Curves(Curves {
                title: format!("{}, one client", path_title(wait)),
                x: ("requests offered a second".to_owned(), Scale::Rate),
                y: ("from when it was due, log scale".to_owned(), Scale::Time),
                curves,
                marks: Vec::new(),
            })
        })
    };
    let panels: Vec<Panel> = ["rcq", "auto"].into_iter().filter_map(panel).collect();
    if panels.is_empty() {
        return Picture::missing("open-loop", "Open loop", TITLE, &bench("ipc"));
    }
    let best = rows.of("ipc").filter(|entry| entry.op == "paced" && entry.wait() == "auto");
    let most = best.filter(|entry| kept_up(entry)).filter_map(every_us).min_by(f64::total_cmp);
    let says = most.map_or_else(
        || "Nothing kept up with what was offered.".to_owned(),
        |us| {
            format!("One client that asks at fixed times is served in time at up to {} (Auto).", units::rate(1e6 / us))
        },
    );
    Picture {
        paper: Paper::Ddss,
        id: "open-loop".to_owned(),
        number: "Open loop".to_owned(),
        title: TITLE.to_owned(),
        says,
        panels,
        paper_values: paper_values(),
        commands: vec![bench("ipc")],
        notes: vec![
            "Each call counts from when it was due and not from when it was made: who is held up makes the next ones late too, \
             and they all count (coordinated omission). In all other figures a client asks again when it has its answer."
                .to_owned(),
        ],
    }
}

fn kept_up(entry: &Entry) -> bool {
    every_us(entry).is_some_and(|us| entry.ops_per_s > 0.97e6 / us)
}

fn paper_values() -> Vec<PaperValue> {
    vec![paper_value("open loop", "not measured", "see the panels", "the paper's clients wait for their answers")]
}
