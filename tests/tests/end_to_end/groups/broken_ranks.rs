//! Spaces of shared pages with ranks that break the protocol, disappear, or give up.
//!
//! The test plays a rank over a bare group.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_auth::Context;
use ddss_dsm::{Failure, Homes, Space, SpaceError, SpaceOptions};
use ddss_group::{Group, GroupEvent, GroupState, JoinOptions, Member, Membership, NOTE_BYTES};
use ddss_testkit::Daemon;
use ddss_verbs::{Events, Fabric, Iwarp, IwarpConfig};

const NAME: &str = "solver";
const BYTES: u64 = 64 << 10;
const LEASE: Duration = Duration::from_secs(10);
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// First byte of a message with windows, and of one of the engine.
const HANDOVER: u8 = 0;
const ENGINE: u8 = 1;
/// Windows of a rank, of no bytes, of five areas.
const WINDOWS: [u8; 101] = [HANDOVER; 101];

fn connect(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder).timeout(Duration::from_secs(20))).unwrap()
}

fn options(ranks: u16, rank: u16) -> SpaceOptions {
    SpaceOptions::new(ranks, BYTES).rank(rank).timeout(PATIENCE)
}

/// Joins in a thread of its own.
fn join(daemon: &Daemon, options: SpaceOptions) -> JoinHandle<Result<Space, SpaceError>> {
    let folder = daemon.folder().to_owned();
    std::thread::spawn(move || Space::join(&connect(&folder), NAME, options))
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A rank that does what a test wants.
struct Rank {
    fabric: Iwarp,
    group: Group,
    state: GroupState,
    events: Events,
    start: Instant,
}

impl Rank {
    /// Joins the space of another rank, with the settings that its directory has.
    fn join(folder: &Path, number: u16, ranks: u16) -> Self {
        let client = connect(folder);
        let (settings, rows): ([u8; NOTE_BYTES], _) = until("no directory", || {
            let table = client.table::<[u8]>(&format!("dsm/{NAME}")).open().ok()?;
            let row = table.row(0).get().ok()?;
            row[..4].ne(&[0; 4]).then(|| (row[40..120].try_into().unwrap(), table.len()))
        });
        let extra = (rows - 1 - 3 * u64::from(ranks)) as u16;
        let mut config = IwarpConfig::default();
        config.message_bytes_max = 16 << 10;
        let mut fabric = Iwarp::new(config).unwrap();
        let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let options = JoinOptions::new(ranks, address).number(number).settings(settings).lease(LEASE).extra_rows(extra);
        let membership = Membership::join(&client, &format!("dsm/{NAME}"), &options).unwrap();
        let (context, state) = (Context { name: *b"DDSS pages", release: 3 }, membership.group_state());
        let group = Group::new(membership, &mut fabric, context, LEASE).unwrap();
        Self { fabric, group, state, events: Events::new(), start: Instant::now() }
    }

    /// Polls once; returns what has happened, in words.
    fn step(&mut self) -> Vec<String> {
        let Self { fabric, group, events, start, .. } = self;
        let words = |event: GroupEvent<'_>| match event {
            GroupEvent::Up(member) => format!("up {}", member.0),
            GroupEvent::Lost(member, _) => format!("lost {}", member.0),
            GroupEvent::Message { from, bytes } if bytes[0] == HANDOVER => format!("windows of {}", from.0),
            _ => "other".to_owned(),
        };
        fabric.poll(events);
        let mut seen: Vec<_> =
            events.iter().filter_map(|event| group.handle(fabric, &event, start.elapsed()).map(words)).collect();
        events.clear();
        seen.extend(std::iter::from_fn(|| group.tick(fabric, start.elapsed()).map(words)));
        seen
    }

    fn until(&mut self, what: &str) {
        until(what, || self.step().contains(&what.to_owned()).then_some(()));
    }

    fn send(&mut self, to: u16, message: &[u8]) {
        self.group.send(&mut self.fabric, Member(to), &[message]).unwrap();
    }
}

fn named(error: &SpaceError) -> String {
    match error {
        SpaceError::Failure(Failure::Protocol(rank)) => format!("protocol {rank}"),
        SpaceError::Failure(Failure::Lost(rank)) => format!("lost {rank}"),
        SpaceError::Failure(Failure::GaveUp { rank, .. }) => format!("given up by {rank}"),
        other => other.to_string(),
    }
}

// If this failed, a rank that waits for the last one would wait its whole deadline in a space that has ended.
#[test]
fn join_fails_when_the_space_ends_before_all_ranks_are_there() {
    let daemon = Daemon::start(1).unwrap();
    let first = join(&daemon, options(3, 0));
    let mut second = Rank::join(daemon.folder(), 1, 3);
    second.until("up 0");
    second.send(0, &WINDOWS);
    second.send(0, &[ENGINE, 99]);
    until("the join goes on", || {
        second.step();
        first.is_finished().then_some(())
    });
    assert_eq!(named(&first.join().unwrap().unwrap_err()), "protocol rank 1");
}

// If this failed, a rank that ends because another one is lost, before it could tell all others, would be taken for the lost one.
#[test]
fn rank_that_ends_for_the_loss_of_another_one_is_not_named() {
    let daemon = Daemon::start(1).unwrap();
    let first = join(&daemon, options(3, 0));
    let mut second = Rank::join(daemon.folder(), 1, 3);
    second.until("up 0");
    let (state, of_first) = (second.state.clone(), second.group.incarnation(Member(0)));
    assert_eq!(state.last_word(of_first).unwrap(), None);
    state.leave_word(Member(2)).unwrap();
    drop(second);
    assert_eq!(named(&first.join().unwrap().unwrap_err()), "lost rank 2");
    assert_eq!(state.last_word(of_first).unwrap(), Some(Member(2)));
}

// If this failed, a rank that broke the protocol, or one that comes later in its place, would wait in a space that has ended.
#[test]
fn rank_that_broke_the_protocol_is_disconnected_and_its_successor_too() {
    let daemon = Daemon::start(1).unwrap();
    let first = join(&daemon, options(2, 0));
    let mut second = Rank::join(daemon.folder(), 1, 2);
    second.until("windows of 0");
    second.send(0, &WINDOWS);
    until("no join", || {
        second.step();
        first.is_finished().then_some(())
    });
    let mut first = first.join().unwrap().unwrap();
    second.send(0, &[ENGINE, 99]);
    second.until("lost 0");
    assert_eq!(named(&first.barrier().unwrap_err()), "protocol rank 1");
    drop(second);
    let mut successor = Rank::join(daemon.folder(), 1, 2);
    successor.until("lost 0");
    assert_eq!(named(&first.barrier().unwrap_err()), "protocol rank 1");
}

// If this failed, a lock whose call gave up would be held for ever, or a rank would go on beside barriers of the others.
#[test]
fn call_that_gives_up_ends_the_space() {
    let daemon = Daemon::start(1).unwrap();
    let second = join(&daemon, options(2, 1).timeout(Duration::from_secs(10)));
    let mut first = join(&daemon, options(2, 0)).join().unwrap().unwrap();
    let mut second = second.join().unwrap().unwrap();
    let words = second.region::<u64>("words", 1, Homes::FirstTouch).unwrap();
    words.put(&second, 0, 1).unwrap();
    let section = first.lock(3).unwrap();
    let late = second.lock(3).unwrap_err();
    assert!(matches!(late, SpaceError::TimedOut(..)), "{late}");
    // The lock may still be granted, and close the page: nobody gets a view of it any more.
    assert_eq!(named(&words.write(&second, ..).map(drop).unwrap_err()), "given up by rank 1");
    drop(section);
    assert_eq!(named(&second.barrier().unwrap_err()), "given up by rank 1");
    assert_eq!(named(&first.lock(3).unwrap_err()), "given up by rank 1");
}

// If this failed, an operator would look for a crash of the rank that waited longest, and not for the one that is late.
#[test]
fn late_rank_is_named_by_all() {
    let daemon = Daemon::start(1).unwrap();
    let timeout = Duration::from_secs(10);
    let spaces = [0, 1, 2, 3].map(|rank| join(&daemon, options(4, rank).timeout(timeout)));
    let mut spaces = spaces.map(|space| space.join().unwrap().unwrap());
    let [first, second, late, last] = &mut spaces;
    let errors = std::thread::scope(|scope| {
        let wait = |space| scope.spawn(move || Space::barrier(space).unwrap_err().to_string());
        let waiting = [first, second, last].map(wait);
        waiting.map(|thread| thread.join().unwrap())
    });
    let late = late.barrier().unwrap_err().to_string();
    for error in errors.iter().chain([&late]) {
        assert!(error.contains("rank 2 did not come to its barrier"), "{error}");
        assert!(!error.contains("lost"), "{error}");
    }
}

// If this failed, each rank would say that it is lost itself, and nobody would look at the directory.
#[test]
fn directory_of_another_release_is_named() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let name = format!("dsm/{NAME}");
    // Rows of four ranks of a release that published none of pages.
    let old = client.table::<[u8]>(&name).allocate(Spec::new(13).row_len(128)).unwrap();
    let said = Space::join(&client, NAME, options(4, 0)).unwrap_err().to_string();
    assert!(said.contains("of another release") && said.ends_with("`ddss dsm rm solver` removes it"), "{said}");
    old.segment().release().unwrap();
    let second = join(&daemon, options(2, 1));
    let mut first = join(&daemon, options(2, 0)).join().unwrap().unwrap();
    let _second = second.join().unwrap().unwrap();
    // The row of rank 1.
    client.table::<[u8]>(&name).open().unwrap().row(2).put(&[0x55; 128]).unwrap();
    let said = first.barrier().unwrap_err().to_string();
    assert!(said.starts_with("row 2 of the group is of another release"), "{said}");
}

// If this failed, a program that wants no deadline would die in a sum of times.
#[test]
fn longest_deadline_is_none() {
    let daemon = Daemon::start(1).unwrap();
    let space = Space::join(&connect(daemon.folder()), NAME, SpaceOptions::new(1, BYTES).timeout(Duration::MAX));
    let mut space = space.unwrap();
    space.checkpoint(1).unwrap();
    space.leave().unwrap();
}
