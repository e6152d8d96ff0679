//! Replicated segments are in sync again after the last fault; `Simulator::restore_redundancy` checks it in each run.

use ddss_sim::{Scenario, run};

/// Runs seeds under which a replicated segment once stayed on one node forever.
fn assert_in_sync_after_faults(seeds: &[u64]) {
    for &seed in seeds {
        assert_eq!(run(seed, &Scenario::default()).violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn home_that_restarts_without_memory_becomes_the_replica() {
    // Otherwise each reboot would leave segments on one node, and the next reboot would lose them.
    assert_in_sync_after_faults(&[1, 5, 10, 17, 22]);
}

#[test]
fn another_node_gets_the_replica_when_one_is_full() {
    // Otherwise one full node would leave segments without a replica.
    assert_in_sync_after_faults(&[3, 6, 12, 15, 27]);
}

#[test]
fn large_puts_reach_replicas_between_faults() {
    // Otherwise no campaign would say anything about the parts that a home sends to its replica.
    let plan = Scenario { operations: 2000, ..Scenario::default() };
    let (mut puts, mut takeovers) = (0, 0);
    for seed in 1..=30 {
        let report = run(seed, &plan);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        (puts, takeovers) = (puts + report.large_puts_with_copies, takeovers + report.takeovers);
    }
    assert!(puts > 50 && takeovers > 5, "{puts} large puts, {takeovers} takeovers");
}

#[test]
fn home_learns_that_a_replica_was_dropped() {
    // Otherwise a segment would count as in sync although its replica is empty.
    assert_in_sync_after_faults(&[205, 250, 353]);
}
