//! Time of each step of a get.

use super::{bench, paper_value, path_title};
use crate::report::picture::{Bar, Bars, Panel, Paper, Part, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "The road of a get in steps";
/// The steps in order, with their styles.
const STEPS: [(&str, Style); 6] = [
    ("submit", Style::Peer),
    ("post", Style::Rcq),
    ("wire", Style::Rmq),
    ("complete", Style::Mq),
    ("reply", Style::Auto),
    ("return", Style::Raw),
];
const ROADS: [(&str, &str); 3] = [("shm", "same node"), ("tcp-lo", "loopback"), ("tcp-veth", "veth pair")];

/// A step of a path; the joint time of home and wire is split by the time of bare sockets on that wire.
fn step(rows: &Rows, step: &str, path: &str, wait: &str) -> Option<f64> {
    let of = |word: &str| {
        let is_it = |entry: &&Entry| entry.op == format!("step-{word}") && (entry.path(), entry.wait()) == (path, wait);
        rows.of("steps").find(is_it).map(|entry| entry.p50_us)
    };
    let bare = rows.one("steps", "raw", "pingpong", 8, &format!("{path}/spin/t1")).map(|entry| entry.p50_us);
    match step {
        "wire" => Some(bare?.min(of("complete")?)),
        "complete" => Some((of("complete")? - bare.unwrap_or(0.0)).max(0.0)),
        word => of(word),
    }
}

fn bars(rows: &Rows, roads: &[(&str, &str)]) -> Vec<Bar> {
    let bar = |(path, label): &(&str, &str), wait: &str| {
        let part = |(word, curve_style): (&str, Style)| {
            Some(Part { label: word.to_owned(), curve_style, value: step(rows, word, path, wait)? })
        };
        let parts: Vec<Part> = STEPS.into_iter().filter_map(part).collect();
        (parts.len() > 1).then(|| Bar { label: format!("{label}, {}", path_title(wait)), parts, paper: None })
    };
    roads.iter().flat_map(|road| super::STRATEGIES.map(|wait| bar(road, wait))).flatten().collect()
}

/// The steps of one get, on each measured path.
pub(super) fn steps(rows: &Rows) -> Picture {
    let panel = |title: &str, roads: &[(&str, &str)]| {
        let unit = ("share of each step, and the whole; medians".to_owned(), Scale::TimeShare);
        let bars = bars(rows, roads);
        (!bars.is_empty()).then(|| Panel::Bars(Bars { title: title.to_owned(), unit, bars }))
    };
    let panels = [panel("same node, 8 bytes", &ROADS[..1]), panel("other node, 8 bytes", &ROADS[1..])];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return Picture::missing("steps", "Steps", TITLE, &bench("steps"));
    }
    Picture {
        paper: Paper::Ddss,
        id: "steps".to_owned(),
        number: "Steps".to_owned(),
        title: TITLE.to_owned(),
        says: says(rows),
        panels,
        paper_values: vec![paper_value("steps", "Figure 2 names them, no numbers", "see the bars", "")],
        commands: vec![bench("steps")],
        notes: vec![
            "submit: from the client's ring into the daemon's hands (written, and dequeued). post: until the engine has decided and the \
             reads are handed to the fabric; of a get of the same node, until it is answered. wire: what a bare TCP ping-pong \
             takes on the same road. complete: what it takes longer than that until the bytes are there: the home's fabric, and the time \
             until this daemon looks. reply: until the answer is written. return: until the client has it. All but wire and \
             return are the daemon's own counters, of every 512th call, the same that `ddss trace` shows."
                .to_owned(),
        ],
    }
}

fn says(rows: &Rows) -> String {
    let words = |path: &str, label: &str| {
        let all = STEPS.iter().filter_map(|(word, _)| Some((*word, step(rows, word, path, "auto")?)));
        let all: Vec<(&str, f64)> = all.collect();
        let longest = all.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let sum: f64 = all.iter().map(|step| step.1).sum();
        Some(format!("{label} “{}” is {} of {}", longest.0, units::time(longest.1), units::time(sum)))
    };
    let words: Vec<String> =
        [words("shm", "on the same node"), words("tcp-lo", "from another node")].into_iter().flatten().collect();
    format!("The longest step of a small get under Auto: {}.", words.join(", "))
}
