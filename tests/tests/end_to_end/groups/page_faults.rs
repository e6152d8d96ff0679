//! Shared pages used by page faults, between real processes.
//!
//! The test is rank 0. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_dsm::{
    Homes, LostPage, Ordering, PageFaults, Protocol, Rank, Region, Space, SpaceError, SpaceOptions, Stamps,
};
use ddss_testkit::Daemon;
use rustix::process::{Pid, Signal, kill_process};

const CHILD: &str = "DDSS_TEST_RANK";
/// Ranks of a program. Those of a lost space are two.
const RANKS: u16 = 4;
const BYTES: u64 = 256 << 10;
const ROUNDS: u64 = 6;
/// Elements that the ranks write in turns: on a dozen pages, each of which all ranks write.
const WORDS: usize = 6_000;
const SECTIONS: u32 = 50;
/// Times that each rank waits for its predecessor.
const TURNS: u32 = 5;
/// Pages that a rank reads one by one.
const READ_PAGES: usize = 60;
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

fn join(folder: &Path, (rank, ranks): (u16, u16), number: usize) -> Space {
    join_with(folder, (rank, ranks), number, |options| options.timeout(Duration::from_secs(120)))
}

fn join_with(
    folder: &Path,
    (rank, ranks): (u16, u16),
    number: usize,
    more: impl FnOnce(SpaceOptions) -> SpaceOptions,
) -> Space {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let (way, (protocol, ordering, stamps)) =
        (PageFaults::ALL[number / SETTINGS.len()], SETTINGS[number % SETTINGS.len()]);
    let options = SpaceOptions::new(ranks, BYTES).rank(rank).protocol(protocol, ordering, stamps).page_faults(way);
    Space::join(&client, &format!("faults-{number}"), more(options)).unwrap()
}

fn start(test: &str, daemon: &Daemon, (rank, ranks): (u16, u16), number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("groups::page_faults::{test}"), "--nocapture"])
        .env(CHILD, format!("{rank} {ranks} {number} {}", daemon.folder().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A rank that `start` asked for.
struct Role {
    rank: u16,
    ranks: u16,
    number: usize,
    folder: PathBuf,
}

impl Role {
    /// `None` in the test itself.
    fn of_this_process() -> Option<Self> {
        let words = std::env::var(CHILD).ok()?;
        let [rank, ranks, number, folder] = words.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
        let (rank, ranks) = (rank.parse().unwrap(), ranks.parse().unwrap());
        Some(Self { rank, ranks, number: number.parse().unwrap(), folder: folder.into() })
    }

    fn join(&self) -> Space {
        join(&self.folder, (self.rank, self.ranks), self.number)
    }
}

/// Waits for a process, and returns what it said if it failed.
fn failed(child: Child) -> Option<String> {
    let ended = child.wait_with_output().unwrap();
    (!ended.status.success()).then(|| format!("{} {}", ended.status, String::from_utf8_lossy(&ended.stderr)))
}

/// The program of each rank: it uses elements by address, and between them views and cells.
fn run(mut space: Space, number: usize) {
    let (rank, ranks) = (usize::from(space.rank()), usize::from(space.ranks()));
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
    // Each rank adds to what its predecessor has posted.
    let next = (rank as u32 + 1) % ranks as u32;
    for turn in 0..TURNS {
        if turn > 0 || rank > 0 {
            space.wait(rank as u32).unwrap();
        }
        let cells = sum.cells(&space, ..).unwrap();
        assert_eq!(cells.get(0), turn * ranks as u32 + rank as u32);
        cells.set(0, cells.get(0) + 1);
        drop(cells);
        space.post(next).unwrap();
    }
    space.barrier().unwrap();
    for _ in 0..SECTIONS {
        let section = space.lock(5).unwrap();
        let cells = sum.cells(&section, ..).unwrap();
        cells.set(0, cells.get(0) + 1);
        drop(cells);
        section.unlock().unwrap();
    }
    space.barrier().unwrap();
    assert_eq!(sum.cells(&space, ..).unwrap().get(0), (TURNS + SECTIONS) * ranks as u32);
    space.leave().unwrap();
}

// If this failed, a program that uses slices would compute with old bytes, or its writes would be lost.
#[test]
fn ranks_that_use_page_faults_see_what_locks_and_barriers_order_under_every_protocol() {
    if let Some(role) = Role::of_this_process() {
        return run(role.join(), role.number);
    }
    let test = "ranks_that_use_page_faults_see_what_locks_and_barriers_order_under_every_protocol";
    let daemon = Daemon::start(1).unwrap();
    for number in 0..SETTINGS.len() * PageFaults::ALL.len() {
        let children: Vec<_> = (1..RANKS).map(|rank| start(test, &daemon, (rank, RANKS), number)).collect();
        run(join(daemon.folder(), (0, RANKS), number), number);
        assert_eq!(children.into_iter().filter_map(failed).collect::<Vec<_>>(), [""; 0], "{number}");
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

// If this failed, a checkpoint would lack what page faults have noticed, or a restored page would not be fetched.
#[test]
fn elements_in_place_come_back_from_a_checkpoint() {
    const PAGES: usize = 6;
    let daemon = Daemon::start(1).unwrap();
    // Each rank writes its part of each page.
    let ours = |space: &Space| usize::from(space.rank()) * 256..(usize::from(space.rank()) + 1) * 256;
    let write = |space: &Space, words: Region<[u64; 512]>, step: u64| {
        let mut pages = words.in_place(space, ..).unwrap();
        // SAFETY: nothing else of this rank uses the region, and the other one writes other words.
        let pages = unsafe { pages.as_mut_slice() };
        pages.iter_mut().for_each(|page| page[ours(space)].fill(step));
    };
    let live = |rank: u16, lives: u64| {
        let mut space = join(daemon.folder(), (rank, 2), 0);
        let words = space.region::<[u64; 512]>("words", PAGES, Homes::FirstTouch).unwrap();
        let begin = space.restored().unwrap_or(0);
        assert_eq!(begin, 2 * lives);
        assert_eq!(words.cells(&space, ..).unwrap().get(PAGES - 1), [begin; 512]);
        space.barrier().unwrap();
        for step in begin + 1..=begin + 2 {
            write(&space, words, step);
            space.checkpoint(step).unwrap();
        }
        // It is in no checkpoint.
        write(&space, words, 99);
        space.barrier().unwrap();
        assert_eq!(words.cells(&space, ..).unwrap().get(0), [99; 512]);
        space
    };
    for lives in 0..3 {
        let spaces = std::thread::scope(|scope| {
            let other = scope.spawn(|| live(1, lives));
            [live(0, lives), other.join().unwrap()]
        });
        // They die: no rank leaves.
        drop(spaces);
    }
}

/// Starts a rank that uses the pages of a space one by one, and waits until it has begun. Returns its process, and this rank.
fn start_reader(test: &str, daemon: &Daemon, number: usize) -> (Child, BufReader<ChildStderr>, Space) {
    let mut child = start(test, daemon, (1, 2), number);
    let mut space = join(daemon.folder(), (0, 2), number);
    offer_pages(&mut space);
    let stderr = until_ready(&mut child);
    (child, stderr, space)
}

/// Waits until a process reads pages, or has ended.
fn until_ready(child: &mut Child) -> BufReader<ChildStderr> {
    let (mut stderr, mut said) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !said.ends_with("ready\n") && stderr.read_line(&mut said).unwrap() > 0 {}
    stderr
}

/// Writes the pages of rank 0.
fn offer_pages(space: &mut Space) {
    let words = space.region::<[u64; 512]>("words", READ_PAGES, Homes::Rank(Rank::ZERO)).unwrap();
    words.write(space, ..).unwrap().fill([9; 512]);
    space.barrier().unwrap();
}

/// Reads the pages of rank 0 one by one. Rank 0 is lost, or stops, meanwhile: not all of them can be fetched.
fn read_pages(mut space: Space) {
    let words = space.region::<[u64; 512]>("words", READ_PAGES, Homes::Rank(Rank::ZERO)).unwrap();
    space.barrier().unwrap();
    let cells = words.cells(&space, ..).unwrap();
    std::io::stderr().write_all(b"ready\n").unwrap();
    for page in 0..READ_PAGES {
        assert_eq!(cells.get(page)[7], 9);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits for the end of a process, and returns its signal, its status, and what it said.
fn end_of(mut child: Child, mut stderr: BufReader<ChildStderr>) -> (Option<i32>, Option<i32>, String) {
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    (status.signal(), status.code(), said)
}

// If this failed, a program would hang at a page of a lost space, or go on with wrong bytes, or end without a word.
#[test]
fn page_of_a_lost_space_raises_a_bus_error_behind_a_message() {
    if let Some(role) = Role::of_this_process() {
        return read_pages(role.join());
    }
    let daemon = Daemon::start(1).unwrap();
    for number in (0..PageFaults::ALL.len()).map(|way| way * SETTINGS.len()) {
        let test = "page_of_a_lost_space_raises_a_bus_error_behind_a_message";
        let (child, stderr, space) = start_reader(test, &daemon, number);
        // A death: it does not leave.
        drop(space);
        let (signal, _, said) = end_of(child, stderr);
        assert_eq!(signal, Some(SIGBUS), "{said}");
        let message =
            said.lines().find(|line| line.starts_with("ddss-dsm: rank 1 cannot have words[")).unwrap_or(&said);
        assert!(message.ends_with("]: rank 0 is lost, and the space with it: restart from a checkpoint"), "{said}");
    }
}

// If this failed, a program could not end in its own way, or a callback that panics would leave a thread at its page for ever.
#[test]
fn program_is_called_for_a_lost_page_and_the_signal_follows_also_behind_a_panic() {
    const STATUS: i32 = 17;
    if let Some(role) = Role::of_this_process() {
        let ends = role.number % SETTINGS.len() == 0;
        let on_lost = move |page: &LostPage| {
            assert!(page.elements.starts_with("words[") || page.failure.is_none());
            let _ = writeln!(std::io::stderr(), "called: {page}");
            assert!(ends, "a callback may fail");
            std::process::exit(STATUS);
        };
        let more = |options: SpaceOptions| options.on_lost_page(on_lost);
        return read_pages(join_with(&role.folder, (role.rank, role.ranks), role.number, more));
    }
    let test = "program_is_called_for_a_lost_page_and_the_signal_follows_also_behind_a_panic";
    let daemon = Daemon::start(1).unwrap();
    let lost = "]: rank 0 is lost, and the space with it: restart from a checkpoint\n";
    for way in (0..PageFaults::ALL.len()).map(|way| way * SETTINGS.len()) {
        let (child, stderr, space) = start_reader(test, &daemon, way);
        drop(space);
        let (_, status, said) = end_of(child, stderr);
        assert_eq!(status, Some(STATUS), "{said}");
        assert!(said.contains("called: rank 1 cannot have words[") && said.contains(lost), "{said}");
        let (child, stderr, space) = start_reader(test, &daemon, way + 1);
        drop(space);
        let (signal, _, said) = end_of(child, stderr);
        assert_eq!(signal, Some(SIGBUS), "{said}");
        assert!(said.contains("called: rank 1 cannot have any page: its service thread has panicked\n"), "{said}");
    }
}

// If this failed, a thread would wait at a page of a rank that does not answer for longer than its deadline.
#[test]
fn page_that_does_not_come_before_the_deadline_is_lost() {
    if let Some(role) = Role::of_this_process() {
        let more = |options: SpaceOptions| options.timeout(Duration::from_secs(3));
        let mut space = join_with(&role.folder, (role.rank, role.ranks), role.number, more);
        if role.rank > 0 {
            return read_pages(space);
        }
        offer_pages(&mut space);
        // Until the test ends this process.
        std::thread::sleep(Duration::from_secs(600));
    }
    let (test, number) = ("page_that_does_not_come_before_the_deadline_is_lost", 0);
    let daemon = Daemon::start(1).unwrap();
    let mut rank_0 = start(test, &daemon, (0, 2), number);
    let mut child = start(test, &daemon, (1, 2), number);
    let stderr = until_ready(&mut child);
    let pid = Pid::from_child(&rank_0);
    // Its lease is longer than the deadline.
    kill_process(pid, Signal::STOP).unwrap();
    let (signal, _, said) = end_of(child, stderr);
    rank_0.kill().unwrap();
    rank_0.wait().unwrap();
    assert_eq!(signal, Some(SIGBUS), "{said}");
    let message = said.lines().find(|line| line.starts_with("ddss-dsm: rank 1 cannot have words[")).unwrap_or(&said);
    assert!(message.contains("]: rank 1 gave up at its deadline"), "{said}");
}
