//! Large puts on nodes with too little memory: each is on both nodes when it is acknowledged, or it fails.

use ddss_sim::{Scenario, run};

#[test]
fn put_that_the_replica_refuses_fails_or_waits_and_is_never_acknowledged_with_one_copy() {
    // Otherwise the death of one node would lose an acknowledged put, although no fault came before.
    let plan = Scenario { operations: 2000, ..Scenario::scarce() };
    let (mut refused, mut done, mut checked) = (0, 0, 0);
    for seed in 1..=40 {
        let report = run(seed, &plan);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        refused += report.large_puts_refused;
        done += report.large_puts_with_copies;
        checked += report.copies_checked;
    }
    println!("{refused} refused, {done} done, {checked} checked");
    assert!(refused > 10 && done > 300 && checked > 5000, "{refused} refused, {done} done, {checked} checked");
}
