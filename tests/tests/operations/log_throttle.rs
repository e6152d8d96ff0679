//! Throttled logging while a condition persists: a line now and then for each condition, with the number of suppressed
//! lines.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Placement, Spec};
use ddss_testkit::{Daemon, DaemonOptions, run_ddss};
use serde_json::Value;

/// Time of observation while a member is away.
const WATCHED: Duration = Duration::from_secs(12);
/// Lines of one condition that are permitted at once, when it begins.
const BURST: usize = 10;
const SEGMENTS: usize = 60;
/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts three nodes, with segments on two of them each, in sync.
fn cluster() -> Vec<Daemon> {
    let options = |node| DaemonOptions::new(node).unwrap().argument("--log-json");
    let mut daemons = vec![options(1).clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(options(node).joins(daemons[0].listen()).start().unwrap());
    }
    until("all are alive", || {
        let status = status(&daemons[0]);
        let alive = |node: &Value| node["alive"] == true && node["voter"] == true;
        status["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3 && nodes.iter().all(alive))
    });
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemons[0].folder()).timeout(Duration::from_secs(20)))
            .unwrap();
    for index in 0..SEGMENTS {
        let spec = Spec::new(4096).copies(2).placement(Placement::RoundRobin);
        client.segment(&format!("mirrored-{index}")).allocate(spec).unwrap();
    }
    until("all are in sync", || {
        (0..SEGMENTS).all(|index| {
            let stat = json(&daemons[0], &["stat", &format!("mirrored-{index}")]);
            stat["replica"]["state"] == "in sync"
        })
    });
    daemons
}

fn json(daemon: &Daemon, words: &[&str]) -> Value {
    let said = run_ddss(daemon.folder(), &[words, &["--json"]].concat(), "").unwrap();
    serde_json::from_str(&said.out).unwrap_or(Value::Null)
}

fn status(daemon: &Daemon) -> Value {
    json(daemon, &["cluster", "status"])
}

fn until(what: &str, mut good: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !good() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Counts the log lines from line `from` on, by text and not by object.
fn counted(log: &str, from: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.lines().skip(from) {
        // The last message of a daemon is plain text.
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            *counts.entry(line.to_owned()).or_default() += 1;
            continue;
        };
        let target = line["target"].as_str().unwrap();
        let message = line["fields"]["message"].as_str().unwrap_or_default();
        // One condition causes messages from many parts of the Raft library.
        let words = if target.starts_with("openraft") { "openraft" } else { message };
        *counts.entry(words.to_owned()).or_default() += 1;
    }
    counts
}

/// Observes the log of these daemons: after the first lines it grows by at most a line a second for each condition.
/// Counts the suppressed lines.
fn watch(daemons: &mut [Daemon], change: impl FnOnce(&mut [Daemon]) -> usize) -> usize {
    let before: Vec<usize> = daemons.iter_mut().map(|daemon| daemon.process().stderr().lines().count()).collect();
    let began = Instant::now();
    let looked_at = change(daemons);
    thread::sleep(WATCHED);
    let seconds = began.elapsed().as_secs() as usize + 1;
    let mut left_out = 0;
    for (daemon, from) in daemons[..looked_at].iter_mut().zip(before) {
        let counts = counted(&daemon.process().stderr(), from);
        let most = BURST + seconds;
        assert!(counts.values().all(|&count| count <= most), "more than {most} in {seconds} s: {counts:#?}");
        left_out += counts.get("suppressed repeated log lines").copied().unwrap_or_default();
    }
    left_out
}

// If this failed, a member that is away over night would fill the disks of the others with log lines.
#[test]
fn dead_member_with_replicas_logs_few_lines_and_then_none() {
    let mut daemons = cluster();
    let left_out = watch(&mut daemons, |daemons| {
        daemons[2].kill().unwrap();
        2
    });
    assert!(left_out > 0, "what was left out is counted");
    // The replicas are settled at some time; then a dead member costs nothing.
    until("the logs are quiet", || {
        let before = log_lines(&mut daemons[..2]);
        thread::sleep(WATCHED);
        before == log_lines(&mut daemons[..2])
    });
}

fn log_lines(daemons: &mut [Daemon]) -> usize {
    daemons.iter_mut().map(|daemon| daemon.process().stderr().lines().count()).sum()
}

// If this failed, each upgrade would raise an alarm.
#[test]
fn planned_restart_logs_no_error() {
    let mut daemons = cluster();
    let is_error = |line: &&str| line.contains("\"level\":\"ERROR\"");
    for node in 0..daemons.len() {
        daemons[node].process().terminate().unwrap();
        daemons[node].process().wait(PATIENCE).unwrap().expect("a daemon ends by its signal");
        let log = daemons[node].process().stderr();
        assert!(!log.lines().any(|line| is_error(&line)), "node {}: {log}", node + 1);
        daemons[node].restart().unwrap();
        // Longer than a leader may be silent.
        thread::sleep(WATCHED / 3);
        until("all are alive again", || {
            daemons.iter().all(|daemon| {
                let status = status(daemon);
                let nodes = status["nodes"].as_array().into_iter().flatten();
                status["majority"] == true
                    && nodes.filter(|node| node["alive"] == true && node["voter"] == true).count() == 3
            })
        });
    }
    for daemon in &mut daemons {
        let log = daemon.process().stderr();
        assert!(!log.lines().any(|line| is_error(&line)), "{log}");
    }
}

// If this failed, a removed member that keeps running would fill all disks.
#[test]
fn removed_member_logs_at_most_one_line_a_second() {
    let mut daemons = cluster();
    watch(&mut daemons, |daemons| {
        let mut said = run_ddss(daemons[0].folder(), &["cluster", "remove", "3"], "").unwrap();
        if said.code != 0 {
            said = run_ddss(daemons[0].folder(), &["cluster", "remove", "3", "--force"], "").unwrap();
        }
        assert_eq!(said.code, 0, "{said:?}");
        daemons.len()
    });
}
