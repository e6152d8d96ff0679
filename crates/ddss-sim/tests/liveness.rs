//! What has to come true when faults end: `World::restore_redundancy` looks for it at the end of each run.

use ddss_sim::{Plan, run};

/// Runs seeds under which a mirrored segment once stayed on one node for good.
fn all_are_in_sync_again(seeds: &[u64]) {
    for &seed in seeds {
        assert_eq!(run(seed, &Plan::default()).violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_home_that_comes_back_without_its_memory_becomes_the_mirror() {
    // If this broke, each reboot would leave segments on one node, and the next one would lose them.
    all_are_in_sync_again(&[1, 5, 10, 17, 22]);
}

#[test]
fn another_node_is_asked_when_one_has_no_room_for_a_mirror() {
    // If this broke, one full node would leave segments without a mirror for which others have room.
    all_are_in_sync_again(&[3, 6, 12, 15, 27]);
}

#[test]
fn a_node_that_gives_its_copy_up_tells_the_home() {
    // If this broke, a segment would be called in sync while its mirror has nothing of it.
    all_are_in_sync_again(&[205, 250, 353]);
}
