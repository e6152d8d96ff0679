//! Large puts into replicated segments, whose home or replica is killed: after the takeover the segment has the
//! complete old or new value, and an acknowledged put is never lost.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, Placement, PutOptions, ReplicationInfo, Segment, Spec, Version};
use ddss_testkit::{Daemon, DaemonOptions};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(90);
const BYTES: usize = 6 << 20;
/// The share of one client is a quarter of the pool.
const POOL_BYTES: u64 = 8 * BYTES as u64;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

/// Repeats a call until it succeeds: calls during a takeover end with an error.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < end, "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open(daemon: &Daemon, name: &str) -> Segment {
    let client = client(daemon);
    until("open", || client.segment(name).open().map_err(|error| error.to_string()))
}

/// Returns the indexes of home and replica, once they are in sync.
fn in_sync(daemon: &Daemon, name: &str) -> (usize, usize) {
    let segment = open(daemon, name);
    until("in sync", || {
        let stat = segment.stat().map_err(|error| error.to_string())?;
        if stat.replication != ReplicationInfo::InSync {
            return Err(format!("{:?}", stat.replication));
        }
        Ok((usize::from(stat.home.0) - 1, usize::from(stat.replica.map_or(0, |node| node.0)) - 1))
    })
}

fn cluster() -> Vec<Daemon> {
    cluster_of(POOL_BYTES)
}

fn cluster_of(pool_bytes: u64) -> Vec<Daemon> {
    let options = |node| DaemonOptions::new(node).unwrap().pool_bytes(pool_bytes);
    let mut daemons = vec![options(1).clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(options(node).joins(daemons[0].listen()).start().unwrap());
    }
    daemons
}

/// Allocates a replicated segment, once all nodes are members.
fn allocate(daemons: &[Daemon], name: &str) -> Segment {
    allocate_at(daemons, name, Placement::default())
}

fn allocate_at(daemons: &[Daemon], name: &str, home: Placement) -> Segment {
    let client = client(&daemons[0]);
    let spec = Spec::new(BYTES as u64).copies(2).placement(home);
    let segment = until("allocate", || client.segment(name).allocate(spec).map_err(|error| error.to_string()));
    in_sync(&daemons[0], name);
    segment
}

fn value(seed: u8) -> Vec<u8> {
    vec![seed + 1; BYTES]
}

/// Returns which of these values the segment holds.
fn seed_of(daemon: &Daemon, name: &str, seeds: [u8; 2]) -> u8 {
    let segment = open(daemon, name);
    let found = until("get", || segment.get(..).map_err(|error| error.to_string()));
    let seed = seeds.into_iter().find(|&seed| found[..] == value(seed)[..]);
    seed.unwrap_or_else(|| panic!("version {} is of no put", found.version()))
}

/// Puts a value in a thread of its own, and calls `then` when `sent` bytes are sent. Returns the outcome of the put.
fn put_and<T>(segment: &Segment, seed: u8, sent: u64, then: impl FnOnce() -> T) -> (Result<Version, ErrorKind>, T) {
    let (sender, sent_all) = mpsc::channel();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut progress = |done, _| {
                if done == sent {
                    // The parts may be sent a second time, to another home.
                    let _ = sender.send(());
                }
            };
            segment.put_with(&[(0, &value(seed))], PutOptions::new().progress(&mut progress))
        });
        sent_all.recv().unwrap();
        let done = then();
        (writer.join().unwrap().map(|stamp| stamp.version).map_err(|error| error.kind()), done)
    })
}

// If this failed, the loss of one node would leave half of a large value, or lose one that was acknowledged.
#[test]
fn large_put_survives_death_of_home_at_any_time() {
    const NAME: &str = "large/home";
    let mut daemons = cluster();
    allocate(&daemons, NAME).put(0, &value(0)).unwrap();
    let (mut last, mut is_acknowledged) = (0, 0);
    for round in 1..=5u8 {
        let (home, replica) = in_sync(&daemons[0], NAME);
        let writer = (0..3).find(|&node| node != home && node != replica).unwrap();
        let segment = open(&daemons[writer], NAME);
        // Some homes die while parts arrive, some while the value is on its way to the replica or committed, and one
        // after the acknowledgement.
        let sent = if round == 1 { 2 << 20 } else { BYTES as u64 };
        let is_late = round == 5;
        let (put, ()) = if is_late {
            let put = segment.put(0, &value(last + 1)).map(|stamp| stamp.version).map_err(|error| error.kind());
            (put, daemons[home].kill().unwrap())
        } else {
            put_and(&segment, last + 1, sent, || {
                std::thread::sleep(Duration::from_millis(3 * u64::from(round - 1)));
                daemons[home].kill().unwrap();
            })
        };
        // The replica takes over while the old home is away.
        let found = seed_of(&daemons[replica], NAME, [last, last + 1]);
        assert!(put.is_err() || found == last + 1, "round {round}: an acknowledged put is lost");
        assert_eq!(seed_of(&daemons[writer], NAME, [last, last + 1]), found, "round {round}");
        is_acknowledged += u32::from(put.is_ok());
        last = found;
        daemons[home].restart().unwrap();
    }
    assert!(is_acknowledged > 0, "no put ended well");
    // The nodes have freed the memory of the abandoned puts, and both have the value.
    let (home, replica) = in_sync(&daemons[0], NAME);
    open(&daemons[home], NAME).put(0, &value(99)).unwrap();
    daemons[home].kill().unwrap();
    assert_eq!(seed_of(&daemons[replica], NAME, [98, 99]), 99);
}

// If this failed, the death of a replica would fail large puts, or leave a copy that lacks them.
#[test]
fn large_put_survives_death_of_replica() {
    const NAME: &str = "large/replica";
    let mut daemons = cluster();
    allocate(&daemons, NAME).put(0, &value(0)).unwrap();
    for round in 1..=3u8 {
        let (home, replica) = in_sync(&daemons[0], NAME);
        let segment = open(&daemons[home], NAME);
        let sent = if round == 1 { 2 << 20 } else { BYTES as u64 };
        let (put, ()) = put_and(&segment, round, sent, || {
            std::thread::sleep(Duration::from_millis(3 * u64::from(round - 1)));
            daemons[replica].kill().unwrap();
        });
        assert!(put.is_ok(), "round {round}: {put:?}");
        assert!(segment.get(..).unwrap()[..] == value(round)[..], "round {round}");
        daemons[replica].restart().unwrap();
    }
    let (home, replica) = in_sync(&daemons[0], NAME);
    daemons[home].kill().unwrap();
    assert_eq!(seed_of(&daemons[replica], NAME, [2, 3]), 3, "the copy was made anew");
}

// If this failed, a large put would ignore its condition, or show parts of itself before its end.
#[test]
fn large_put_with_condition_is_one_version_on_both_nodes() {
    const NAME: &str = "large/condition";
    let daemons = cluster();
    let here = allocate(&daemons, NAME);
    let there = open(&daemons[2], NAME);
    let mut seen = Version(0);
    for seed in 1..=4 {
        let writer = if seed % 2 == 0 { &here } else { &there };
        let mut parts = Vec::new();
        let mut note = |done: u64, total: u64| parts.push((done >> 20, total >> 20));
        let options = PutOptions::new().if_version(seen).progress(&mut note);
        let put = writer.put_with(&[(0, &value(seed))], options);
        assert_eq!((put.unwrap().version, parts.len()), (Version(seen.0 + 1), BYTES >> 20));
        let stale = there.put_if(seen, 0, &value(9)).unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        seen = Version(seen.0 + 1);
        for reader in [&here, &there] {
            let found = reader.get(..).unwrap();
            assert!(found.version() == seen && found[..] == value(seed)[..]);
        }
        // A small put in between has the next version.
        seen = here.put(0, &[seed + 1]).unwrap().version;
    }
    let guard = there.lock().unwrap();
    assert_eq!(guard.put(0, &value(7)).unwrap().version.0, seen.0 + 1);
    guard.unlock().unwrap();
    assert!(here.get(..).unwrap()[..] == value(7)[..]);
}

// If this failed, a large put would be acknowledged with one copy while others go on, and one node's death would lose it.
#[test]
fn large_puts_at_the_same_time_leave_every_segment_in_sync() {
    let mut daemons = cluster_of(5 * BYTES as u64 + (BYTES / 3) as u64);
    let names = ["large/1", "large/2", "large/3", "large/4"];
    let home = |index: u16| Placement::Node(ddss::NodeId(index % 3 + 1));
    let segments: [Segment; 4] = std::array::from_fn(|index| allocate_at(&daemons, names[index], home(index as u16)));
    let (mut last, mut acknowledged) = ([0; 4], 0);
    for segment in &segments {
        segment.put(0, &value(0)).unwrap();
    }
    for round in 1..=4u8 {
        let put = |segment: &Segment| (segment.put(0, &value(round)), segment.stat().unwrap().replication);
        let ended = std::thread::scope(|scope| {
            let writers = segments.each_ref().map(|segment| scope.spawn(move || put(segment)));
            writers.map(|writer| writer.join().unwrap())
        });
        for (last, (put, replication)) in last.iter_mut().zip(ended) {
            assert_eq!(replication, ReplicationInfo::InSync, "round {round}: {put:?}");
            match put {
                Ok(_) => (*last, acknowledged) = (round, acknowledged + 1),
                Err(error) => {
                    let is_for_room = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitReached);
                    assert!(is_for_room && !error.is_indeterminate(), "round {round}: {error}");
                }
            }
        }
    }
    assert!(acknowledged > 0, "no put ended well");
    let (home, replica) = in_sync(&daemons[0], names[0]);
    daemons[home].kill().unwrap();
    for (name, last) in names.into_iter().zip(last) {
        assert_eq!(seed_of(&daemons[replica], name, [last, last]), last, "{name}");
    }
}

// If this failed, a large put for which the replica has no room would remove the replica, or not name the full node.
#[test]
fn large_put_that_fills_the_replicas_node_fails_and_names_the_node() {
    const NAME: &str = "large/full";
    let daemons = cluster();
    let segment = allocate(&daemons, NAME);
    segment.put(0, &value(0)).unwrap();
    let (home, replica) = in_sync(&daemons[0], NAME);
    let node = ddss::NodeId(replica as u16 + 1);
    // Takes all memory of the replica's node but one megabyte.
    let filler = Spec::new(POOL_BYTES - BYTES as u64 - (2 << 20)).placement(Placement::Node(node));
    let filler =
        until("fill", || client(&daemons[replica]).segment("filler").allocate(filler).map_err(|e| e.to_string()));
    for writer in [home, replica] {
        let error = open(&daemons[writer], NAME).put(0, &value(1)).unwrap_err();
        let names_it = error.to_string().contains(&format!("node {}, which has its replica", node.0));
        assert!(error.kind() == ErrorKind::NoSpace && names_it, "{error}");
        let stat = segment.stat().unwrap();
        assert_eq!((stat.replication, stat.replica), (ReplicationInfo::InSync, Some(node)));
        assert_eq!(seed_of(&daemons[home], NAME, [0, 1]), 0);
    }
    segment.put(0, &[1; 100]).unwrap();
    filler.release().unwrap();
    until("put", || segment.put(0, &value(2)).map_err(|error| error.to_string()));
    assert_eq!(segment.stat().unwrap().replication, ReplicationInfo::InSync);
}
