//! Shared parts of the figures: curves, orders, and the commands of the benches.

use crate::report::picture::{Curve, Mark, PaperValue, Scale, Style};
use crate::report::rows::Entry;

/// The strategies of the paper in its order, then ours.
pub(crate) const STRATEGIES: [&str; 4] = ["mq", "rmq", "rcq", "auto"];

/// Style of a strategy or of a limit.
pub(crate) fn curve_style(wait: &str) -> Style {
    match wait {
        "mq" => Style::Mq,
        "rmq" => Style::Rmq,
        "rcq" => Style::Rcq,
        "auto" => Style::Auto,
        _ => Style::Raw,
    }
}

/// The name of a strategy as the paper writes it.
pub(crate) fn path_title(wait: &str) -> String {
    match wait {
        "auto" => "Auto".to_owned(),
        other => other.to_uppercase(),
    }
}

/// Curves of each strategy: the rows that pass `wants`, from `x` to `y`.
pub(crate) fn by_strategy<'a>(
    rows: impl Iterator<Item = &'a Entry> + Clone,
    x: impl Fn(&Entry) -> f64,
    y: impl Fn(&Entry) -> Option<f64>,
) -> Vec<Curve> {
    let of_strategy = |wait: &&'static str| {
        let own = rows.clone().filter(|entry| entry.name == "ddss" && entry.wait() == *wait);
        let mut points: Vec<(f64, f64)> = own.filter_map(|entry| Some((x(entry), y(entry)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!points.is_empty()).then(|| curve(&path_title(wait), curve_style(wait), points))
    };
    STRATEGIES.iter().filter_map(of_strategy).collect()
}

/// A curve through points.
pub(crate) fn curve(label: &str, curve_style: Style, points: Vec<(f64, f64)>) -> Curve {
    Curve { label: label.to_owned(), curve_style, is_dashed: false, points }
}

/// Numbers of the paper beside the first points of a panel.
pub(crate) fn paper_marks(numbers: &[(&str, f64)], scale: Scale) -> Vec<Mark> {
    let mark = |(wait, value): &(&str, f64)| Mark {
        label: format!("{} {}", path_title(wait), scale.words(*value)),
        curve_style: curve_style(wait),
        value: *value,
    };
    numbers.iter().map(mark).collect()
}

/// Returns a curve of rows that belong to no strategy.
pub(crate) fn curve_of<'a>(
    label: &str,
    curve_style: Style,
    rows: impl Iterator<Item = &'a Entry>,
    x: impl Fn(&Entry) -> f64,
) -> Option<Curve> {
    let mut points: Vec<(f64, f64)> = rows.map(|entry| (x(entry), entry.p50_us)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (!points.is_empty()).then(|| curve(label, curve_style, points))
}

/// The order of numbers, the lowest first: `RCQ 0.4 µs < RMQ 8.8 µs`.
pub(crate) fn order(numbers: &[(&str, f64)], words: impl Fn(f64) -> String) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let words: Vec<String> =
        sorted.iter().map(|(name, value)| format!("{} {}", path_title(name), words(*value))).collect();
    words.join(" < ")
}

/// Returns true if the names have the same order.
pub(crate) fn same_order(ours: &[(&str, f64)], theirs: &[(&str, f64)]) -> bool {
    let sorted = |numbers: &[(&str, f64)]| {
        let mut sorted: Vec<(String, f64)> = numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        sorted.into_iter().map(|(name, _)| name).collect::<Vec<String>>()
    };
    sorted(ours) == sorted(theirs)
}

/// A line of the comparison.
pub(crate) fn paper_value(
    what: &str,
    paper: impl Into<String>,
    here: impl Into<String>,
    verdict: impl Into<String>,
) -> PaperValue {
    PaperValue { what: what.to_owned(), paper: paper.into(), here: here.into(), verdict: verdict.into() }
}

/// The verdict on an order.
pub(crate) fn verdict(is_same: bool) -> &'static str {
    if is_same { "the paper's order" } else { "another order than the paper's" }
}

/// The command that makes the rows of a bench again.
pub(crate) fn bench(name: &str) -> String {
    format!("cargo bench -p ddss-benches --bench {name} -- --csv {name}.csv")
}
