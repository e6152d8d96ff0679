//! Every example runs and verifies its own result: against real daemons, and alone as from a fresh clone.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::{Command, Output};

use ddss_testkit::{Daemon, example, repo_lints};

/// Last line of each example.
const EXAMPLES: &[(&str, &str)] = &[
    ("shared_counter", "the counter says 8000, as it has to"),
    ("embedded_node", "1000 visits in a node of this process, which left nothing behind"),
    ("feature_table", "saw every row in its last round, version 10000, and no row in halves"),
    ("leader_lock", "3 leaders, one after the other, each with a greater token; a late put was refused"),
    ("leader_election", "a dead one and one that hung were replaced, and the latter noticed"),
    ("checkpoint", "3000 steps in 4 lives: the same result as in one"),
    ("async_tokio", "a task gave up waiting for a lock, and left nothing behind"),
    ("watcher", "2000 event streams of one client saw the last of 20 events, with no wake in vain"),
    ("feature_flags", "6 services on two nodes saw all 40 flags on, each change whole"),
    ("session_cache", "500 sessions, each begun once, with all requests of both services"),
    ("rate_limiter", "4 services on two nodes: each token of 20 customers admitted one request"),
    (
        "shared_matrix",
        "48 blocks by workers on two nodes, the one of a dead worker recovered, and the product is right",
    ),
    ("heat_stencil", "the plate equals that of one process, bit by bit"),
    ("work_queue", "60 jobs by two workers, one of them killed: every job has its result"),
    ("images", "three processes say that the flow has ended"),
    ("ten_thousand_tasks", "10000 tasks of one client passed a gate at once: 2000 jobs, each done by one of them"),
    ("axum_service", "200 visits through two services: both count all of them"),
];

fn run(name: &str, daemons: Option<&[Daemon; 2]>) -> String {
    let mut command = Command::new(example(name).unwrap());
    command.args(daemons.into_iter().flatten().map(Daemon::folder));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{name}: {status}\n{out}{err}");
    out.into_owned()
}

// If this failed, a documented example would not work, or not even start.
#[test]
fn every_example_verifies_its_result_on_its_own_nodes() {
    let daemons = Daemon::pair().unwrap();
    for (name, last) in EXAMPLES {
        let words = run(name, Some(&daemons));
        assert!(words.contains(last), "{name} said\n{words}");
    }
    let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(daemons[0].folder())).unwrap();
    assert_eq!(client.list("").count(), 0, "an example left a segment behind");
    // The first command that a newcomer tries names no daemon.
    drop(daemons);
    let words = run("shared_counter", None);
    assert!(words.contains(EXAMPLES[0].1), "{words}");
    let output = Command::new(example("shared_counter").unwrap()).arg("/nowhere").output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("this example runs on 2 nodes"), "{why}");
}

// If this failed, an example would be untested or undocumented.
#[test]
fn every_example_is_tested_and_documented() {
    let folder = repo_lints::workspace_root().join("examples");
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut found: Vec<String> = [folder.clone(), folder.join("dsm"), folder.join("river")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    let mut run: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
    found.sort_unstable();
    run.sort_unstable();
    assert_eq!(found, run);
    for name in run {
        assert!(page.contains(&format!("--example {name}")), "{name} is not on the page");
    }
}
