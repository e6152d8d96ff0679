//! Homes free the expired entries of maps: by calls, and by themselves.

use ddss_sim::{Scenario, run};

#[test]
fn expired_entries_are_freed_and_no_other_ones() {
    // Otherwise no campaign would say anything about sweeps beside changes, faults and takeovers.
    let plan = Scenario { operations: 4000, segments: 2, replicated: 1, tables: 6, ..Scenario::default() };
    let (mut swept, mut takeovers) = (0, 0);
    for seed in 1..=20 {
        let report = run(seed, &plan);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        (swept, takeovers) = (swept + report.entries_swept, takeovers + report.takeovers);
    }
    println!("{swept} entries, {takeovers} takeovers");
    assert!(swept > 100 && takeovers > 5, "{swept} entries, {takeovers} takeovers");
}
