//! The short way through the engine (`crates/ddss-core/src/engine/home/fast_path.rs`) against the long one.

use ddss_sim::{Plan, Report, Ways, run};

fn with(seed: u64, ways: Ways) -> Report {
    run(seed, &Plan { operations: 600, ways, ..Plan::default() })
}

#[test]
fn both_ways_through_the_engine_give_the_same_history() {
    // If this broke, what a call does would depend on whether the engine could take its short cut: a new reason to wait, or
    // to refuse, would hold on one of the ways and be passed by on the other.
    for seed in 1..=24 {
        let long = with(seed, Ways::Long);
        assert_eq!(long.violations, Vec::<String>::new(), "seed {seed}");
        assert!(long.done > 100, "seed {seed} did too little: {long:?}");
        for ways in [Ways::Short, Ways::BySeed] {
            // Same calls, same answers to the last bit, same moments.
            assert_eq!(with(seed, ways), long, "seed {seed}, {ways:?}");
        }
    }
}
