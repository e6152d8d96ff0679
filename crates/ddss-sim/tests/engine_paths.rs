//! Equivalence of the fast path (`crates/ddss-engine/src/home/fast_path.rs`) and the general path of the engine.

use ddss_sim::{EnginePath, Report, Scenario, run};

fn with(seed: u64, engine_path: EnginePath) -> Report {
    run(seed, &Scenario { operations: 600, engine_path, ..Scenario::default() })
}

#[test]
fn fast_and_general_path_give_the_same_history() {
    // A new reason to wait or to refuse must apply on both paths.
    for seed in 1..=24 {
        let long = with(seed, EnginePath::General);
        assert_eq!(long.violations, Vec::<String>::new(), "seed {seed}");
        assert!(long.done > 100, "seed {seed} did too little: {long:?}");
        for engine_path in [EnginePath::Fast, EnginePath::BySeed] {
            // The calls, the bytes of the replies and their times are equal.
            assert_eq!(with(seed, engine_path), long, "seed {seed}, {engine_path:?}");
        }
    }
}
