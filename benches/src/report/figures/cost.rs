//! Resource cost of an operation.

use super::{bench, paper_value, path_title};
use crate::report::picture::{Bar, Bars, Panel, Paper, Part, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "What a call costs besides time";

fn parts(entry: &Entry, columns: [&str; 3]) -> Vec<Part> {
    let names = [("the client", Style::Peer), ("its daemon", Style::Rcq), ("the home's daemon", Style::Mq)];
    let part = |((label, curve_style), column): ((&str, Style), &str)| {
        Some(Part { label: label.to_owned(), curve_style, value: entry.more(column)? })
    };
    names.into_iter().zip(columns).filter_map(part).collect()
}

/// Bars of all strategies for these operations.
fn bars(rows: &Rows, kinds: &[(&str, &str, &str)], columns: [&str; 3]) -> Vec<Bar> {
    let bar = |(op, path, label): &(&str, &str, &str), wait: &str| {
        let entry = rows.one("resource_cost", "ddss", op, 8, &format!("{path}/{wait}/t1"))?;
        let parts = parts(entry, columns);
        (!parts.is_empty()).then(|| Bar { label: format!("{label}, {}", path_title(wait)), parts, paper: None })
    };
    kinds.iter().flat_map(|kind| super::STRATEGIES.map(|wait| bar(kind, wait))).flatten().collect()
}

fn panel(title: &str, unit: &str, scale: Scale, bars: Vec<Bar>) -> Option<Panel> {
    (!bars.is_empty()).then(|| Panel::Bars(Bars { title: title.to_owned(), unit: (unit.to_owned(), scale), bars }))
}

/// Processor time, system calls, bytes on the wire, and a node that has nothing to do.
pub(super) fn cost(rows: &Rows) -> Picture {
    let columns = ["client_cpu_us", "service_cpu_us", "home_cpu_us"];
    let near = [("null", "shm-cost", "null"), ("get", "shm-cost", "get"), ("put", "shm-cost", "put")];
    let far = [("get", "tcp-lo-cost", "get"), ("put", "tcp-lo-cost", "put")];
    let (near, far) = (bars(rows, &near, columns), bars(rows, &far, columns));
    let calls = bars(
        rows,
        &[("null", "shm-traced", "null"), ("get", "tcp-lo-traced", "get, other node")],
        ["client_calls", "service_calls", "home_calls"],
    );
    let panels = [
        panel("processor time of a call, same node", "8 bytes, one client", Scale::TimeFromZero, near),
        panel("processor time of a call, other node", "8 bytes, one client", Scale::TimeFromZero, far),
        panel("system calls of a call", "8 bytes, one client, counted by strace", Scale::Number, calls),
        panel("bytes on the wire for each byte asked", "veth pair, all headers, both ways", Scale::Number, wire(rows)),
        panel(
            "a node with nothing to do",
            "processor time of the daemon in each second",
            Scale::TimeFromZero,
            idle(rows),
        ),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return Picture::missing("cost", "Cost", TITLE, &bench("resource_cost"));
    }
    Picture {
        paper: Paper::Ddss,
        id: "cost".to_owned(),
        number: "Cost".to_owned(),
        title: TITLE.to_owned(),
        says: says(rows),
        panels,
        paper_values: vec![
            paper_value("RCQ", "no kernel; “a significant amount of CPU”", calls_of(rows, "rcq"), "both, as the paper says"),
            paper_value("MQ", "“does not consume significant CPU”, kernel on both sides", calls_of(rows, "mq"), "as the paper says"),
        ],
        commands: vec![bench("resource_cost")],
        notes: vec![
            "Who spins while it waits takes as much processor time as the call takes: RCQ pays for its speed with the core of \
             its client. Under strace a system call takes longer, so what sleeps after a while sleeps more often than usual."
                .to_owned(),
        ],
    }
}

fn wire(rows: &Rows) -> Vec<Bar> {
    let all = rows.of("resource_cost").filter(|entry| entry.path() == "tcp-veth-wire" && entry.size > 0);
    let bar = |entry: &Entry| {
        let each = entry.more("wire_bytes")? / entry.size as f64;
        let part = Part { label: String::new(), curve_style: Style::Rmq, value: each };
        // 8 bytes are mostly headers, and would hide all others.
        let label = format!("{}, {}", entry.op, units::bytes(entry.size as f64));
        (entry.size > 8).then(|| Bar { label, parts: vec![part], paper: None })
    };
    all.filter_map(bar).collect()
}

fn idle(rows: &Rows) -> Vec<Bar> {
    let all = rows.of("resource_cost").filter(|entry| entry.op == "idle");
    let bar = |entry: &Entry| {
        let part = Part { label: String::new(), curve_style: Style::Auto, value: entry.more("service_cpu_us")? };
        Some(Bar { label: format!("one client, {}", path_title(entry.wait())), parts: vec![part], paper: None })
    };
    all.filter_map(bar).collect()
}

fn calls_of(rows: &Rows, wait: &str) -> String {
    let traced = rows.one("resource_cost", "ddss", "null", 8, &format!("shm-traced/{wait}/t1"));
    let time = rows.one("resource_cost", "ddss", "null", 8, &format!("shm-cost/{wait}/t1"));
    let calls = traced.and_then(|entry| Some(entry.more("client_calls")? + entry.more("service_calls")?));
    let time = time.and_then(|entry| Some(entry.more("client_cpu_us")? + entry.more("service_cpu_us")?));
    let calls = calls.map(|calls| format!("{} system calls", units::plain(calls)));
    let time = time.map(|us| format!("{} of processor time", units::time(us)));
    let words: Vec<String> = calls.into_iter().chain(time).collect();
    if words.is_empty() { "not measured".to_owned() } else { format!("{} a call", words.join(", ")) }
}

fn says(rows: &Rows) -> String {
    let idle = rows.one("resource_cost", "ddss", "idle", 0, "shm/auto/t1");
    let idle = rows.of("resource_cost").find(|entry| entry.op == "idle" && entry.wait() == "auto").or(idle);
    let idle = idle.and_then(|entry| entry.more("service_cpu_us"));
    let idle = idle
        .map_or_else(String::new, |us| format!("; a node with nothing to do takes {} of each second", units::time(us)));
    format!("A call by rings (RCQ) makes {}, one by queues (MQ) {}{idle}.", calls_of(rows, "rcq"), calls_of(rows, "mq"))
}
