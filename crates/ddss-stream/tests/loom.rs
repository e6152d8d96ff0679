//! Every interleaving of the cursors and the sleep protocol, and the proof that each ordering is needed.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-stream --target-dir target/loom --test loom
//! ```

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use ddss_stream::loom_model as model;

#[test]
fn values_arrive_in_order_and_sleepers_are_woken() {
    // If this broke, a read would return bytes that were not written, or a stream would hang.
    model::values_arrive_in_order_and_sleepers_are_woken();
}

#[test]
fn values_of_all_phases_arrive_in_order() {
    // If this broke, a reader would take ring bytes before TCP bytes, or the other way round.
    model::values_of_all_phases_arrive_in_order();
}

#[test]
fn each_ordering_is_needed() {
    let of_ring = ["publish", "take", "free", "reuse", "bell_fence", "rest_fence"];
    let of_phases = ["switch", "turn"];
    let all = of_ring.map(|weak| ("values_arrive_in_order_and_sleepers_are_woken", weak));
    for (model, weak) in all.into_iter().chain(of_phases.map(|weak| ("values_of_all_phases_arrive_in_order", weak))) {
        let failed = Command::new(std::env::current_exe().unwrap())
            .args([model, "--exact", "--test-threads=1"])
            .env("DDSS_WEAKEN", weak)
            .output()
            .unwrap();
        assert!(!failed.status.success(), "the model holds without {weak}");
    }
}
