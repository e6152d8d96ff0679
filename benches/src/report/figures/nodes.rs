//! Figures 4b and 4c: one home against data that is spread.

use super::{bench, curve, curve_style, paper_value, path_title};
use crate::report::picture::{Curve, Curves, Panel, Paper, PaperValue, Picture, Scale};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "One home against data spread over the nodes";
const OPS: [(&str, &str); 2] = [("get-one-home", "one home"), ("get-spread", "spread")];
/// Command of the simulation.
const SIMULATED: &str = "cargo run --release -p ddss-benches --bin report -- --from DIR --out DIR";

/// The number of nodes in a path like `tcp-veth-n4`.
fn nodes(entry: &Entry) -> Option<u64> {
    entry.path().rsplit_once("-n")?.1.parse().ok()
}

/// One home and spread, of those rows, over the number of nodes.
fn curves(rows: &[&Entry], wait: &str, each: u64) -> Vec<Curve> {
    let of_op = |(op, label): (&str, &str)| {
        let own = rows.iter().filter(|entry| entry.op == op && entry.wait() == wait);
        let own = own.filter_map(|entry| nodes(entry).map(|count| (count, *entry)));
        let mut points: Vec<(f64, f64)> = own
            .filter(|(count, entry)| entry.clients() == (count - 1) * each)
            .map(|(count, entry)| (count as f64, entry.ops_per_s))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!points.is_empty()).then(|| Curve {
            is_dashed: op != "get-spread",
            ..curve(&format!("{label} ({})", path_title(wait)), curve_style(wait), points)
        })
    };
    OPS.into_iter().filter_map(of_op).collect()
}

fn panel(title: String, curves: Vec<Curve>) -> Option<Panel> {
    (!curves.is_empty()).then(|| {
        let axes = ("nodes".to_owned(), "gets a second of all clients, log scale".to_owned());
        Panel::Curves(Curves { title, x: (axes.0, Scale::Count), y: (axes.1, Scale::Rate), curves, marks: Vec::new() })
    })
}

/// Measurements on this machine, and simulations beyond it.
pub(super) fn four_b(rows: &Rows) -> Picture {
    let measured: Vec<&Entry> =
        rows.of("nodes").filter(|entry| entry.size == 8 && entry.op.starts_with("get-")).collect();
    let simulated: Vec<&Entry> = rows.of("shape").filter(|entry| entry.size == 8).collect();
    let each = |rows: &[&Entry]| {
        rows.iter()
            .filter_map(|entry| Some(entry.clients() / nodes(entry)?.saturating_sub(1).max(1)))
            .max()
            .unwrap_or(1)
    };
    let (each_here, each_there) = (each(&measured), each(&simulated));
    let all = |wait: &str| curves(&measured, wait, each_here);
    let panels = [
        panel(format!("MEASURED, {each_here} clients a node, all on these cores"), [all("auto"), all("rmq")].concat()),
        panel(
            format!("SIMULATED, {each_there} clients a node, each with its own cores"),
            curves(&simulated, "auto", each_there),
        ),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return Picture::missing("fig-4b", "Figures 4b and 4c", TITLE, &bench("nodes"));
    }
    Picture {
        paper: Paper::Ddss,
        id: "fig-4b".to_owned(),
        number: "Figures 4b and 4c".to_owned(),
        title: TITLE.to_owned(),
        says: says(&simulated, each_there),
        panels,
        paper_values: paper_values(&measured, &simulated),
        commands: vec![bench("nodes"), SIMULATED.to_owned()],
        notes: notes(&measured, rows),
    }
}

fn ends(rows: &[&Entry], op: &str) -> Option<((u64, f64), (u64, f64))> {
    let own = rows.iter().filter(|entry| entry.op == op && entry.wait() == "auto");
    let points: Vec<(u64, f64)> = own.filter_map(|entry| Some((nodes(entry)?, entry.ops_per_s))).collect();
    let least = points.iter().filter(|point| point.0 >= 2).min_by_key(|point| point.0)?;
    Some((*least, *points.iter().max_by_key(|point| point.0)?))
}

fn says(simulated: &[&Entry], each: u64) -> String {
    match ends(simulated, "get-spread").zip(ends(simulated, "get-one-home")) {
        Some((((few, slow), (many, fast)), (_, (_, one)))) => format!(
            "In the simulation spread data goes from {} on {few} nodes to {} on {many}, {each} clients on each; one home stays at {}. \
             On this machine all nodes share the same cores, and nothing can scale.",
            units::rate(slow),
            units::rate(fast),
            units::rate(one)
        ),
        None => "On this machine all nodes share the same cores, so more nodes are no more hands: nothing can scale."
            .to_owned(),
    }
}

fn paper_values(measured: &[&Entry], simulated: &[&Entry]) -> Vec<PaperValue> {
    let line = |what: &str, rows: &[&Entry], op: &str, paper: &str, verdict: fn(f64, f64) -> String| {
        let ((few, slow), (many, fast)) = ends(rows, op)?;
        let here = format!("{} on {few} nodes, {} on {many}", units::rate(slow), units::rate(fast));
        Some(paper_value(what, paper, here, verdict(fast / slow, many as f64 / few as f64)))
    };
    let scales = |gain: f64, nodes: f64| {
        if gain > nodes * 0.7 {
            "as in the paper".to_owned()
        } else {
            format!("{} for {} the nodes", units::times(gain), units::times(nodes))
        }
    };
    let flat = |gain: f64, nodes: f64| {
        if gain < nodes * 0.5 { "as in the paper".to_owned() } else { "the home is not yet full".to_owned() }
    };
    let shared = |gain: f64, _: f64| format!("{}: the same two cores do all the work", units::times(gain));
    [
        line("spread, simulated", simulated, "get-spread", "“scales with increasing number of clients”", scales),
        line("one home, simulated", simulated, "get-one-home", "does not", flat),
        line("spread, measured", measured, "get-spread", "“scales with increasing number of clients”", shared),
        line("one home, measured", measured, "get-one-home", "does not", shared),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn notes(measured: &[&Entry], rows: &Rows) -> Vec<String> {
    let mut notes = vec![
        "MEASURED: real daemons, each in a network namespace of its own, and real clients (none at node 1), all on the two cores of one machine. \
         SIMULATED: the engines that the daemons run, in virtual time, in ddss-sim; a step of a daemon takes what it was measured to take, \
         and each node has a core for its daemon. Nothing was measured on so many nodes."
            .to_owned(),
    ];
    let most =
        measured.iter().filter(|entry| entry.wait() == "auto").max_by_key(|entry| (nodes(entry), entry.clients()));
    if let Some(entry) = most
        && let (Some(client), Some(own)) = (entry.more("client_cpu_us"), entry.more("service_cpu_us"))
    {
        notes.push(format!(
            "Why nothing scales here, by measurement: with {} nodes a get takes {} of processor time of the clients and {} of the first \
             daemon alone, at {} together; the cores are full.",
            nodes(entry).unwrap_or(0),
            units::time(client),
            units::time(own),
            units::rate(entry.ops_per_s)
        ));
    }
    let note = rows.of("shape").find(|entry| !entry.notes.is_empty());
    notes.extend(note.map(|entry| format!("The simulation: {}.", entry.notes)));
    notes
}
