//! Figure 7: the effect of load readings on the latency of a web proxy.

use super::{curve, paper_value};
use crate::report::paper::MONITORING;
use crate::report::picture::{Curves, Mark, Panel, Paper, PaperValue, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};

const TITLE: &str = "Web requests while a proxy reads its servers' loads";
const COMMAND: &str = "cargo bench -p ddss-benches --bench apps -- --only monitor --csv apps.csv";
/// A word of a row, and its meaning.
const PLACES: [(&str, &str); 2] =
    [("shared", "the progress thread on the proxy's core"), ("own", "the progress thread on another core")];
/// Styles of the curves, by increasing number of servers.
const LOOKS: [Style; 4] = [Style::Rcq, Style::Peer, Style::Rmq, Style::Mq];

/// Returns the number of web servers of a row, and its time in milliseconds if it is a point of a curve over time.
fn place(entry: &Entry) -> Option<(u64, Option<u64>)> {
    let mut words = entry.mode.split('/').skip(2);
    let servers = words.next()?.strip_prefix('s')?.parse().ok()?;
    Some((servers, words.next().and_then(|word| word.strip_prefix("ms")?.parse().ok())))
}

fn of<'a>(rows: &'a Rows, wait: &str) -> impl Iterator<Item = (u64, Option<u64>, &'a Entry)> {
    let wait = wait.to_owned();
    let own = rows.of("apps").filter(move |entry| entry.op == "monitor" && entry.wait() == wait);
    own.filter_map(|entry| place(entry).map(|(servers, ms)| (servers, ms, entry)))
}

/// Returns the total rows of a farm, with readings and without.
fn both<'a>(rows: &'a Rows, word: &str, servers: u64) -> Option<(&'a Entry, &'a Entry)> {
    let find = |wait: String| of(rows, &wait).find(|(count, ms, _)| (*count, *ms) == (servers, None));
    Some((find(format!("watched-{word}"))?.2, find(format!("off-{word}"))?.2))
}

fn counts(rows: &Rows) -> Vec<u64> {
    let mut counts: Vec<u64> = of(rows, "watched-own").map(|(servers, ..)| servers).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The figure.
pub(super) fn seven(rows: &Rows) -> Picture {
    let counts = counts(rows);
    if counts.is_empty() {
        return Picture::missing("fig-7", "Figure 7", TITLE, COMMAND);
    }
    let mut panels: Vec<Panel> = PLACES.iter().map(|(word, means)| over_time(rows, &counts, word, means)).collect();
    panels.push(slowest(rows, &counts));
    Picture {
        paper: Paper::Ddss,
        id: "fig-7".to_owned(),
        number: "Figure 7".to_owned(),
        title: TITLE.to_owned(),
        says: says(rows, &counts),
        panels,
        paper_values: paper_values(rows, &counts),
        commands: vec![COMMAND.to_owned()],
        notes: vec![
            "Each point over time is the median of what clients waited in a fifth of a second while loads were read every 10 ms, as a multiple of \
             the median without readings. The paper's other core was blocked with computations. Here \
             the other core has all web servers, their nodes' daemons and the clients while the progress thread is on the proxy's, \
             and all daemons and nothing else while it is not: then web servers and clients are on the proxy's core."
                .to_owned(),
            "All nodes share two cores, so with the progress thread on the proxy's core the readings also take time from the \
             web servers' core, which on real nodes they would not: what the daemons of 32 nodes take together is 32 times what one of them takes."
                .to_owned(),
        ],
    }
}

fn over_time(rows: &Rows, counts: &[u64], word: &str, means: &str) -> Panel {
    let of_servers = |(index, servers): (usize, &u64)| {
        let (_, without) = both(rows, word, *servers)?;
        let mut points: Vec<(f64, f64)> = of(rows, &format!("watched-{word}"))
            .filter(|(count, ..)| count == servers)
            .filter_map(|(_, ms, entry)| Some((ms? as f64 / 1e3, entry.p50_us / without.p50_us)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let label = format!("{servers} servers");
        (!points.is_empty()).then(|| curve(&label, LOOKS[index % LOOKS.len()], points))
    };
    let (label, value) = MONITORING[usize::from(word != "shared")];
    let paper = Mark { label: label.to_owned(), curve_style: Style::Raw, value };
    Panel::Curves(Curves {
        title: means.to_owned(),
        x: ("seconds".to_owned(), Scale::Number),
        y: ("median wait / that without readings".to_owned(), Scale::Number),
        curves: counts.iter().enumerate().filter_map(of_servers).collect(),
        marks: vec![paper],
    })
}

fn slowest(rows: &Rows, counts: &[u64]) -> Panel {
    let of_place = |(word, curve_style, label): (&str, Style, &str)| {
        let point = |servers: &u64| {
            let (watched, without) = both(rows, word, *servers)?;
            Some((*servers as f64, watched.p99_us / without.p99_us))
        };
        curve(label, curve_style, counts.iter().filter_map(point).collect())
    };
    Panel::Curves(Curves {
        title: "99 of 100 wait less".to_owned(),
        x: ("web servers watched".to_owned(), Scale::Count),
        y: ("p99 / that without readings".to_owned(), Scale::Number),
        curves: [("shared", Style::Raw, "on the proxy's core"), ("own", Style::Auto, "on another core")]
            .map(of_place)
            .into(),
        marks: Vec::new(),
    })
}

/// Increase of request latency by the readings, in percent: median and 99th percentile.
fn longer(rows: &Rows, word: &str, servers: u64) -> Option<(f64, f64)> {
    let (watched, without) = both(rows, word, servers)?;
    let percent = |watched: f64, without: f64| 100.0 * (watched / without - 1.0);
    Some((percent(watched.p50_us, without.p50_us), percent(watched.p99_us, without.p99_us)))
}

fn says(rows: &Rows, counts: &[u64]) -> String {
    let most = counts.last().copied().unwrap_or_default();
    let words = |word| longer(rows, word, most).map_or("no time".to_owned(), |(median, _)| format!("{median:+.0} %"));
    format!(
        "Reading the loads of {most} servers changes the median wait for a web page by {} with the progress thread on the proxy's \
         core, and by {} with another core for it.",
        words("shared"),
        words("own")
    )
}

fn paper_values(rows: &Rows, counts: &[u64]) -> Vec<PaperValue> {
    let papers = ["up to 50 % longer", "unaffected"];
    let line = |((word, means), paper): (&(&str, &str), &str)| {
        let most = *counts.last()?;
        let (median, p99) = longer(rows, word, most)?;
        let verdict = match (median.abs() < 10.0, p99.abs() < 10.0) {
            (true, true) => "hardly affected",
            (true, false) => "the median hardly, the longest waits are: all nodes share two cores",
            (false, _) => "affected",
        };
        Some(paper_value(
            &format!("{most} servers, {means}"),
            paper,
            format!("median {median:+.0} %, p99 {p99:+.0} %"),
            verdict,
        ))
    };
    PLACES.iter().zip(papers).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::CONTRACT;

    // If this failed, points over time would be mixed with totals, or farms with each other.
    #[test]
    fn time_series_rows_are_separated_from_totals() {
        let lines = [
            "none,monitor,16384,web/off-own/s4,4,100,200,1",
            "ddss,monitor,16384,web/watched-own/s4,4,110,300,1",
            "ddss,monitor,16384,web/watched-own/s4/ms200,4,120,1,1",
            "none,monitor,16384,web/off-own/s32,4,100,200,1",
            "ddss,monitor,16384,web/watched-own/s32,4,150,200,1",
        ];
        let rows = Rows::parse("apps", &format!("{CONTRACT}\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!(counts(&rows), [4, 32]);
        let (median, p99) = longer(&rows, "own", 4).unwrap();
        assert!((median - 10.0).abs() < 1e-9 && (p99 - 50.0).abs() < 1e-9, "{median} {p99}");
        let Panel::Curves(drawn) = over_time(&rows, &[4, 32], "own", "") else { panic!("it is a curve") };
        assert_eq!(drawn.curves.len(), 1, "of 32 servers there are no points");
        assert_eq!(drawn.curves[0].points, [(0.2, 1.2)]);
        assert!(seven(&rows).says.contains("+50 % with another core"), "{}", seven(&rows).says);
    }
}
