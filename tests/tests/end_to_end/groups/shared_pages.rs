//! Page-based shared memory between real processes and daemons.
//!
//! The test is rank 0. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ddss::Client;
use ddss_dsm::{Failure, Ordering, Protocol, Space, SpaceError, SpaceOptions, Stamps};
use ddss_testkit::Daemon;

const CHILD: &str = "DDSS_TEST_RANK";
const RANKS: u16 = 3;
const BYTES: u64 = 64 << 10;
const ROUNDS: u64 = 10;
/// Bytes that all ranks write side by side, on a few pages.
const STRIPES: usize = 9_000;
/// Place of the sum that a lock protects.
const SUM: u64 = 40 << 10;
const SECTIONS: u64 = 50;

const PROTOCOLS: [Protocol; 4] = [Protocol::NewGenDsm, Protocol::Draw, Protocol::Ardmar, Protocol::Async];
const ORDERINGS: [Ordering; 2] = [Ordering::Stamped, Ordering::Placed];
const STAMPS: [Stamps; 2] = [Stamps::PerHome, Stamps::PerPage];

/// Settings by number, so that a child needs only that.
fn settings(number: usize) -> (Protocol, Ordering, Stamps) {
    (PROTOCOLS[number / 4 % 4], ORDERINGS[number / 2 % 2], STAMPS[number % 2])
}

fn join(folder: &Path, rank: u16, number: usize) -> Space {
    let client = Client::builder().folder(folder).connect().unwrap();
    let (protocol, ordering, stamps) = settings(number);
    let options = SpaceOptions::new(RANKS, BYTES).rank(rank).protocol(protocol, ordering, stamps);
    Space::join(&client, &format!("solver-{number}"), options.timeout(Duration::from_secs(120))).unwrap()
}

fn start(test: &str, daemon: &Daemon, rank: u16, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{rank} {number} {}", daemon.folder().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Joins as the rank that `start` asked for. `None` in the test itself.
fn child() -> Option<Space> {
    let words = std::env::var(CHILD).ok()?;
    let [rank, number, folder] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    Some(join(Path::new(folder), rank.parse().unwrap(), number.parse().unwrap()))
}

fn word(space: &Space, at: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// The program of each rank. Every byte that a barrier or a lock orders has to be the last one written.
fn run(mut space: Space) {
    let (rank, ranks) = (usize::from(space.rank()), usize::from(RANKS));
    let value = |round: u64, at: usize| (round as usize * 31 + at * 7 + at % ranks) as u8;
    for round in 0..ROUNDS {
        // Neighbouring bytes belong to different ranks: each page has several writers.
        for at in (0..STRIPES).filter(|at| at % ranks == rank && (at / 64) % 7 == round as usize % 7) {
            space.write(at as u64, &[value(round, at)]).unwrap();
        }
        space.barrier().unwrap();
        let mut all = vec![0; STRIPES];
        space.read(0, &mut all).unwrap();
        for (at, found) in all.iter().enumerate().filter(|(at, _)| (at / 64) % 7 == round as usize % 7) {
            assert_eq!(*found, value(round, at), "rank {rank} at byte {at} in round {round}");
        }
        space.barrier().unwrap();
    }
    for _ in 0..SECTIONS {
        let section = space.lock(5).unwrap();
        let sum = word(&section, SUM) + 1;
        section.write(SUM, &sum.to_le_bytes()).unwrap();
        section.unlock().unwrap();
    }
    space.add(9, rank as u64 + 1).unwrap();
    space.barrier().unwrap();
    assert_eq!(word(&space, SUM), SECTIONS * u64::from(RANKS));
    assert_eq!(space.add(9, 0).unwrap(), 6);
    space.leave().unwrap();
}

// If this failed, a program would compute with old bytes, or bytes of one rank would overwrite another's.
#[test]
fn ranks_on_two_nodes_see_what_locks_and_barriers_order_under_every_protocol() {
    if let Some(space) = child() {
        return run(space);
    }
    let test = "groups::shared_pages::ranks_on_two_nodes_see_what_locks_and_barriers_order_under_every_protocol";
    let [a, b] = Daemon::pair().unwrap();
    // Stamps make a difference only where diffs are written one-sided and ordered by stamps.
    for number in [0, 1, 2, 4, 5, 6, 8, 10, 12, 14] {
        let mut children = [(1, &b), (2, &a)].map(|(rank, daemon)| start(test, daemon, rank, number));
        run(join(a.folder(), 0, number));
        assert!(children.iter_mut().all(|child| child.wait().unwrap().success()), "{:?}", settings(number));
    }
}

// If this failed, the survivors of a dead rank would wait for it, or blame different ones.
#[test]
fn killed_rank_is_named_by_all_others() {
    let is_lost = |error: SpaceError| {
        let names_it = matches!(error, SpaceError::Failure(Failure::Lost(rank)) if rank.to_string() == "rank 1");
        assert!(names_it, "{error}");
    };
    if let Some(mut space) = child() {
        if space.rank() == 1 {
            // It is held while the others come to know of it.
            std::mem::forget(space.lock(1).unwrap());
            space.barrier().unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }
        space.barrier().unwrap();
        return is_lost(space.barrier().unwrap_err());
    }
    let test = "groups::shared_pages::killed_rank_is_named_by_all_others";
    let [a, b] = Daemon::pair().unwrap();
    let mut children = [(1, &b), (2, &a)].map(|(rank, daemon)| start(test, daemon, rank, 0));
    let mut space = join(a.folder(), 0, 0);
    space.barrier().unwrap();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            children[0].kill().unwrap();
            children[0].wait().unwrap();
        });
        // The dead rank holds this lock.
        is_lost(space.lock(1).unwrap_err());
        killer.join().unwrap();
    });
    is_lost(space.barrier().unwrap_err());
    is_lost(space.read(0, &mut [0; 8]).unwrap_err());
    assert!(children[1].wait().unwrap().success(), "rank 2 names the same");
}

// If this failed, ranks with other settings would misread each other, or wait for each other for ever.
#[test]
fn joining_a_space_of_another_kind_or_alone_says_what_to_do() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::builder().folder(daemon.folder()).connect().unwrap();
    let options = SpaceOptions::new(2, BYTES).timeout(Duration::from_millis(300));
    let refused = |options| Space::join(&client, "solver", options).unwrap_err().to_string();
    assert_eq!(
        refused(options),
        "not all of the 2 ranks have come within 300ms: start the others, or raise the timeout"
    );
    assert_eq!(
        refused(options.protocol(Protocol::Async, Ordering::Stamped, Stamps::PerHome)),
        "cannot join a space with protocol 4: this rank has 1; start all ranks with the same settings"
    );
    let alone = Space::join(&client, "alone", SpaceOptions::new(1, 5000)).unwrap();
    assert_eq!(alone.len(), 8192, "whole pages");
    alone.write(4090, b"across pages").unwrap();
    let mut read = [0; 12];
    alone.read(4090, &mut read).unwrap();
    assert_eq!(&read, b"across pages");
    let outside = alone.read(8190, &mut [0; 3]).unwrap_err().to_string();
    assert_eq!(outside, "bytes 8190 to 8193 are outside the space, which has 8192");
    alone.leave().unwrap();
}
