//! Page-based shared memory between real processes and daemons.
//!
//! The test is rank 0. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_dsm::{Failure, Homes, Ordering, Protocol, Rank, Region, Space, SpaceError, SpaceOptions, Stamps};
use ddss_testkit::Daemon;

const CHILD: &str = "DDSS_TEST_RANK";
const RANKS: u16 = 3;
const BYTES: u64 = 64 << 10;
const ROUNDS: u64 = 10;
/// Bytes that all ranks write side by side, on a few pages.
const STRIPES: usize = 9_000;
const SECTIONS: u64 = 50;

const PROTOCOLS: [Protocol; 4] = [Protocol::NewGenDsm, Protocol::Draw, Protocol::Ardmar, Protocol::Async];
const ORDERINGS: [Ordering; 2] = [Ordering::Stamped, Ordering::Placed];
const STAMPS: [Stamps; 2] = [Stamps::PerHome, Stamps::PerPage];

/// Homes of the pages that all ranks write, by number.
fn homes(number: usize) -> Homes {
    [Homes::FirstTouch, Homes::Blocks(1), Homes::Rank(Rank::new(1).unwrap())][number / 2 % 3]
}

/// Settings by number, so that a child needs only that.
fn settings(number: usize) -> (Protocol, Ordering, Stamps) {
    (PROTOCOLS[number / 4 % 4], ORDERINGS[number / 2 % 2], STAMPS[number % 2])
}

fn join(folder: &Path, rank: u16, number: usize) -> Space {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
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
fn child() -> Option<(Space, usize)> {
    let words = std::env::var(CHILD).ok()?;
    let [rank, number, folder] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let number = number.parse().unwrap();
    Some((join(Path::new(folder), rank.parse().unwrap(), number), number))
}

/// The program of each rank. Every byte that a barrier or a lock orders has to be the last one written.
fn run((mut space, number): (Space, usize)) {
    let (rank, ranks) = (usize::from(space.rank()), usize::from(RANKS));
    let stripes = space.region::<u8>("stripes", STRIPES, homes(number)).unwrap();
    let sum = space.region::<u64>("sum", 1, Homes::FirstTouch).unwrap();
    let value = |round: u64, at: usize| (round as usize * 31 + at * 7 + at % ranks) as u8;
    for round in 0..ROUNDS {
        // Neighbouring bytes belong to different ranks: each page has several writers.
        for at in (0..STRIPES).filter(|at| at % ranks == rank && (at / 64) % 7 == round as usize % 7) {
            stripes.put(&space, at, value(round, at)).unwrap();
        }
        space.barrier().unwrap();
        let all = stripes.read(&space, ..).unwrap();
        for (at, found) in all.iter().enumerate().filter(|(at, _)| (at / 64) % 7 == round as usize % 7) {
            assert_eq!(*found, value(round, at), "rank {rank} at byte {at} in round {round}");
        }
        drop(all);
        space.barrier().unwrap();
    }
    for _ in 0..SECTIONS {
        let section = space.lock(5).unwrap();
        sum.write(&section, ..).unwrap()[0] += 1;
        section.unlock().unwrap();
    }
    space.add(9, rank as u64 + 1).unwrap();
    space.barrier().unwrap();
    assert_eq!(sum.get(&space, 0).unwrap(), SECTIONS * u64::from(RANKS));
    assert_eq!(space.add(9, 0).unwrap(), 6);
    space.leave().unwrap();
}

// If this failed, a program would compute with old bytes, or bytes of one rank would overwrite another's.
#[test]
fn ranks_on_two_nodes_see_what_locks_and_barriers_order_under_every_protocol() {
    if let Some(rank) = child() {
        return run(rank);
    }
    let test = "groups::shared_pages::ranks_on_two_nodes_see_what_locks_and_barriers_order_under_every_protocol";
    let [a, b] = Daemon::pair().unwrap();
    // Stamps make a difference only where diffs are written one-sided and ordered by stamps.
    for number in [0, 1, 2, 4, 5, 6, 8, 10, 12, 14] {
        let mut children = [(1, &b), (2, &a)].map(|(rank, daemon)| start(test, daemon, rank, number));
        run((join(a.folder(), 0, number), number));
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
    if let Some((mut space, _)) = child() {
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
    let held = space.region::<u64>("held", 1, Homes::FirstTouch).unwrap();
    held.put(&space, 0, 1).unwrap();
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
    // What this rank holds is no longer the space's.
    is_lost(held.read(&space, ..).map(drop).unwrap_err());
    assert!(children[1].wait().unwrap().success(), "rank 2 names the same");
}

// If this failed, ranks with other settings would misread each other, or wait for each other for ever.
#[test]
fn joining_a_space_of_another_kind_or_alone_says_what_to_do() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let options = SpaceOptions::new(2, BYTES).timeout(Duration::from_millis(300));
    let refused = |options| Space::join(&client, "solver", options).unwrap_err().to_string();
    assert_eq!(
        refused(options.clone()),
        "not all of the 2 ranks have come within 300ms: start the others, raise the timeout, or let ranks on several nodes listen on addresses of theirs"
    );
    assert_eq!(
        refused(options.protocol(Protocol::Async, Ordering::Stamped, Stamps::PerHome)),
        "cannot join a space with protocol 4: this rank has 1; start all ranks with the same settings"
    );
    let alone = Space::join(&client, "alone", SpaceOptions::new(1, 5000)).unwrap();
    assert_eq!(alone.len(), 8192, "whole pages");
    alone.leave().unwrap();
    let unspecified = SpaceOptions::new(1, BYTES).listen("0.0.0.0".parse().unwrap());
    assert_eq!(
        Space::join(&client, "nowhere", unspecified).unwrap_err().to_string(),
        "cannot listen on 0.0.0.0: name an address of this machine that the other members reach"
    );
}

/// A space of one rank, with a region of two pages and a bit.
fn alone(daemon: &Daemon) -> (Space, Region<u32>) {
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let mut space = Space::join(&client, "alone", SpaceOptions::new(1, BYTES)).unwrap();
    let region = space.region("words", 2050, Homes::FirstTouch).unwrap();
    (space, region)
}

// If this failed, safe code would have two mutable slices of the same bytes, or read past the end of a region.
#[test]
fn views_that_meet_or_lie_outside_are_refused_and_say_where() {
    let daemon = Daemon::start(1).unwrap();
    let (mut space, words) = alone(&daemon);
    let mut first = words.write(&space, ..1024).unwrap();
    let mut second = words.write(&space, 1024..).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| first.fill(1));
        scope.spawn(|| second.fill(2));
    });
    let said = words.read(&space, 1000..1030).map(drop).unwrap_err().to_string();
    assert_eq!(said, "a view of bytes 0 to 4096 of the space lives, and one of the two writes: drop it first");
    drop((first, second));
    assert_eq!(words.read(&space, 1023..1025).unwrap()[..], [1, 2]);
    for range in [2000..2051, 7..7, usize::MAX - 1..usize::MAX] {
        let said = words.read(&space, range.clone()).map(drop).unwrap_err().to_string();
        let expected = format!("elements {} to {} are none of the region, which has 2050", range.start, range.end);
        assert_eq!(said, expected);
    }
    let other = space.region::<u64>("words", 2050, Homes::FirstTouch).map(drop).unwrap_err().to_string();
    assert_eq!(other, "region words has 4 bytes an element, and this rank asks for 8: ask for the same");
    assert!(space.region::<u32>("far", 1, Homes::Rank(Rank::new(9).unwrap())).is_err(), "no such rank");
    assert!(space.region::<u32>("far", 1, Homes::FirstTouch).is_ok(), "the refused call left nothing behind");
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let other = Space::join(&client, "other", SpaceOptions::new(1, BYTES)).unwrap();
    let said = words.get(&other, 0).unwrap_err().to_string();
    assert_eq!(said, "the region belongs to another space: open it in this one");
    other.leave().unwrap();
    assert!(space.lock(u32::MAX).is_err() && space.lock((1 << 16) - 2).is_err(), "locks of the space itself");
    space.barrier().unwrap();
    assert_eq!(words.get(&space, 2049).unwrap(), 2, "the same region after an error");
    space.leave().unwrap();
}

// If this failed, a view would fetch pages one by one, or fetch again what this rank holds.
#[test]
fn view_fetches_each_page_once_until_another_rank_writes_it() {
    const PAGES: usize = 14;
    let program = |(mut space, _): (Space, usize)| {
        let rank = space.rank();
        let words = space.region::<u64>("words", PAGES * 512, Homes::Rank(Rank::new(1).unwrap())).unwrap();
        if rank == 1 {
            words.write(&space, ..).unwrap().fill(7);
        }
        space.barrier().unwrap();
        let before = space.statistics().unwrap();
        let fetched = |space: &Space| space.statistics().unwrap().fetches - before.fetches;
        assert!(words.read(&space, ..).unwrap().iter().all(|word| *word == 7));
        let all = if rank == 1 { 0 } else { PAGES as u64 };
        assert_eq!(fetched(&space), all);
        assert_eq!(words.get(&space, 600).unwrap(), 7);
        space.barrier().unwrap();
        assert!(words.read(&space, 1..).unwrap().iter().all(|word| *word == 7), "nobody wrote it");
        assert_eq!(fetched(&space), all);
        space.barrier().unwrap();
        if rank == 2 {
            words.put(&space, 512 * 3, 8).unwrap();
        }
        space.barrier().unwrap();
        words.prefetch(&space, ..).unwrap();
        assert_eq!(words.get(&space, 512 * 3).unwrap(), 8);
        assert_eq!(fetched(&space), [all + 1, 0, all][usize::from(rank)], "only the page that rank 2 wrote");
        space.leave().unwrap();
    };
    if let Some(rank) = child() {
        return program(rank);
    }
    let test = "groups::shared_pages::view_fetches_each_page_once_until_another_rank_writes_it";
    let [a, b] = Daemon::pair().unwrap();
    let mut children = [(1, &b), (2, &a)].map(|(rank, daemon)| start(test, daemon, rank, 0));
    program((join(a.folder(), 0, 0), 0));
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
}
