//! What the demonstration shows, in order.

use super::arguments::DemoOptions;
use super::child::Actor;
use super::cluster::Stage;
use crate::error::CommandError;
use ddss::Strategy;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The segment on node 1 that is looked at from both.
const SHARED: &str = "demo";
/// A segment of node 2.
const OTHER: &str = "demo/2";

/// What is told, as it happens, or in the end as one piece of data.
struct Tale {
    json: bool,
    facts: Map<String, Value>,
}

impl Tale {
    /// A line for people.
    fn say(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Shows what is going on, where somebody watches; the next thing shown takes its place.
    fn live(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        if !self.json && out.is_terminal() {
            // Whether it can be seen is not what the demonstration is about.
            let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
        }
    }

    /// The same for scripts.
    fn note(&mut self, name: &str, fact: Value) {
        self.facts.insert(name.to_owned(), fact);
    }
}

pub(crate) fn run(options: &DemoOptions, json: bool) -> Result<(), CommandError> {
    let mut tale = Tale { json, facts: Map::new() };
    tale.say("Two nodes of one cluster and their clients, each a process of its own.\n");
    let mut stage = Stage::set()?;
    for node in &stage.nodes {
        tale.say(&format!("  node {} at {:<18} {}", node.number, node.address.to_string(), node.core));
    }
    let nodes = stage.nodes.iter().map(|node| json!({ "node": node.number, "address": node.address })).collect();
    tale.note("nodes", nodes);
    let [mut first, mut second] = [stage.client(1)?, stage.client(2)?];
    show_a_value_travel(&mut tale, &mut first, &mut second)?;
    show_latencies(&mut tale, &mut first, &mut second, options.measure_ms)?;
    show_killed_client(&mut tale, &stage, &mut second)?;
    show_killed_daemon(&mut tale, &mut stage, &mut first, &mut second)?;
    first.end()?;
    second.end()?;
    stage.strike()?;
    if json {
        println!("{}", Value::Object(tale.facts));
        return Ok(());
    }
    tale.say("\nTry next:");
    next_steps(is_installed()).iter().for_each(|line| tale.say(line));
    Ok(())
}

/// Whether it was started where programs are installed, and not where cargo builds them.
fn is_installed() -> bool {
    let own = std::env::current_exe().unwrap_or_default();
    // Where cargo puts programs it keeps its lock; a test stands one folder below that.
    !own.ancestors().skip(1).take(2).any(|folder| folder.join(".cargo-lock").exists())
}

/// Commands to go on with, as they can be typed here, and what they do.
fn next_steps(installed: bool) -> Vec<String> {
    const STEPS: [(&str, &str, &str); 4] = [
        ("ddssd", "", "a node that stays"),
        ("ddss", "allocate scores 4096", "a segment on it"),
        ("ddss", "put scores hello", "and bytes into it"),
        ("ddss", "bench", "what it takes here"),
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

fn show_a_value_travel(tale: &mut Tale, first: &mut Actor, second: &mut Actor) -> Result<(), CommandError> {
    first.ask(&format!("allocate {SHARED}"), "allocate")?;
    second.ask(&format!("allocate {OTHER}"), "allocate")?;
    let put = first.ask(&format!("fill {SHARED} 42"), "fill")?;
    let (bytes, version) = (&put["bytes"], &put["version"]);
    tale.say(&format!("\n  node 1: a client put {bytes} bytes into the new segment \"{SHARED}\" → version {version}"));
    let get = second.ask(&format!("get {SHARED}"), "get")?;
    if get["number"] != 42 || get["version"] != put["version"] {
        return Err(CommandError::Demo(format!("node 2 got {get} after node 1 had put {put}")));
    }
    let us = number(&get, "us");
    let (bytes, version) = (&get["bytes"], &get["version"]);
    tale.say(&format!("  node 2: a client got the same {bytes}, version {version}, over TCP ({us:.0} µs, the first)"));
    tale.note("travelled", json!({ "bytes": bytes, "version": version, "us": us }));
    Ok(())
}

/// A line for each strategy as soon as it was measured.
fn show_latencies(tale: &mut Tale, first: &mut Actor, second: &mut Actor, ms: u64) -> Result<(), CommandError> {
    tale.say("\n  half of the calls take less than, in µs (the home of the segment is node 1)");
    tale.say(&format!("  {:<8}{:>27}   {:>27}", "", "from node 1", "from node 2"));
    let heads = ["get 8", "put 8", "get 4096"].map(|head| format!("{head:>9}")).concat();
    tale.say(&format!("  {:<8}{heads}   {heads}{:>11}", "strategy", "get 8 p99"));
    let mut rows = Vec::new();
    for strategy in Strategy::ALL {
        let name = strategy.to_string();
        tale.live(&format!("  {name:<8}  measuring ..."));
        let line = format!("measure {SHARED} {name} {ms}");
        let here = first.ask(&line, "measure")?;
        let there = second.ask(&line, "measure")?;
        let cells =
            |row: &Value| ["get_us", "put_us", "page_us"].map(|key| format!("{:>9.2}", number(row, key))).concat();
        tale.live("");
        tale.say(&format!("  {name:<8}{}   {}{:>11.2}", cells(&here), cells(&there), number(&there, "p99_us")));
        let times = |row: &Value| json!({ "get_us": row["get_us"], "put_us": row["put_us"], "page_us": row["page_us"], "p99_us": row["p99_us"] });
        rows.push(json!({ "strategy": name, "from_node_1": times(&here), "from_node_2": times(&there) }));
    }
    tale.say(&format!("  (nodes and clients share this machine's cores: four processes want {})", cores()));
    tale.note("strategies", Value::Array(rows));
    Ok(())
}

fn show_killed_client(tale: &mut Tale, stage: &Stage, second: &mut Actor) -> Result<(), CommandError> {
    let mut witnesses = Witnesses::call(stage, &[(1, SHARED), (2, SHARED)])?;
    let mut writer = stage.client(1)?;
    writer.ask(&format!("write {SHARED}"), "writing")?;
    std::thread::sleep(Duration::from_millis(100));
    writer.kill()?;
    tale.say("\n  node 1: killed a client (SIGKILL) in the middle of its puts");
    let get = second.ask(&format!("get {SHARED}"), "get")?;
    let Some(put) = get["number"].as_u64() else {
        return Err(CommandError::Demo("the kill left a torn value".to_owned()));
    };
    tale.say(&format!("  node 2: got its put number {put}, version {}, whole", get["version"]));
    let others = witnesses.dismiss(tale, None, "the kill")?;
    tale.note("killed_client", json!({ "version": get["version"], "others": others }));
    Ok(())
}

fn show_killed_daemon(
    tale: &mut Tale,
    stage: &mut Stage,
    first: &mut Actor,
    second: &mut Actor,
) -> Result<(), CommandError> {
    let put = first.ask(&format!("fill {SHARED} 4711"), "fill")?;
    // The second one is on the node that lives, and its segment on the one that is killed.
    let mut witnesses = Witnesses::call(stage, &[(1, SHARED), (2, SHARED), (2, OTHER)])?;
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    stage.kill_node(1)?;
    tale.say(&format!("\n  node 1: put version {}, killed the daemon (SIGKILL), started it again", put["version"]));
    stage.start_node(1)?;
    let ready = began.elapsed().as_secs_f64() * 1e3;
    let here = first.ask(&format!("get {SHARED}"), "get")?;
    let there = second.ask(&format!("get {SHARED}"), "get")?;
    let mut back = Vec::new();
    for (node, get) in [(1, &here), (2, &there)] {
        if get["number"] != 4711 || get["version"] != put["version"] {
            return Err(CommandError::Demo(format!("node {node} got {get} after the daemon had acknowledged {put}")));
        }
        let after = ready + number(get, "ms");
        let version = &get["version"];
        tale.say(&format!("  node {node}: got version {version} after {after:.0} ms, by the same handle as before"));
        back.push(json!({ "node": node, "after_ms": after }));
    }
    let others = witnesses.dismiss(tale, Some(SHARED), "that")?;
    tale.note("killed_daemon", json!({ "version": put["version"], "back": back, "others": others }));
    Ok(())
}

/// Clients that go on with their work while others die: the node of each, and the segment that it gets by one handle.
struct Witnesses(Vec<(u16, &'static str, Actor)>);

impl Witnesses {
    fn call(stage: &Stage, places: &[(u16, &'static str)]) -> Result<Self, CommandError> {
        let witness = |&(node, name): &(u16, &'static str)| -> Result<_, CommandError> {
            let mut client = stage.client(node)?;
            client.ask(&format!("steady {name}"), "steady")?;
            Ok((node, name, client))
        };
        Ok(Self(places.iter().map(witness).collect::<Result<_, _>>()?))
    }

    /// What they saw, for scripts. The home of the segment `away` was away for a while: clients of the other node were told so.
    fn dismiss(&mut self, tale: &Tale, away: Option<&str>, what: &str) -> Result<Value, CommandError> {
        let mut all = Vec::new();
        for (node, name, client) in &mut self.0 {
            let seen = client.ask("enough", "enough")?;
            let may_be_away = *node == 2 && away == Some(*name);
            if seen["failed"] != 0 || seen["wrong"] != 0 || (seen["away"] != 0 && !may_be_away) {
                return Err(CommandError::Demo(format!("a client of node {node} suffered from {what}: {seen}")));
            }
            let (calls, longest) = (&seen["calls"], number(&seen, "longest_ms"));
            if may_be_away {
                let away = &seen["away"];
                tale.say(&format!(
                    "  node {node}: {calls} gets of \"{name}\": {away} failed, its home was away; its handle went on"
                ));
            } else {
                tale.say(&format!(
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
    fn the_next_steps_can_be_typed_where_they_are_read() {
        // If this broke, who installed a package would be told to run cargo, or the other way round.
        assert_eq!(next_steps(true)[1], "  ddss allocate scores 4096   a segment on it");
        assert_eq!(next_steps(true)[0], "  ddssd                       a node that stays");
        assert_eq!(next_steps(false)[0].split("   ").next(), Some("  cargo run --release --bin ddssd"));
        assert!(!is_installed(), "tests run where cargo builds");
    }
}
