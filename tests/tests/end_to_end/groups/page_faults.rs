//! Shared pages used by page faults, between real processes.
//!
//! The test is rank 0. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_dsm::{Homes, Ordering, PageFaults, Protocol, Rank, Space, SpaceError, SpaceOptions, Stamps};
use ddss_testkit::Daemon;

const CHILD: &str = "DDSS_TEST_RANK";
const RANKS: u16 = 2;
const BYTES: u64 = 256 << 10;
const ROUNDS: u64 = 6;
/// Elements that the ranks write in turns: on a dozen pages, each of which all ranks write.
const WORDS: usize = 6_000;
const SECTIONS: u64 = 50;
const SIGBUS: i32 = 7;

/// Protocols, each with the orderings and stamps that differ under it.
const SETTINGS: [(Protocol, Ordering, Stamps); 10] = [
    (Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome),
    (Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerPage),
    (Protocol::NewGenDsm, Ordering::Placed, Stamps::PerHome),
    (Protocol::Draw, Ordering::Stamped, Stamps::PerHome),
    (Protocol::Draw, Ordering::Stamped, Stamps::PerPage),
    (Protocol::Draw, Ordering::Placed, Stamps::PerHome),
    (Protocol::Ardmar, Ordering::Stamped, Stamps::PerHome),
    (Protocol::Ardmar, Ordering::Placed, Stamps::PerHome),
    (Protocol::Async, Ordering::Stamped, Stamps::PerHome),
    (Protocol::Async, Ordering::Placed, Stamps::PerHome),
];

fn join(folder: &Path, rank: u16, number: usize) -> Space {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let (way, (protocol, ordering, stamps)) =
        (PageFaults::ALL[number / SETTINGS.len()], SETTINGS[number % SETTINGS.len()]);
    let options = SpaceOptions::new(RANKS, BYTES).rank(rank).protocol(protocol, ordering, stamps).page_faults(way);
    Space::join(&client, &format!("faults-{number}"), options.timeout(Duration::from_secs(120))).unwrap()
}

fn start(test: &str, daemon: &Daemon, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("groups::page_faults::{test}"), "--nocapture"])
        .env(CHILD, format!("{number} {}", daemon.folder().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Joins as rank 1, as `start` asked for it. `None` in the test itself.
fn child() -> Option<(Space, usize)> {
    let words = std::env::var(CHILD).ok()?;
    let (number, folder) = words.split_once(' ').unwrap();
    let number = number.parse().unwrap();
    Some((join(Path::new(folder), 1, number), number))
}

/// Waits for a process, and returns what it said if it failed.
fn failed(child: Child) -> Option<String> {
    let ended = child.wait_with_output().unwrap();
    (!ended.status.success()).then(|| format!("{} {}", ended.status, String::from_utf8_lossy(&ended.stderr)))
}

/// The program of each rank: it uses elements by address, and between them views and cells.
fn run(mut space: Space, number: usize) {
    let (rank, ranks) = (usize::from(space.rank()), usize::from(RANKS));
    let homes = [Homes::FirstTouch, Homes::Blocks(1)][number % 2];
    let words = space.region::<u64>("words", WORDS, homes).unwrap();
    let sum = space.region::<u32>("sum", 1, Homes::FirstTouch).unwrap();
    let value = |round: u64, at: usize| round * 1_000_003 + at as u64 * 7 + at as u64 % ranks as u64;
    for round in 0..ROUNDS {
        // Of each page all ranks write some elements, and in each round others stay as they are.
        let ours = |at: &usize| at % ranks == rank && (at / 64) as u64 % ROUNDS == round;
        if round % 2 == 0 {
            let mut all = words.in_place(&space, ..).unwrap();
            // SAFETY: nothing else of this process uses the region.
            let all = unsafe { all.as_mut_slice() };
            (0..WORDS).filter(ours).for_each(|at| all[at] = value(round, at));
        } else {
            let cells = words.cells(&space, ..).unwrap();
            (0..WORDS).filter(ours).for_each(|at| cells.set(at, value(round, at)));
        }
        space.barrier().unwrap();
        let expected = |at: usize| {
            let written = (at / 64) as u64 % ROUNDS;
            if written <= round { value(written, at) } else { 0 }
        };
        let all = words.in_place(&space, ..WORDS / 2).unwrap();
        // SAFETY: nothing of this process writes the region.
        for (at, found) in unsafe { all.as_slice() }.iter().enumerate() {
            assert_eq!(*found, expected(at), "rank {rank} at word {at} in round {round}");
        }
        // A view of the rest, beside the elements in place.
        let rest = words.read(&space, WORDS / 2..).unwrap();
        let rest_expected: Vec<u64> = (WORDS / 2..WORDS).map(expected).collect();
        assert!(*rest == *rest_expected, "rank {rank} sees another rest in round {round}");
        drop((all, rest));
        space.barrier().unwrap();
    }
    for _ in 0..SECTIONS {
        let section = space.lock(5).unwrap();
        let cells = sum.cells(&section, ..).unwrap();
        cells.set(0, cells.get(0) + 1);
        drop(cells);
        section.unlock().unwrap();
    }
    space.barrier().unwrap();
    assert_eq!(sum.cells(&space, ..).unwrap().get(0), SECTIONS as u32 * u32::from(RANKS));
    space.leave().unwrap();
}

// If this failed, a program that uses slices would compute with old bytes, or its writes would be lost.
#[test]
fn ranks_that_use_page_faults_see_what_locks_and_barriers_order_under_every_protocol() {
    if let Some((space, number)) = child() {
        return run(space, number);
    }
    let test = "ranks_that_use_page_faults_see_what_locks_and_barriers_order_under_every_protocol";
    let daemon = Daemon::start(1).unwrap();
    for number in 0..SETTINGS.len() * PageFaults::ALL.len() {
        let child = start(test, &daemon, number);
        run(join(daemon.folder(), 0, number), number);
        assert_eq!(failed(child), None, "{number}");
    }
}

// If this failed, safe code would have a slice that cells change, or use addresses that no fault answers.
#[test]
fn elements_in_place_exclude_views_and_need_page_faults() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let options = SpaceOptions::new(1, BYTES);
    let mut space = Space::join(&client, "alone", options.clone()).unwrap();
    let words = space.region::<u32>("words", 2048, Homes::FirstTouch).unwrap();
    let said = words.cells(&space, ..).map(drop).unwrap_err().to_string();
    assert_eq!(said, "this rank has joined without page faults: set `SpaceOptions::page_faults`, or use views");
    space.leave().unwrap();
    let mut space = Space::join(&client, "alone", options.page_faults(PageFaults::ALL[0])).unwrap();
    let words = space.region::<[u32; 3]>("words", 2048, Homes::FirstTouch).unwrap();
    let cells = words.cells(&space, 1..).unwrap();
    for refused in [words.read(&space, ..2).map(drop), words.write(&space, 7..8).map(drop)] {
        assert!(matches!(refused, Err(SpaceError::Borrowed { start: 12, .. })));
    }
    assert!(words.read(&space, ..1).is_ok(), "beside the cells");
    std::thread::scope(|scope| {
        let again = words.cells(&space, ..100).unwrap();
        // An element that lies in two pages.
        scope.spawn(|| cells.set(340, [5, 6, 7]));
        scope.spawn(move || again.set(0, [1, 2, 3]));
    });
    assert_eq!((cells.get(340), cells.get(341)), ([5, 6, 7], [0; 3]));
    drop(cells);
    assert_eq!(words.get(&space, 0).unwrap(), [1, 2, 3]);
    let view = words.write(&space, 341..342).unwrap();
    assert!(matches!(words.in_place(&space, ..), Err(SpaceError::Borrowed { .. })));
    drop(view);
    space.leave().unwrap();
}

// If this failed, a program would hang at a page of a lost space, or go on with wrong bytes, or end without a word.
#[test]
fn page_of_a_lost_space_raises_a_bus_error_behind_a_message() {
    const PAGES: usize = 60;
    let homes = Homes::Rank(Rank::ZERO);
    if let Some((mut space, _)) = child() {
        let words = space.region::<[u64; 512]>("words", PAGES, homes).unwrap();
        space.barrier().unwrap();
        let cells = words.cells(&space, ..).unwrap();
        std::io::stderr().write_all(b"ready\n").unwrap();
        // Rank 0 is lost meanwhile: not all of them can be fetched.
        for page in 0..PAGES {
            assert_eq!(cells.get(page)[7], 9);
            std::thread::sleep(Duration::from_millis(200));
        }
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    for number in (0..PageFaults::ALL.len()).map(|way| way * SETTINGS.len()) {
        let mut child = start("page_of_a_lost_space_raises_a_bus_error_behind_a_message", &daemon, number);
        let mut space = join(daemon.folder(), 0, number);
        let words = space.region::<[u64; 512]>("words", PAGES, homes).unwrap();
        words.write(&space, ..).unwrap().fill([9; 512]);
        space.barrier().unwrap();
        let (mut stderr, mut said) = (BufReader::new(child.stderr.take().unwrap()), String::new());
        // The end of what it says ends the wait, too.
        while !said.ends_with("ready\n") && stderr.read_line(&mut said).unwrap() > 0 {}
        // A death: it does not leave.
        drop(space);
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(SIGBUS), "{said}");
        let message =
            said.lines().find(|line| line.starts_with("ddss-dsm: rank 1 cannot have words[")).unwrap_or(&said);
        assert!(message.ends_with("]: rank 0 is lost, and the space with it: restart from a checkpoint"), "{said}");
    }
}
