//! The leadership moves to a chosen voter, and away from a leader that stops.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, SetOnDrop, run_ddss};
use serde_json::Value;

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats a check until it holds.
fn until<T>(what: &str, mut good: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match good() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < end, "{what}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn status(daemon: &Daemon) -> Value {
    let answered = run_ddss(daemon.folder(), &["cluster", "status", "--json"], "").unwrap();
    serde_json::from_str(&answered.out).unwrap_or(Value::Null)
}

/// Waits until a node sees so many live nodes and voters; returns the leader.
fn until_whole(daemon: &Daemon, nodes: usize, voters: usize) -> u64 {
    until("the cluster is whole", || {
        let seen = status(daemon);
        let reports = seen["nodes"].as_array().cloned().unwrap_or_default();
        let count = |key: &str| reports.iter().filter(|report| report[key] == true).count();
        match seen["leader"].as_u64() {
            Some(leader) if (count("alive"), count("voter")) == (nodes, voters) => Ok(leader),
            _ => Err(seen.to_string()),
        }
    })
}

fn cluster(count: u16) -> Vec<Daemon> {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=count {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    for daemon in &daemons {
        until_whole(daemon, count.into(), 3);
    }
    daemons
}

fn lead(asked: &Daemon, node: u64) -> Result<u64, String> {
    let answered = run_ddss(asked.folder(), &["cluster", "lead", &node.to_string(), "--json"], "").unwrap();
    let answer: Value = serde_json::from_str(&answered.out).unwrap_or(Value::Null);
    answer["leader"].as_u64().filter(|_| answered.code == 0).ok_or(answered.err)
}

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20))).unwrap()
}

fn allocate_works(daemon: &Daemon, name: &str) {
    client(daemon).segment(name).allocate(Spec::new(64)).unwrap().release().unwrap();
}

// If this failed, an operator could take a leader down only by a pause of the whole cluster, or would wait for a node that
// cannot lead.
#[test]
fn leadership_moves_to_the_named_voter() {
    let mut daemons = cluster(4);
    for (asked, next) in [(4, 2), (1, 3), (3, 3), (2, 1), (1, 2)] {
        assert_eq!(lead(&daemons[asked - 1], next), Ok(next), "asked at node {asked}");
        // A majority follows it at once, wherever the name is made.
        allocate_works(&daemons[asked - 1], "name");
        for daemon in &daemons {
            until("the leader is seen", || {
                let seen = status(daemon);
                if seen["leader"] == next { Ok(()) } else { Err(seen.to_string()) }
            });
        }
    }
    for (node, why) in [(4, "does not vote"), (9, "is no member")] {
        let refused = lead(&daemons[0], node).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    daemons[0].kill().unwrap();
    until("the dead node is refused", || match lead(&daemons[3], 1) {
        Err(why) if why.contains("does not answer") || why.contains("does not vote") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(status(&daemons[3])["leader"], 2, "a refusal changes nothing");
}

// If this failed, a successor or a leader that dies in the middle would leave a cluster without leader.
#[test]
fn interrupted_hand_over_ends_with_a_leader() {
    let mut daemons = cluster(3);
    assert_eq!(lead(&daemons[0], 1), Ok(1));
    daemons[1].pause().unwrap();
    // It has answered just now: the hand-over begins.
    let stuck = lead(&daemons[2], 2);
    allocate_works(&daemons[2], "without-successor");
    daemons[1].resume().unwrap();
    assert!(stuck.is_err(), "{stuck:?}");
    for delay in 0..4 {
        let leader = until_whole(&daemons[2], 3, 3);
        let (leader, next) = (leader as usize - 1, leader % 3 + 1);
        let asked = (leader + 2) % 3;
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lead(&daemons[asked], next));
            std::thread::sleep(Duration::from_millis(5 + 4 * delay));
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(daemons[leader].pid() as i32).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
            // Refused, or done: either is the truth by then.
            let _ = waits.join().unwrap();
        });
        allocate_works(&daemons[asked], "without-leader");
        daemons[leader].restart().unwrap();
    }
}

// If this failed, each planned restart of the leader would stop all names of the cluster for seconds, and fail calls.
#[test]
fn stopped_leader_hands_over_without_a_failed_allocate() {
    const STOPS: usize = 5;
    let mut daemons = cluster(3);
    let mut handed_over = 0;
    for stop in 0..STOPS {
        let leader = until_whole(&daemons[stop % 3], 3, 3) as usize - 1;
        let (is_over, allocated) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        // With the timeout of each client: an election would take most of it.
        let of = |other: usize| ConnectOptions::new().directory(daemons[other].folder());
        let clients = others.map(|other| Client::connect_with(of(other)).unwrap());
        std::thread::scope(|scope| {
            for (index, client) in clients.iter().enumerate() {
                let (is_over, allocated) = (&is_over, &allocated[index]);
                scope.spawn(move || {
                    let _ends = SetOnDrop(is_over);
                    while !is_over.load(Ordering::Acquire) {
                        client.segment(&format!("of-{index}")).allocate(Spec::new(64)).unwrap().release().unwrap();
                        allocated.fetch_add(1, Ordering::AcqRel);
                    }
                });
            }
            let _ends = SetOnDrop(&is_over);
            let more = |count: u64| {
                let before = allocated.each_ref().map(|allocated| allocated.load(Ordering::Acquire));
                until("more names are made", || {
                    let made = || allocated.iter().zip(before).map(|(now, then)| now.load(Ordering::Acquire) - then);
                    if is_over.load(Ordering::Acquire) || made().all(|made| made >= count) {
                        Ok(())
                    } else {
                        Err(String::new())
                    }
                });
            };
            more(5);
            daemons[leader].process().end().unwrap();
            more(5);
        });
        let log = daemons[leader].process().stderr();
        handed_over += usize::from(log.contains("handed the leadership over"));
        assert!(!log.contains("ERROR"), "{log}");
        daemons[leader].restart().unwrap();
    }
    // A machine that stands still for half a second is not the daemon's fault.
    assert!(handed_over >= STOPS - 1, "{handed_over} of {STOPS}");
}
