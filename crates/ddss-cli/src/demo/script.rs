//! Steps of the demonstration in their order, and their output.

use super::child::ChildProcess;
use super::cluster::DemoCluster;
use crate::arguments::demo::{DemoOptions, DemoPart};
use crate::error::CommandError;
use ddss::Strategy;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Name of the segment on node 1 that both nodes use.
const SHARED: &str = "demo";
/// Name of a segment on node 2.
const OTHER: &str = "demo/2";

/// Output of the demonstration: lines as they happen, or one JSON object at the end.
struct Report {
    json: bool,
    facts: Map<String, Value>,
}

impl Report {
    /// Prints a line, unless the output is JSON.
    fn say(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Shows the present activity on a terminal; the next output replaces it.
    fn live(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        if !self.json && out.is_terminal() {
            // A failed progress line is no reason to stop.
            let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
        }
    }

    /// Records a result for the JSON output.
    fn record(&mut self, name: &str, fact: Value) {
        self.facts.insert(name.to_owned(), fact);
    }
}

/// Runs the demonstration that was asked for.
pub(crate) fn run(options: &DemoOptions, json: bool) -> Result<(), CommandError> {
    match options.part {
        None => show_two_nodes(options, json),
        Some(DemoPart::Streams) => super::streams::run(options.measure_ms, json),
        Some(DemoPart::Dsm) => super::shared_pages::run(json),
        Some(DemoPart::River) => super::data_flow::run(json),
    }
}

fn show_two_nodes(options: &DemoOptions, json: bool) -> Result<(), CommandError> {
    let mut report = Report { json, facts: Map::new() };
    report.say("Two nodes of one cluster and their clients, each a process of its own.\n");
    let mut cluster = DemoCluster::start_nodes()?;
    for node in &cluster.nodes {
        report.say(&format!("  node {} at {:<18} {}", node.number, node.address.to_string(), node.core));
    }
    let nodes = cluster.nodes.iter().map(|node| json!({ "node": node.number, "address": node.address })).collect();
    report.record("nodes", nodes);
    let [mut first, mut second] = [cluster.client(1)?, cluster.client(2)?];
    show_remote_get(&mut report, &mut first, &mut second)?;
    show_latencies(&mut report, &mut first, &mut second, options.measure_ms)?;
    show_killed_client(&mut report, &cluster, &mut second)?;
    show_killed_daemon(&mut report, &mut cluster, &mut first, &mut second)?;
    first.finish()?;
    second.finish()?;
    cluster.stop()?;
    if json {
        println!("{}", Value::Object(report.facts));
        return Ok(());
    }
    report.say("\nTry next:");
    next_steps(is_installed()).iter().for_each(|line| report.say(line));
    Ok(())
}

/// Returns true if the program runs from an installation, and not from a cargo build directory.
fn is_installed() -> bool {
    let own = std::env::current_exe().unwrap_or_default();
    // Cargo keeps its lock file beside the programs that it builds; tests are one directory below.
    !own.ancestors().skip(1).take(2).any(|folder| folder.join(".cargo-lock").exists())
}

/// Returns commands to try next, as they can be typed here, with explanations.
fn next_steps(installed: bool) -> Vec<String> {
    const STEPS: [(&str, &str, &str); 4] = [
        ("ddssd", "", "start a node"),
        ("ddss", "allocate scores 4096", "allocate a segment"),
        ("ddss", "put scores hello", "write bytes into it"),
        ("ddss", "bench", "measure this machine"),
    ];
    let command = |program: &str, words: &str| match (installed, words) {
        (true, _) => format!("{program} {words}"),
        (false, "") => format!("cargo run --release --bin {program}"),
        (false, _) => format!("cargo run --release --bin {program} -- {words}"),
    };
    let commands = STEPS.map(|(program, words, what)| (command(program, words), what));
    let widest = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    commands.iter().map(|(command, what)| format!("  {command:<widest$}   {what}")).collect()
}

fn show_remote_get(
    report: &mut Report,
    first: &mut ChildProcess,
    second: &mut ChildProcess,
) -> Result<(), CommandError> {
    first.request(&format!("allocate {SHARED}"), "allocate")?;
    second.request(&format!("allocate {OTHER}"), "allocate")?;
    let put = first.request(&format!("fill {SHARED} 42"), "fill")?;
    let (bytes, version) = (&put["bytes"], &put["version"]);
    report
        .say(&format!("\n  node 1: a client put {bytes} bytes into the new segment \"{SHARED}\" → version {version}"));
    let get = second.request(&format!("get {SHARED}"), "get")?;
    if get["number"] != 42 || get["version"] != put["version"] {
        return Err(CommandError::Demo(format!("node 2 got {get} after node 1 had put {put}")));
    }
    let us = number(&get, "us");
    let (bytes, version) = (&get["bytes"], &get["version"]);
    report
        .say(&format!("  node 2: a client got the same {bytes}, version {version}, over TCP ({us:.0} µs, the first)"));
    report.record("remote_get", json!({ "bytes": bytes, "version": version, "us": us }));
    Ok(())
}

/// Prints a line for each strategy as soon as it is measured.
fn show_latencies(
    report: &mut Report,
    first: &mut ChildProcess,
    second: &mut ChildProcess,
    ms: u64,
) -> Result<(), CommandError> {
    report.say("\n  median latency in µs (the home of the segment is node 1)");
    report.say(&format!("  {:<8}{:>27}   {:>27}", "", "from node 1", "from node 2"));
    let heads = ["get 8", "put 8", "get 4096"].map(|head| format!("{head:>9}")).concat();
    report.say(&format!("  {:<8}{heads}   {heads}{:>11}", "strategy", "get 8 p99"));
    let mut rows = Vec::new();
    for strategy in Strategy::ALL {
        let name = strategy.to_string();
        report.live(&format!("  {name:<8}  measuring ..."));
        let line = format!("measure {SHARED} {name} {ms}");
        let here = first.request(&line, "measure")?;
        let there = second.request(&line, "measure")?;
        let cells =
            |row: &Value| ["get_us", "put_us", "page_us"].map(|key| format!("{:>9.2}", number(row, key))).concat();
        report.live("");
        report.say(&format!("  {name:<8}{}   {}{:>11.2}", cells(&here), cells(&there), number(&there, "p99_us")));
        let times = |row: &Value| json!({ "get_us": row["get_us"], "put_us": row["put_us"], "page_us": row["page_us"], "p99_us": row["p99_us"] });
        rows.push(json!({ "strategy": name, "from_node_1": times(&here), "from_node_2": times(&there) }));
    }
    report.say(&format!("  (four processes share {})", cores()));
    report.record("strategies", Value::Array(rows));
    Ok(())
}

fn show_killed_client(
    report: &mut Report,
    cluster: &DemoCluster,
    second: &mut ChildProcess,
) -> Result<(), CommandError> {
    let mut observers = Observers::start(cluster, &[(1, SHARED), (2, SHARED)])?;
    let mut writer = cluster.client(1)?;
    writer.request(&format!("write {SHARED}"), "writing")?;
    std::thread::sleep(Duration::from_millis(100));
    writer.kill()?;
    report.say("\n  node 1: killed a client (SIGKILL) in the middle of its puts");
    let get = second.request(&format!("get {SHARED}"), "get")?;
    let Some(put) = get["number"].as_u64() else {
        return Err(CommandError::Demo("the kill left a torn value".to_owned()));
    };
    report.say(&format!("  node 2: got its put number {put}, version {}, whole", get["version"]));
    let others = observers.finish(report, None, "the kill")?;
    report.record("killed_client", json!({ "version": get["version"], "others": others }));
    Ok(())
}

fn show_killed_daemon(
    report: &mut Report,
    cluster: &mut DemoCluster,
    first: &mut ChildProcess,
    second: &mut ChildProcess,
) -> Result<(), CommandError> {
    let put = first.request(&format!("fill {SHARED} 4711"), "fill")?;
    // The second client runs on the surviving node, while its segment has its home on the killed one.
    let mut observers = Observers::start(cluster, &[(1, SHARED), (2, SHARED), (2, OTHER)])?;
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    cluster.kill_node(1)?;
    report.say(&format!("\n  node 1: put version {}, killed the daemon (SIGKILL), started it again", put["version"]));
    cluster.start_node(1)?;
    let ready = began.elapsed().as_secs_f64() * 1e3;
    let here = first.request(&format!("get {SHARED}"), "get")?;
    let there = second.request(&format!("get {SHARED}"), "get")?;
    let mut back = Vec::new();
    for (node, get) in [(1, &here), (2, &there)] {
        if get["number"] != 4711 || get["version"] != put["version"] {
            return Err(CommandError::Demo(format!("node {node} got {get} after the daemon had acknowledged {put}")));
        }
        let after = ready + number(get, "ms");
        let version = &get["version"];
        report.say(&format!("  node {node}: got version {version} after {after:.0} ms, by the same handle as before"));
        back.push(json!({ "node": node, "after_ms": after }));
    }
    let others = observers.finish(report, Some(SHARED), "that")?;
    report.record("killed_daemon", json!({ "version": put["version"], "back": back, "others": others }));
    Ok(())
}

/// Polling clients that observe a kill: the node of each, the segment that it gets, and its process.
struct Observers(Vec<(u16, &'static str, ChildProcess)>);

impl Observers {
    fn start(cluster: &DemoCluster, places: &[(u16, &'static str)]) -> Result<Self, CommandError> {
        let observer = |&(node, name): &(u16, &'static str)| -> Result<_, CommandError> {
            let mut client = cluster.client(node)?;
            client.request(&format!("steady {name}"), "steady")?;
            Ok((node, name, client))
        };
        Ok(Self(places.iter().map(observer).collect::<Result<_, _>>()?))
    }

    /// Stops the clients and returns their results. Gets of segment `away` from node 2 may have failed: its home was killed.
    fn finish(&mut self, report: &Report, away: Option<&str>, what: &str) -> Result<Value, CommandError> {
        let mut all = Vec::new();
        for (node, name, client) in &mut self.0 {
            let seen = client.request("enough", "enough")?;
            let may_be_away = *node == 2 && away == Some(*name);
            if seen["failed"] != 0 || seen["wrong"] != 0 || (seen["away"] != 0 && !may_be_away) {
                return Err(CommandError::Demo(format!("a client of node {node} was affected by {what}: {seen}")));
            }
            let (calls, longest) = (&seen["calls"], number(&seen, "longest_ms"));
            if may_be_away {
                let away = &seen["away"];
                report.say(&format!(
                    "  node {node}: {calls} gets of \"{name}\": {away} failed, longest {longest:.1} ms; the handle recovered"
                ));
            } else {
                report.say(&format!(
                    "  node {node}: {calls} gets of \"{name}\" by another client: none failed, longest {longest:.1} ms"
                ));
            }
            all.push(
                json!({ "node": node, "segment": name, "gets": calls, "away": seen["away"], "failed": seen["failed"],
                "longest_ms": longest, "version": seen["version"] }),
            );
        }
        Ok(Value::Array(all))
    }
}

fn cores() -> String {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => "one core".to_owned(),
        cores => format!("{cores} cores"),
    }
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_steps_fit_the_installation() {
        // An installed program must not suggest cargo, nor a build directory an installed command.
        assert_eq!(next_steps(true)[1], "  ddss allocate scores 4096   allocate a segment");
        assert_eq!(next_steps(true)[0], "  ddssd                       start a node");
        assert_eq!(next_steps(false)[0].split("   ").next(), Some("  cargo run --release --bin ddssd"));
        assert!(!is_installed(), "tests run where cargo builds");
    }
}
