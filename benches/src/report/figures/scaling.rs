//! Figure 4a: many clients on one progress thread.

use super::{bench, by_strategy, order, paper_value, same_order, verdict};
use crate::report::paper::CLIENTS_MAX;
use crate::report::picture::{Curves, Panel, Paper, PaperValue, Picture, Scale};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "1 to 512 clients on one progress thread";

fn clients(entry: &Entry) -> f64 {
    entry.clients() as f64
}

fn rows_of<'a>(rows: &'a Rows, path: &'static str) -> impl Iterator<Item = &'a Entry> + Clone {
    let all: Vec<&Entry> = rows.of("scaling").filter(|entry| entry.op == "null" && entry.path() == path).collect();
    all.into_iter()
}

fn panel(
    rows: &Rows,
    path: &'static str,
    title: &str,
    y: (&str, Scale),
    of: impl Fn(&Entry) -> Option<f64>,
) -> Option<Panel> {
    let curves = by_strategy(rows_of(rows, path), clients, of);
    (!curves.is_empty()).then(|| {
        Panel::Curves(Curves {
            title: title.to_owned(),
            x: ("clients, one call each under way".to_owned(), Scale::Count),
            y: (y.0.to_owned(), y.1),
            curves,
            marks: Vec::new(),
        })
    })
}

/// Throughput, times and fairness.
pub(super) fn four_a(rows: &Rows) -> Picture {
    if rows_of(rows, "shm").next().is_none() {
        return Picture::missing("fig-4a", "Figure 4a", TITLE, &bench("scaling"));
    }
    let time = |title: &'static str| (title, Scale::Time);
    let panels = [
        panel(rows, "shm", "throughput, two cores for all", ("calls a second, log scale", Scale::Rate), |entry| {
            Some(entry.ops_per_s)
        }),
        panel(
            rows,
            "shm-reserved",
            "throughput, a core kept for the daemon",
            ("calls a second, log scale", Scale::Rate),
            |entry| Some(entry.ops_per_s),
        ),
        panel(rows, "shm", "median", time("time of a call, log scale"), |entry| Some(entry.p50_us)),
        panel(rows, "shm", "99 of 100 are faster", time("time of a call, log scale"), |entry| Some(entry.p99_us)),
        panel(rows, "shm", "999 of 1000 are faster", time("time of a call, log scale"), |entry| entry.more("p999_us")),
        panel(rows, "shm", "fairness", ("calls of the slowest client / mean", Scale::Number), |entry| {
            entry.more("fair")
        }),
    ];
    let most = rows_of(rows, "shm").map(Entry::clients).max().unwrap_or(1);
    let at_most = rates(rows, most);
    Picture {
        paper: Paper::Ddss,
        id: "fig-4a".to_owned(),
        number: "Figure 4a".to_owned(),
        title: TITLE.to_owned(),
        says: says(rows, most),
        panels: panels.into_iter().flatten().collect(),
        paper_values: paper_values(rows, most, &at_most),
        commands: vec![bench("scaling")],
        notes: vec![
            "Clients and daemon share two cores in “shm”, so that most clients wait for a core and not for the daemon: a median \
             is the time of a call of who runs, and the tail is the time until one runs again. With one core for all clients \
             (“reserved”) the daemon never loses its own."
                .to_owned(),
            "A call that is under way when the time is over is waited for and counted; who got no answer at all counts as one who \
             waited all the time. The longest call of each row is in the table."
                .to_owned(),
        ],
    }
}

fn rate(rows: &Rows, wait: &str, count: u64) -> Option<f64> {
    rows_of(rows, "shm").find(|entry| entry.wait() == wait && entry.clients() == count).map(|entry| entry.ops_per_s)
}

fn rates(rows: &Rows, count: u64) -> Vec<(&'static str, f64)> {
    ["mq", "rmq", "rcq"].into_iter().filter_map(|wait| Some((wait, rate(rows, wait, count)?))).collect()
}

fn says(rows: &Rows, most: u64) -> String {
    let auto = |count| rate(rows, "auto", count);
    match auto(1).zip(auto(most)) {
        Some((one, all)) => format!(
            "Auto answers {} for one client and {} for {most}; {}.",
            units::rate(one),
            units::rate(all),
            crossing(rows).0
        ),
        None => format!("What {most} clients get; {}.", crossing(rows).0),
    }
}

/// Number of clients from which polling is slower than sleeping, in words, and true if there is one. A single number
/// between others without the effect is no crossing.
fn crossing(rows: &Rows) -> (String, bool) {
    let mut counts: Vec<u64> = rows_of(rows, "shm").map(Entry::clients).collect();
    counts.sort_unstable();
    counts.dedup();
    let behind = |count: &u64| rate(rows, "rcq", *count) < rate(rows, "rmq", *count);
    let ahead = counts.iter().rposition(|count| !behind(count));
    match ahead.map_or(counts.first(), |last| counts.get(last + 1)) {
        Some(count) => (format!("RCQ falls behind RMQ at {count} clients"), true),
        None if counts.iter().any(behind) => {
            ("RCQ is behind RMQ at some numbers of clients, and ahead at more".to_owned(), false)
        }
        None => ("RCQ stays ahead of RMQ at every number of clients".to_owned(), false),
    }
}

fn paper_values(rows: &Rows, most: u64, at_most: &[(&'static str, f64)]) -> Vec<PaperValue> {
    let (crossed, is_there) = crossing(rows);
    let costs = costs(rows, most);
    let why = if is_there {
        "the paper's crossing".to_owned()
    } else {
        format!("absent: here who waits gives its core away, and a call costs less that way{costs}")
    };
    let paper = format!("RMQ best, then MQ, RCQ last at up to {CLIENTS_MAX}");
    let mut lines =
        vec![paper_value("crossing of RCQ and RMQ", format!("somewhere up to {CLIENTS_MAX} clients"), crossed, why)];
    if at_most.len() == 3 {
        // The highest rate first: as the paper has it, by falling rank.
        let inverse: Vec<(&str, f64)> = at_most.iter().map(|(wait, rate)| (*wait, 1.0 / rate)).collect();
        let theirs = [("rmq", 1.0), ("mq", 2.0), ("rcq", 3.0)];
        let here = order(&inverse, |inverse| units::rate(1.0 / inverse)).replace(" < ", ", then ");
        let is_same = same_order(&inverse, &theirs);
        let cores = if is_same { String::new() } else { format!(": on full cores who costs less answers more{costs}") };
        lines.push(paper_value(&format!("order at {most}"), paper, here, format!("{}{cores}", verdict(is_same))));
    }
    lines.extend(reserved(rows, most));
    lines
}

/// Processor time of a call on both sides, as a remark in brackets.
fn costs(rows: &Rows, count: u64) -> String {
    let words = |wait: &str| {
        let entry = rows_of(rows, "shm").find(|entry| entry.wait() == wait && entry.clients() == count)?;
        let both = entry.more("client_cpu_us")? + entry.more("service_cpu_us")?;
        Some(format!("{} {}", super::path_title(wait), units::time(both)))
    };
    let all: Vec<String> = ["rmq", "mq", "rcq"].into_iter().filter_map(words).collect();
    if all.is_empty() { String::new() } else { format!(" (processor time of a call: {})", all.join(", ")) }
}

/// The paper's effect is that the service loses its core: with a core of its own it does not occur.
fn reserved(rows: &Rows, most: u64) -> Option<PaperValue> {
    let of = |path| rows_of(rows, path).find(|entry| entry.wait() == "rcq" && entry.clients() == most);
    let (shared, reserved) = (of("shm")?, of("shm-reserved")?);
    let here =
        format!("{} shared, {} with a core of its own", units::rate(shared.ops_per_s), units::rate(reserved.ops_per_s));
    Some(paper_value(
        &format!("RCQ at {most}, a core for the service"),
        "not measured",
        here,
        "what makes RCQ slow is the service losing its core to waiting clients",
    ))
}

/// Processor time, and the longest call.
pub(super) fn price(rows: &Rows) -> Picture {
    let title = "What the crowd costs: processor time and the longest wait";
    let time = |title: &'static str| (title, Scale::Time);
    let panels = [
        panel(rows, "shm", "processor time of the clients", time("for each call, log scale"), |entry| {
            entry.more("client_cpu_us")
        }),
        panel(rows, "shm", "processor time of the daemon", time("for each call, log scale"), |entry| {
            entry.more("service_cpu_us")
        }),
        panel(rows, "shm", "the longest call", time("log scale"), |entry| Some(entry.more("longest_ms")? * 1e3)),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return Picture::missing("fig-4a-price", "Figure 4a, price", title, &bench("scaling"));
    }
    let most = rows_of(rows, "shm").map(Entry::clients).max().unwrap_or(1);
    let both = |wait: &str| {
        let entry = rows_of(rows, "shm").find(|entry| entry.wait() == wait && entry.clients() == most)?;
        Some(entry.more("client_cpu_us")? + entry.more("service_cpu_us")?)
    };
    let words = |wait: &str| both(wait).map(|us| format!("{} {}", super::path_title(wait), units::time(us)));
    let all: Vec<String> = super::STRATEGIES.into_iter().filter_map(words).collect();
    Picture {
        paper: Paper::Ddss,
        id: "fig-4a-price".to_owned(),
        number: "Figure 4a, price".to_owned(),
        title: title.to_owned(),
        says: format!(
            "With {most} clients a call takes so much processor time of both sides together: {}.",
            all.join(", ")
        ),
        panels,
        paper_values: vec![paper_value(
            "processor time",
            "“significant” for RCQ, “twice the kernel events” for MQ",
            "see the panels",
            "measured by the kernel's clocks of each thread",
        )],
        commands: vec![bench("scaling")],
        notes: vec![
            "A client that spins uses its core whether or not anybody answers: that is the price of RCQ.".to_owned(),
        ],
    }
}
