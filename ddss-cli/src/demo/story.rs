//! What the demonstration shows, in order.

use super::actor::Actor;
use super::arguments::DemoOptions;
use super::stage::Stage;
use crate::failure::CommandError;
use ddss::Strategy;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The segment on node 1 that is looked at from both.
const SHARED: &str = "demo";
/// A segment of node 2.
const OTHER: &str = "demo/2";

pub(crate) fn run(options: &DemoOptions) -> Result<(), CommandError> {
    println!("Two nodes of one cluster and their clients, each a process of its own.\n");
    let mut stage = Stage::set()?;
    for node in &stage.nodes {
        println!("  node {} at {:<18} {}", node.number, node.address.to_string(), node.core);
    }
    let [mut first, mut second] = [stage.client(1)?, stage.client(2)?];
    show_a_value_travel(&mut first, &mut second)?;
    show_latencies(&mut first, &mut second, options.measure_ms)?;
    show_killed_client(&stage, &mut second)?;
    show_killed_daemon(&mut stage, &mut first, &mut second)?;
    first.end()?;
    second.end()?;
    stage.strike()?;
    println!("\nTry next:");
    println!("  cargo run --release --bin ddssd                              a node that stays");
    println!("  cargo run --release --bin ddss -- allocate scores 4096       a segment on it");
    println!("  cargo run --release --bin ddss -- put scores hello           and bytes into it");
    println!("  cargo bench -p ddss-benches --bench get -- --quick           figures beside the raw limits");
    Ok(())
}

fn show_a_value_travel(first: &mut Actor, second: &mut Actor) -> Result<(), CommandError> {
    first.ask(&format!("allocate {SHARED}"), "allocate")?;
    second.ask(&format!("allocate {OTHER}"), "allocate")?;
    let put = first.ask(&format!("fill {SHARED} 42"), "fill")?;
    println!(
        "\n  node 1: a client put {} bytes into the new segment \"{SHARED}\" → version {}",
        put["bytes"], put["version"]
    );
    let get = second.ask(&format!("get {SHARED}"), "get")?;
    if get["number"] != 42 || get["version"] != put["version"] {
        return Err(CommandError::Demo(format!("node 2 got {get} after node 1 had put {put}")));
    }
    println!(
        "  node 2: a client got the same {}, version {}, over TCP ({:.0} µs, the first)",
        get["bytes"],
        get["version"],
        number(&get, "us")
    );
    Ok(())
}

/// A line for each strategy as soon as it was measured.
fn show_latencies(first: &mut Actor, second: &mut Actor, ms: u64) -> Result<(), CommandError> {
    println!("\n  half of the calls take less than, in µs (the home of the segment is node 1)");
    println!("  {:<8}{:>27}   {:>27}", "", "from node 1", "from node 2");
    let heads = ["get 8", "put 8", "get 4096"].map(|head| format!("{head:>9}")).concat();
    println!("  {:<8}{heads}   {heads}{:>11}", "strategy", "get 8 p99");
    for strategy in Strategy::ALL {
        let name = strategy.to_string();
        live(&format!("  {name:<8}  measuring ..."));
        let line = format!("measure {SHARED} {name} {ms}");
        let here = first.ask(&line, "measure")?;
        let there = second.ask(&line, "measure")?;
        let cells =
            |row: &Value| ["get_us", "put_us", "page_us"].map(|key| format!("{:>9.2}", number(row, key))).concat();
        live("");
        println!("  {name:<8}{}   {}{:>11.2}", cells(&here), cells(&there), number(&there, "p99_us"));
    }
    println!("  (nodes and clients share this machine's cores: four processes want {})", cores());
    Ok(())
}

fn show_killed_client(stage: &Stage, second: &mut Actor) -> Result<(), CommandError> {
    let mut witnesses = Witnesses::call(stage)?;
    let mut writer = stage.client(1)?;
    writer.ask(&format!("write {SHARED}"), "writing")?;
    std::thread::sleep(Duration::from_millis(100));
    writer.kill()?;
    println!("\n  node 1: killed a client (SIGKILL) in the middle of its puts");
    let get = second.ask(&format!("get {SHARED}"), "get")?;
    let Some(put) = get["number"].as_u64() else {
        return Err(CommandError::Demo("the kill left a torn value".to_owned()));
    };
    println!("  node 2: got its put number {put}, version {}, whole", get["version"]);
    witnesses.dismiss("the kill")
}

fn show_killed_daemon(stage: &mut Stage, first: &mut Actor, second: &mut Actor) -> Result<(), CommandError> {
    let put = first.ask(&format!("fill {SHARED} 4711"), "fill")?;
    let mut witnesses = Witnesses::call(stage)?;
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    stage.kill_node(1)?;
    println!("\n  node 1: put version {}, killed the daemon (SIGKILL), started it again", put["version"]);
    stage.start_node(1)?;
    let ready = began.elapsed().as_secs_f64() * 1e3;
    let here = first.ask(&format!("get {SHARED}"), "get")?;
    let there = second.ask(&format!("get {SHARED}"), "get")?;
    for (node, get) in [(1, &here), (2, &there)] {
        if get["number"] != 4711 || get["version"] != put["version"] {
            return Err(CommandError::Demo(format!("node {node} got {get} after the daemon had acknowledged {put}")));
        }
        let after = ready + number(get, "ms");
        println!("  node {node}: got version {} after {after:.0} ms, by the same handle as before", get["version"]);
    }
    witnesses.dismiss("that")
}

/// Clients that go on with their work while others die.
struct Witnesses([(u16, Actor); 2]);

impl Witnesses {
    fn call(stage: &Stage) -> Result<Self, CommandError> {
        let witness = |node, name: &str| -> Result<_, CommandError> {
            let mut client = stage.client(node)?;
            client.ask(&format!("steady {name}"), "steady")?;
            Ok((node, client))
        };
        Ok(Self([witness(1, SHARED)?, witness(2, OTHER)?]))
    }

    fn dismiss(&mut self, what: &str) -> Result<(), CommandError> {
        for (node, client) in &mut self.0 {
            let seen = client.ask("enough", "enough")?;
            if seen["failed"] != 0 || seen["torn"] != 0 {
                return Err(CommandError::Demo(format!("a client of node {node} suffered from {what}: {seen}")));
            }
            println!(
                "  node {node}: {} gets of another client meanwhile: none failed, longest {:.1} ms",
                seen["calls"],
                number(&seen, "longest_ms")
            );
        }
        Ok(())
    }
}

/// Shows what is going on, where somebody watches; the next thing shown takes its place.
fn live(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        // Whether it can be seen is not what the demonstration is about.
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
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
