//! Short checkpoint campaigns, in which processes are killed at random. The long campaign is `cargo run --release -p
//! ddss-apps --bin checkpoint`.

use std::time::Duration;

use ddss_apps::checkpoint::{Campaign, Where};

fn run(place: Where, processes: usize) {
    let campaign = Campaign {
        program: env!("CARGO_BIN_EXE_checkpoint").into(),
        processes,
        together: 3,
        place,
        bytes: 3000,
        commits: 6000,
        kills: 20,
        kill_every: Duration::from_millis(20),
        seed: 4,
    };
    let outcome = campaign.run().expect("the campaign runs");
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert!(outcome.commits >= campaign.commits && outcome.kills >= campaign.kills, "too little happened: {outcome:?}");
    let reported = outcome.reported;
    assert!(reported.conflicts > 0 && reported.restarts > reported.conflicts, "too little happened: {reported:?}");
}

// Otherwise a process that restarts on its node could continue from a state that no process committed.
#[test]
fn every_restart_on_one_node_is_from_a_commit() {
    run(Where::OneNode, 6);
}

// Otherwise the same with the state on another node.
#[test]
fn every_restart_from_a_remote_home_is_from_a_commit() {
    run(Where::OneHome, 6);
}

// Otherwise the same with states and processes on all nodes.
#[test]
fn every_restart_over_all_nodes_is_from_a_commit() {
    run(Where::Spread, 6);
}
