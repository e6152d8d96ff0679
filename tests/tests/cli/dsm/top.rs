//! `ddss dsm top`: counts of ranks that work, and their pages.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::Child;
use std::time::{Duration, Instant};

use ddss::Client;
use ddss_dsm::{Homes, Launch, Space};
use ddss_testkit::{Daemon, repo_lints, schema_complaints};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::run::{TASK, ddss, ranks_of, said};

const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds with two barriers each.
const ROUNDS: u64 = 5;
/// Elements of a page.
const EACH: usize = 512;

/// Plays a rank, if this process is one: both write the second page of a region, and rank 0 its third.
fn is_rank() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let launch = Launch::from_environment().unwrap();
    let client = Client::connect().unwrap();
    let mut space = Space::join(&client, &launch.space, launch.options(64 << 10).timeout(PATIENCE)).unwrap();
    if task == "idle" {
        space.wait(0).unwrap();
    }
    space.region::<u8>("first", 1, Homes::FirstTouch).unwrap();
    let cells = space.region::<u64>("cells", 2 * EACH, Homes::FirstTouch).unwrap();
    for round in 1..=ROUNDS {
        cells.put(&space, usize::from(launch.rank), round).unwrap();
        if launch.rank == 0 {
            cells.put(&space, EACH, round).unwrap();
        }
        space.barrier().unwrap();
        assert_eq!(cells.get(&space, EACH).unwrap(), round);
        space.barrier().unwrap();
    }
    space.lock(7).unwrap().unlock().unwrap();
    // Until the test has seen enough.
    space.wait(0).unwrap();
    true
}

/// A run, which is killed when this value is dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// If this failed, nobody would find the pages that slow a program down, or would find others.
#[test]
fn top_shows_counts_of_ranks_and_names_the_pages_that_they_share() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "top_shows_counts_of_ranks_and_names_the_pages_that_they_share";
    let mut run = Run(ranks_of("dsm::top", &daemon, &["-n", "2", "--space", "heat"], test, "work").spawn().unwrap());
    let schema = repo_lints::workspace_root().join("crates/ddss-cli/schemas/dsm-top.json");
    let read = |words: &[&str]| -> Value {
        let (code, out, err) = said(&mut ddss(&daemon, words));
        assert_eq!(code, Some(0), "{err}");
        let shown: Value = serde_json::from_str(&out).unwrap();
        let complaints = schema_complaints(&schema, &shown);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        shown
    };
    let end = Instant::now() + PATIENCE;
    // A rank has two locks when it has opened both regions, and a third one behind its work.
    let is_done = |rank: &Value| rank["locks"] == 3 && rank["barriers"] == 2 * ROUNDS;
    let shown = loop {
        let shown = read(&["dsm", "top", "--pages", "--json"]);
        let ranks = shown[0]["living"].as_array().cloned().unwrap_or_default();
        if ranks.len() == 2 && ranks.iter().all(is_done) {
            // The rows with pages follow the counts in the same round.
            break read(&["dsm", "top", "heat", "--pages", "--json"]);
        }
        assert!(Instant::now() < end, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let space = &shown[0];
    assert_eq!((&space["space"], &space["ranks"]), (&json!("heat"), &json!(2)));
    assert_eq!(
        space["shared"],
        json!([{ "page": 1, "count": ROUNDS, "writers": [0, 1], "region": "cells", "elements": [0, EACH] }])
    );
    let third = |page: &&Value| page["rank"] == 1 && page["page"] == 2;
    let fetched = space["fetched"].as_array().unwrap().iter().find(third).unwrap();
    assert_eq!((&fetched["count"], &fetched["elements"]), (&json!(ROUNDS), &json!([EACH, 2 * EACH])));
    let ranks = space["living"].as_array().unwrap();
    assert!(
        ranks.iter().all(|rank| rank["pages"].as_u64() > Some(0) && rank["messages"].as_u64() > Some(0)),
        "{shown}"
    );
    // Eight bytes at most change in a round, and rank 0 writes two elements.
    assert!(ranks[0]["diffs"].as_u64() >= Some(2 * ROUNDS) && ranks[1]["diffs"].as_u64() >= Some(ROUNDS), "{shown}");
    assert!(
        ranks[1]["fetches"].as_u64() >= Some(ROUNDS) && ranks[1]["invalidations"].as_u64() >= Some(ROUNDS),
        "{shown}"
    );
    let plain = read(&["dsm", "top", "--json"]);
    assert_eq!((&plain[0]["shared"], &plain[0]["fetched"]), (&Value::Null, &Value::Null));
    let (code, out, err) = said(&mut ddss(&daemon, &["dsm", "top", "--pages"]));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("heat: 2 of 2 ranks live\n"), "{out}");
    let line = out.lines().rfind(|line| line.contains("cells")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["5", "0", "1", "1", "cells", "0..512"], "{out}");
    // The next ranks of this name have no pages of those that were killed.
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    run = Run(ranks_of("dsm::top", &daemon, &["-n", "2", "--space", "heat"], test, "idle").spawn().unwrap());
    let end = Instant::now() + PATIENCE;
    loop {
        let shown = read(&["dsm", "top", "heat", "--pages", "--json"]);
        let ranks = shown[0]["living"].as_array().unwrap();
        let are_new = ranks.len() == 2 && ranks.iter().all(|rank| rank["locks"] == 0);
        if are_new && shown[0]["shared"] == json!([]) && shown[0]["fetched"] == json!([]) {
            break;
        }
        assert!(Instant::now() < end, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&run.0), Signal::INT).unwrap();
    run.0.wait().unwrap();
    let (code, _, err) = said(&mut ddss(&daemon, &["dsm", "top", "heat"]));
    assert_eq!((code, err.as_str()), (Some(1), "ddss: no space heat: `ddss dsm ls` lists them\n"));
}
