//! Segments of which no copy is left: their names are given up.

use super::*;
use ddss_testkit::run_ddss;

/// Starts three nodes, of which the first leads, and a segment whose home is the second and whose replica is at the third.
fn with_segment() -> (Vec<Daemon>, String) {
    let daemons = three(&[]);
    let client = patient(&daemons[1]);
    // The choice of the replica's node follows the name.
    for name in (0..).map(|number| format!("copied/{number}")) {
        let segment = client.segment(&name).allocate(Spec::new(4096).copies(2)).unwrap();
        segment.put(0, &pattern(1, 4096)).unwrap();
        if in_sync(&daemons[0], &name) == (2, 3) {
            return (daemons, name);
        }
        segment.release().unwrap();
    }
    unreachable!()
}

fn empty(daemon: &mut Daemon) {
    daemon.kill().unwrap();
    std::fs::remove_dir_all(daemon.folder().join("memory")).unwrap();
}

/// Allocates a segment of that name as soon as it is free.
fn until_free(daemon: &Daemon, name: &str) {
    until("the name is free", || {
        let made = patient(daemon).segment(name).allocate(Spec::new(64));
        made.map(drop).map_err(|error| error.to_string())
    });
}

fn lost(daemons: &[Daemon]) -> u64 {
    let count = |daemon: &Daemon| {
        let all = ddss_ipc::read_all_statuses(daemon.folder()).unwrap();
        all.iter().map(|status| status.counter(ddss_core::status::Counter::SegmentsLost)).sum::<u64>()
    };
    daemons.iter().map(count).sum()
}

// If this failed, the name of a segment that no node has any more would be taken for ever.
#[test]
fn name_of_a_segment_without_any_copy_is_given_up() {
    for order in [[1, 2], [2, 1]] {
        let (mut daemons, name) = with_segment();
        daemons[1..].iter_mut().for_each(empty);
        order.into_iter().for_each(|node| daemons[node].restart().unwrap());
        until_free(&daemons[0], &name);
        assert_eq!(lost(&daemons), 1, "{order:?}");
        let told = daemons[2].process().stderr();
        assert!(told.contains("a replicated segment is lost") && told.contains(&name), "{told}");
    }
}

// If this failed, not even the removal of its nodes would free the name of a lost segment.
#[test]
fn removal_of_the_last_copy_frees_its_name() {
    let (mut daemons, name) = with_segment();
    daemons[2].kill().unwrap();
    empty(&mut daemons[1]);
    daemons[1].restart().unwrap();
    until("the third node is out", || {
        let removed = run_ddss(daemons[0].folder(), &["cluster", "remove", "3"], "").unwrap();
        // The operator hears what the next death would cost.
        assert!(removed.code != 0 || removed.err.contains("two nodes are left, of which one votes"), "{removed:?}");
        if removed.code == 0 { Ok(()) } else { Err(removed.err) }
    });
    until_free(&daemons[0], &name);
}
