//! Figures 3b and 3c: gets, puts and atomics over their size, on every available path.

use super::{bench, by_strategy, curve_of, order, paper_marks, paper_value, same_order, verdict};
use crate::report::paper::GET_US;
use crate::report::picture::{Bar, Bars, Curve, Curves, Panel, Paper, PaperValue, Part, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

/// Paths with their titles.
const ROADS: [(&str, &str); 3] = [
    ("shm", "same node, through its daemon"),
    ("tcp-lo", "other node, iWARP over loopback"),
    ("tcp-veth", "other node, iWARP over a veth pair"),
];
const ADAPTERS: [(&str, &str); 2] = [("rxe", "Soft-RoCE (rxe)"), ("siw", "Soft-iWARP (siw)")];
const VM: &str = "scripts/vm bench";

fn size(entry: &Entry) -> f64 {
    entry.size as f64
}

/// A curve that looks different from the one of the same style in the other panels.
fn dashed(curve: Option<Curve>) -> Option<Curve> {
    curve.map(|curve| Curve { is_dashed: true, ..curve })
}

/// One path: every strategy, and the limit without DDSS.
fn road(rows: &Rows, bench: &str, op: &str, path: &str, title: &str) -> Option<Curves> {
    let own = rows.of(bench).filter(|entry| (&*entry.op, entry.path()) == (op, path));
    let mut curves = by_strategy(own, size, |entry| Some(entry.p50_us));
    if curves.is_empty() {
        return None;
    }
    // Rows of atomics are no points of a curve.
    let sizes: Vec<u64> = rows.of(bench).filter(|entry| entry.op == "get").map(|entry| entry.size).collect();
    let raw = |op: &'static str, path: &str| {
        let (path, sizes) = (path.to_owned(), sizes.clone());
        rows.of(bench).filter(move |entry| {
            (&*entry.name, &*entry.op, entry.path(), entry.outstanding) == ("raw", op, &*path, 1)
                && entry.wait() == "spin"
                && sizes.contains(&entry.size)
        })
    };
    match path {
        "shm" => curves.extend(dashed(curve_of("memcpy", Style::Raw, raw("memcpy", "near"), size))),
        // Inside the emulated machine the sockets are those of its loopback.
        path if bench == path => curves.extend(curve_of("bare TCP", Style::Raw, raw("pingpong", "tcp-lo"), size)),
        path => curves.extend(curve_of("bare TCP", Style::Raw, raw("pingpong", path), size)),
    }
    curves.extend(curve_of("perftest", Style::Peer, raw("perftest", path), size));
    Some(Curves {
        title: title.to_owned(),
        x: ("bytes".to_owned(), Scale::Bytes),
        y: ("median, log scale".to_owned(), Scale::Time),
        curves,
        marks: Vec::new(),
    })
}

/// In place: no strategy, and no daemon.
fn near(rows: &Rows) -> Option<Curves> {
    let of = |name: &'static str, op: &'static str| {
        rows.of("sizes").filter(move |entry| (&*entry.name, &*entry.op, entry.path()) == (name, op, "near"))
    };
    let curves = [
        dashed(curve_of("get", Style::Auto, of("ddss", "get"), size))?,
        curve_of("seqlock", Style::Peer, of("raw", "seqlock"), size)?,
        dashed(curve_of("memcpy", Style::Raw, of("raw", "memcpy"), size))?,
    ];
    Some(Curves {
        title: "same node, mapped: no daemon".to_owned(),
        x: ("bytes".to_owned(), Scale::Bytes),
        y: ("median, log scale".to_owned(), Scale::Time),
        curves: curves.into(),
        marks: Vec::new(),
    })
}

/// Gets.
pub(super) fn gets(rows: &Rows) -> Picture {
    let title = "A get over its size, on every road";
    let mut panels: Vec<Curves> = near(rows).into_iter().collect();
    panels.extend(ROADS.iter().filter_map(|(path, title)| road(rows, "sizes", "get", path, title)));
    if panels.is_empty() {
        return Picture::missing("fig-3b", "Figures 3b and 3c", title, &bench("sizes"));
    }
    for panel in panels.iter_mut().filter(|panel| panel.title.starts_with("other node")) {
        panel.marks = paper_marks(&GET_US, Scale::Time);
    }
    let ours = |path: &str| small(rows, "get", path);
    let far = ours("tcp-lo");
    let near = rows.one("sizes", "ddss", "get", 8, "near/spin/t1").map_or_else(String::new, |entry| {
        format!(" In place, without a daemon, 8 bytes take {}.", units::time(entry.p50_us))
    });
    Picture {
        paper: Paper::Ddss,
        id: "fig-3b".to_owned(),
        number: "Figures 3b and 3c".to_owned(),
        title: title.to_owned(),
        says: format!(
            "From another node a small get takes {}; for large ones the bytes count and the strategies come together.{near}",
            order(&far, units::time)
        ),
        panels: panels.into_iter().map(Panel::Curves).collect(),
        paper_values: paper_values(&far, ours("tcp-veth").as_slice()),
        commands: vec![bench("sizes")],
        notes: vec![
            "The paper's get goes over InfiniBand adapters, which work without a processor; here three threads (client, its \
             own daemon, the home's daemon) share two cores, and the wire is TCP through the kernel. The bare TCP line is \
             the same question and answer between two sockets with both sides spinning."
                .to_owned(),
            "Each strategy runs on the placement of the three threads that suits it best; the rows say which.".to_owned(),
        ],
    }
}

/// The strategies of the paper at the smallest size.
fn small(rows: &Rows, op: &str, path: &str) -> Vec<(&'static str, f64)> {
    let one = |wait: &'static str| {
        let own = rows.of("sizes").filter(|entry| (&*entry.name, &*entry.op, entry.path()) == ("ddss", op, path));
        own.filter(|entry| entry.wait() == wait).min_by_key(|entry| entry.size).map(|entry| (wait, entry.p50_us))
    };
    ["mq", "rmq", "rcq"].into_iter().filter_map(one).collect()
}

fn paper_values(loopback: &[(&str, f64)], veth: &[(&str, f64)]) -> Vec<PaperValue> {
    let words = |numbers: &[(&str, f64)]| order(numbers, units::time);
    let line = |what: &str, ours: &[(&str, f64)]| {
        (ours.len() == GET_US.len())
            .then(|| paper_value(what, words(&GET_US), words(ours), verdict(same_order(ours, &GET_US))))
    };
    let mut lines: Vec<PaperValue> = line("small get, loopback", loopback).into_iter().collect();
    lines.extend(line("small get, veth pair", veth));
    lines.extend(gap(loopback));
    lines
}

/// Additional cost of message queues over rings, which is the effect of the strategies.
fn gap(ours: &[(&str, f64)]) -> Option<PaperValue> {
    let of = |numbers: &[(&str, f64)], wait: &str| numbers.iter().find(|(name, _)| *name == wait).map(|(_, us)| *us);
    let between = |numbers: &[(&str, f64)]| Some(of(numbers, "mq")? - of(numbers, "rcq")?);
    let (paper, here) = (between(&GET_US)?, between(ours)?);
    let verdict =
        "two wake-ups by the kernel, which on a core that client and daemon share take a tenth of those in Figure 3a";
    Some(paper_value("MQ − RCQ", units::time(paper), units::time(here.max(0.0)), verdict))
}

/// Puts.
pub(super) fn puts(rows: &Rows) -> Picture {
    let title = "A put over its size";
    let panels: Vec<Curves> =
        ROADS.iter().filter_map(|(path, title)| road(rows, "sizes", "put", path, title)).collect();
    if panels.is_empty() {
        return Picture::missing("puts", "Puts", title, &bench("sizes"));
    }
    let of = |path: &str, op: &str| small(rows, op, path).iter().find(|(wait, _)| *wait == "rcq").map(|(_, us)| *us);
    let compared = of("tcp-lo", "put").zip(of("tcp-lo", "get")).map_or_else(String::new, |(put, get)| {
        format!(": {} against {} from another node (RCQ)", units::time(put), units::time(get))
    });
    Picture {
        paper: Paper::Ddss,
        id: "puts".to_owned(),
        number: "Puts".to_owned(),
        title: title.to_owned(),
        says: format!("A small put is one round trip like a get, though the home carries it out{compared}."),
        panels: panels.into_iter().map(Panel::Curves).collect(),
        paper_values: vec![paper_value("puts", "no numbers", "see the table", "the paper measures gets only")],
        commands: vec![bench("sizes")],
        notes: vec!["The home answers when the bytes are committed and everybody sees them whole.".to_owned()],
    }
}

/// Over the kernel's own adapters in the emulated machine.
pub(super) fn adapters(rows: &Rows) -> Picture {
    let title = "A get over RDMA adapters, in the emulated machine";
    let panels = ADAPTERS.iter().filter_map(|(path, title)| road(rows, path, "get", path, title));
    let panels: Vec<Panel> = panels.map(Panel::Curves).collect();
    if panels.is_empty() {
        return Picture::missing("adapters", "Figures 3b and 3c, adapters", title, VM);
    }
    let ratio = |path: &str| {
        let of = |name: &str, op: &str| {
            let all = rows.of(path).filter(|entry| entry.name == name && entry.op == op && entry.outstanding == 1);
            all.min_by_key(|entry| entry.size).map(|entry| entry.p50_us)
        };
        let best = rows.of(path).filter(|entry| (&*entry.name, &*entry.op) == ("ddss", "get"));
        let best = best.filter(|entry| Some(entry.size) == rows.of(path).map(|entry| entry.size).min());
        let best = best.map(|entry| entry.p50_us).min_by(f64::total_cmp)?;
        Some(format!("{} perftest's bare read on {path}", units::times(best / of("raw", "perftest")?)))
    };
    let ratios: Vec<String> = ADAPTERS.iter().filter_map(|(path, _)| ratio(path)).collect();
    let says = if ratios.is_empty() {
        "DDSS runs unchanged over both.".to_owned()
    } else {
        format!("A small get takes {}.", ratios.join(", "))
    };
    Picture {
        paper: Paper::Ddss,
        id: "adapters".to_owned(),
        number: "Figures 3b and 3c, adapters".to_owned(),
        title: title.to_owned(),
        says,
        panels,
        paper_values: vec![paper_value("over iWARP", "“similar trends” as over InfiniBand", "the two panels have the same shape", "times of an emulated processor: look at ratios only")],
        commands: vec![VM.to_owned()],
        notes: vec![
            "The machine is emulated instruction by instruction, some twenty times slower than this one: only what was \
             measured inside of it can be compared. perftest's ib_read_lat is one read without DDSS, a get of DDSS is three \
             reads in one batch and two ways through the rings."
                .to_owned(),
        ],
    }
}

/// Atomics.
pub(super) fn words(rows: &Rows) -> Picture {
    let title = "An atomic on one word";
    let bar = |op: &str, path: &str, wait: &'static str| {
        let entry = rows.one("sizes", "ddss", op, 8, &format!("{path}/{wait}/t1"))?;
        let part = Part { label: String::new(), curve_style: super::curve_style(wait), value: entry.p50_us };
        Some(Bar { label: format!("{}, {}", path, super::path_title(wait)), parts: vec![part], paper: None })
    };
    let panel = |(op, title): (&str, &str)| {
        let all = ROADS.iter().flat_map(|(path, _)| super::STRATEGIES.map(|wait| bar(op, path, wait)));
        let bars: Vec<Bar> = all.flatten().collect();
        let unit = ("median; shm: same node, tcp: another".to_owned(), Scale::TimeFromZero);
        (!bars.is_empty()).then(|| Panel::Bars(Bars { title: title.to_owned(), unit, bars }))
    };
    let panels: Vec<Panel> =
        [("fetch_add", "fetch and add"), ("cas", "compare and swap")].into_iter().filter_map(panel).collect();
    if panels.is_empty() {
        return Picture::missing("atomics", "Atomics", title, &bench("sizes"));
    }
    let of = |op| rows.one("sizes", "ddss", op, 8, "tcp-lo/rcq/t1").map(|entry| units::time(entry.p50_us));
    let says = of("fetch_add").zip(of("cas")).map_or_else(
        || "An atomic takes as long as a small put.".to_owned(),
        |(add, cas)| {
            format!(
                "From another node a word is changed in one round trip: {add} to add, {cas} to compare and swap (RCQ)."
            )
        },
    );
    Picture {
        paper: Paper::Ddss,
        id: "atomics".to_owned(),
        number: "Atomics".to_owned(),
        title: title.to_owned(),
        says,
        panels,
        paper_values: vec![paper_value("atomics", "no numbers", "see the bars", "the paper does not measure them")],
        commands: vec![bench("sizes")],
        notes: vec![
            "Each word has one arbiter, the home's progress thread, and each change is a version of its segment."
                .to_owned(),
        ],
    }
}
