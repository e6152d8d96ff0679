//! Figure 3a: inside a node.

use super::{bench, by_strategy, curve_of, order, paper_marks, paper_value, same_order, verdict};
use crate::report::paper::IPC_US;
use crate::report::picture::{Curves, Panel, Paper, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "A question to the progress thread and back, 8 bytes";

/// Round trips of 8 bytes, for threads and for processes.
pub(super) fn three_a(rows: &Rows) -> Picture {
    // With clients of one strategy only, the daemon waits as this strategy does, like the service of the paper.
    let at = |path: &str, wait: &str| rows.one("ipc", "ddss", "null", 8, &format!("{path}/{wait}/t1"));
    let one = |wait: &str| at("shm-threads", wait).or_else(|| at("shm", wait)).map(|entry| entry.p50_us);
    let Some(rcq) = one("rcq") else { return Picture::missing("fig-3a", "Figure 3a", TITLE, &bench("ipc")) };
    let raw = rows.one("ipc", "raw", "pingpong", 8, "shm/spin/t1");
    let ours: Vec<(&str, f64)> = IPC_US.iter().filter_map(|(wait, _)| Some((*wait, one(wait)?))).collect();
    let panel = |path: &'static str, title: &str| {
        let of = rows.of("ipc").filter(move |entry| (&*entry.op, entry.path()) == ("null", path));
        let mut curves = by_strategy(of.clone(), |entry| entry.clients() as f64, |entry| Some(entry.p50_us));
        let most = of.map(Entry::clients).max().unwrap_or(1);
        let limit = raw.into_iter().flat_map(|raw| [(1.0, raw.p50_us), (most as f64, raw.p50_us)]);
        let limit: Vec<(f64, f64)> = limit.collect();
        curves.extend(curve_of("raw line", Style::Raw, raw.into_iter(), |_| 1.0).map(|mut curve| {
            curve.points = limit;
            curve
        }));
        Panel::Curves(Curves {
            title: title.to_owned(),
            x: ("clients at once".to_owned(), Scale::Count),
            y: ("median round trip, log scale".to_owned(), Scale::Time),
            curves,
            marks: paper_marks(&IPC_US, Scale::Time),
        })
    };
    let has = |path: &str| rows.of("ipc").any(|entry| entry.path() == path && entry.op == "null");
    let titles = [("shm-threads", "clients are threads of one process"), ("shm-processes", "clients are processes")];
    let panels = titles.into_iter().filter(|(path, _)| has(path)).map(|(path, title)| panel(path, title)).collect();
    let ratio = raw.map_or_else(String::new, |raw| {
        format!(", {} a bare cache line between two cores", units::times(rcq / raw.p50_us))
    });
    let slower = |wait| one(wait).map_or_else(|| "?".to_owned(), |us| units::times(us / rcq));
    Picture {
        paper: Paper::Ddss,
        id: "fig-3a".to_owned(),
        number: "Figure 3a".to_owned(),
        title: TITLE.to_owned(),
        says: format!(
            "Through rings both ways (RCQ) a client has its answer in {}{ratio}; with a message queue for the answer (RMQ) it \
             takes {} as long, with queues both ways (MQ) {}.",
            units::time(rcq),
            slower("rmq"),
            slower("mq")
        ),
        panels,
        paper_values: paper_values(&ours),
        commands: vec![bench("ipc")],
        notes: vec![
            "One client has a core and the daemon has the other; from two clients on they share both. The raw line is the \
             same 8 bytes in one cache line, both sides spinning, measured between all slices of the others."
                .to_owned(),
            woken(rows),
            "From two clients on, the scheduler often runs the daemon on the core of the client that woke it. Then no other core \
             has to be woken, and a queue takes a tenth of the time: that is where MQ and RMQ fall. With more clients they wait for \
             each other."
                .to_owned(),
        ],
    }
}

/// Explains why the difference between RMQ and MQ is not the paper's.
fn woken(rows: &Rows) -> String {
    let wake = rows.one("ipc", "raw", "wake", 8, "shm/block/t1").map(|entry| units::time(entry.p50_us));
    let wake = wake.unwrap_or_else(|| "a time that was not measured".to_owned());
    format!(
        "Queues put their side to sleep, and waking a thread of the other core and hearing from it takes {wake} here without any \
         DDSS (row `raw,wake`), in a virtual machine, whose cores have to be woken by its host. That is most of RMQ and of MQ, \
         and more than on the paper's machines: so the paper's distance between these two is smaller here, and that to RCQ larger."
    )
}

fn paper_values(ours: &[(&str, f64)]) -> Vec<crate::report::picture::PaperValue> {
    let mut lines: Vec<_> = ours
        .iter()
        .zip(IPC_US)
        .map(|((wait, us), (_, paper))| {
            paper_value(&super::path_title(wait), units::time(paper), units::time(*us), units::times(us / paper))
        })
        .collect();
    let words = |numbers: &[(&str, f64)]| order(numbers, units::time);
    lines.push(paper_value("order", words(&IPC_US), words(ours), verdict(same_order(ours, &IPC_US))));
    lines
}
