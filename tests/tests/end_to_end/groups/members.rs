//! Groups of processes: places, connections and deaths, with real daemons and processes.
//!
//! The test is member 0. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, LockOptions, ReplicationInfo};
use ddss_auth::Context;
use ddss_group::{
    Change, Group, GroupEvent, JoinError, JoinOptions, LostReason, MEMBERS_MAX, Member, Membership, NOTE_BYTES, inspect,
};
use ddss_testkit::{Daemon, DaemonOptions};
use ddss_verbs::{Events, Fabric, Iwarp, IwarpConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const CHILD: &str = "DDSS_TEST_GROUP_MEMBER";
const CONTEXT: Context = Context { name: *b"group test", release: 1 };
const LEASE: Duration = Duration::from_secs(6);
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "solver";

/// Event of a group, as tests compare it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Up(u16),
    Message(u16, Vec<u8>),
    Left(u16),
    Lost(u16, LostReason),
    Replaced,
}

/// A member with its fabric.
struct Process {
    fabric: Iwarp,
    group: Group,
    events: Events,
    start: Instant,
}

impl Process {
    fn join(folder: &Path, number: u16, members: u16) -> Result<Self, JoinError> {
        let client = Client::connect_with(ConnectOptions::new().directory(folder))?;
        let mut fabric = Iwarp::new(IwarpConfig::default())?;
        let address = fabric.listen("127.0.0.1:0".parse().unwrap())?;
        let options = JoinOptions::new(members, address).number(number).lease(LEASE);
        let membership = Membership::join(&client, NAME, &options)?;
        let group = Group::new(membership, &mut fabric, CONTEXT, LEASE)?;
        Ok(Self { fabric, group, events: Events::new(), start: Instant::now() })
    }

    /// Polls once, and passes on what has happened.
    fn step(&mut self, mut each: impl FnMut(&mut Group, &mut Iwarp, Seen)) {
        let Self { fabric, group, events, start } = self;
        let mut seen = Vec::new();
        fabric.poll(events);
        for event in events.iter() {
            seen.extend(group.handle(fabric, &event, start.elapsed()).and_then(words));
        }
        events.clear();
        while let Some(event) = group.tick(fabric, start.elapsed()) {
            seen.extend(words(event));
        }
        for seen in seen {
            each(group, fabric, seen);
        }
        self.sleep();
    }

    /// Sleeps until there is work, for at most a few milliseconds.
    fn sleep(&mut self) {
        if self.fabric.arm() {
            let (fabric, directory) = (self.fabric.descriptor(), self.group.descriptor());
            let mut both = [fabric, directory].map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
            let _ = poll(&mut both, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
            self.fabric.disarm();
        }
    }

    /// Runs until `is_done` says so of what has been seen; fails after the deadline.
    fn until(&mut self, what: &str, mut is_done: impl FnMut(&[Seen]) -> bool) -> Vec<Seen> {
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while !is_done(&all) {
            assert!(Instant::now() < end, "{what}: {all:?}");
            self.step(|_, _, seen| all.push(seen));
        }
        all
    }

    /// Runs while another thread does something else: a member that does not poll is silent.
    fn meanwhile<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let mut seen = Vec::new();
            while !work.is_finished() {
                self.step(|_, _, event| seen.push(event));
            }
            assert_eq!(seen, [], "nothing happens meanwhile");
            work.join().unwrap()
        })
    }

    fn send(&mut self, to: u16, message: &[u8]) {
        self.group.send(&mut self.fabric, Member(to), &[message]).unwrap();
    }

    /// Sends a message, and waits until the member has sent it back.
    fn exchange(&mut self, to: u16, message: &[u8]) -> Vec<Seen> {
        self.send(to, message);
        self.until("no answer", |all| all.contains(&Seen::Message(to, message.to_vec())))
    }
}

fn words(event: GroupEvent<'_>) -> Option<Seen> {
    Some(match event {
        GroupEvent::Up(member) => Seen::Up(member.0),
        GroupEvent::Message { from, bytes } => Seen::Message(from.0, bytes.to_vec()),
        GroupEvent::Left(member) => Seen::Left(member.0),
        GroupEvent::Lost(member, reason) => Seen::Lost(member.0, reason),
        GroupEvent::Replaced => Seen::Replaced,
        _ => return None,
    })
}

/// Starts this program again as a member that sends each message back, and leaves when it gets an empty one.
fn start(test: &str, daemon: &Daemon, number: u16, members: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{number} {members} {}", daemon.folder().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs the member that `start` asked for. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let [number, members, folder] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let mut process = Process::join(Path::new(folder), number.parse().unwrap(), members.parse().unwrap()).unwrap();
    let end = Instant::now() + 3 * PATIENCE;
    let mut leaves = false;
    while !leaves && Instant::now() < end {
        process.step(|group, fabric, seen| match seen {
            Seen::Message(from, bytes) if !bytes.is_empty() => group.send(fabric, Member(from), &[&bytes]).unwrap(),
            Seen::Message(..) => leaves = true,
            Seen::Lost(0, _) | Seen::Left(0) | Seen::Replaced => leaves = true,
            _ => {}
        });
    }
    for other in (0..MEMBERS_MAX).map(Member) {
        process.group.mesh().leave(&mut process.fabric, other);
    }
    let end = Instant::now() + Duration::from_secs(2);
    while process.group.peer(Member(0)).is_some() && Instant::now() < end {
        process.step(|_, _, _| ());
    }
    true
}

fn all_up(members: u16) -> impl FnMut(&[Seen]) -> bool {
    move |all| (1..members).all(|member| all.contains(&Seen::Up(member)))
}

// If this failed, a program on several nodes would not find its members, or would wait for dead ones for ever.
#[test]
fn members_of_two_nodes_meet_and_each_end_is_told_once_and_with_its_reason() {
    if is_child() {
        return;
    }
    let test = "groups::members::members_of_two_nodes_meet_and_each_end_is_told_once_and_with_its_reason";
    let [a, b] = Daemon::pair().unwrap();
    let mut first = Process::join(a.folder(), 0, 4).unwrap();
    let mut children = [(1, &a), (2, &b), (3, &b)].map(|(number, daemon)| start(test, daemon, number, 4));
    first.until("not all are up", all_up(4));
    for member in 1..4 {
        let all = first.exchange(member, format!("hello {member}").as_bytes());
        assert_eq!(all.len(), 1, "{all:?}");
    }

    // A place is not given twice.
    let taken = first.meanwhile(|| Process::join(b.folder(), 2, 4).err().unwrap());
    assert!(matches!(taken, JoinError::Taken { member: Member(2), .. }), "{taken}");

    // In order; killed; stopped.
    first.send(1, b"");
    assert_eq!(first.until("1 has not left", |all| !all.is_empty()), [Seen::Left(1)]);
    assert!(first.meanwhile(|| children[0].wait().unwrap().success()));
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    let lost = first.until("2 is not lost", |all| !all.is_empty());
    assert!(matches!(lost[..], [Seen::Lost(2, LostReason::Closed(_))]), "{lost:?}");
    let stopped = rustix::process::Pid::from_child(&children[2]);
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    let lost = first.until("3 is not lost", |all| !all.is_empty());
    assert!(matches!(lost[..], [Seen::Lost(3, LostReason::Dead | LostReason::Silent)]), "{lost:?}");
    children[2].kill().unwrap();
    children[2].wait().unwrap();

    // The places are free again.
    let mut again = [(1, &b), (2, &a), (3, &b)].map(|(number, daemon)| start(test, daemon, number, 4));
    let all = first.until("not all are up again", all_up(4));
    let others: BTreeSet<u16> =
        all.iter().filter_map(|seen| if let Seen::Up(member) = seen { Some(*member) } else { None }).collect();
    assert_eq!((others.len(), all.len()), (3, 3), "{all:?}");
    for member in 1..4 {
        first.exchange(member, b"again");
        first.send(member, b"");
    }
    assert!(again.iter_mut().all(|child| child.wait().unwrap().success()));
}

// If this failed, a process that joins behind a restart of a daemon would throw a living member out.
#[test]
fn joining_process_leaves_the_place_of_a_member_whose_lock_has_ended() {
    let daemon = Daemon::start(1).unwrap();
    let _first = Process::join(daemon.folder(), 0, 3).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    // As a restart of the home does. The member takes its lock again within a third of its lease.
    assert_eq!(client.table::<[u8]>(NAME).open().unwrap().segment().break_lock().unwrap(), 1);
    let options = JoinOptions::new(3, "127.0.0.1:9".parse().unwrap()).lease(LEASE);
    let other = Membership::join(&client, NAME, &options).unwrap();
    assert_eq!(other.ours().member, Member(1));
    // Every other place is taken: it waits until it knows that the first one's is, too.
    let third = Membership::join(&client, NAME, &options).unwrap();
    assert_eq!(third.ours().member, Member(2));
    client.table::<[u8]>(NAME).open().unwrap().segment().break_lock().unwrap();
    assert!(matches!(Membership::join(&client, NAME, &options).unwrap_err(), JoinError::Full { .. }));
}

// If this failed, the restart of a daemon would end every computation on its node.
#[test]
fn group_goes_on_without_its_daemon_and_keeps_its_places_after_it() {
    if is_child() {
        return;
    }
    let test = "groups::members::group_goes_on_without_its_daemon_and_keeps_its_places_after_it";
    let mut daemon = Daemon::start(1).unwrap();
    let mut first = Process::join(daemon.folder(), 0, 2).unwrap();
    let mut child = start(test, &daemon, 1, 2);
    first.until("1 is not up", all_up(2));
    daemon.kill().unwrap();
    for turn in 0..20_u8 {
        let all = first.exchange(1, &[turn + 1]);
        assert_eq!(all.len(), 1, "{all:?}");
    }
    // Longer than the lease.
    let end = Instant::now() + LEASE + LEASE / 2;
    let quiet = first.until("never", |_| Instant::now() > end);
    assert_eq!(quiet, [], "nobody is lost because of a daemon");
    daemon.restart().unwrap();
    // The daemon has forgotten the locks; the members take them again.
    let end = Instant::now() + PATIENCE;
    let mut is_kept = [false; 2];
    while is_kept != [true; 2] {
        assert!(Instant::now() < end, "{is_kept:?}");
        for number in 0..2 {
            // A process that comes before the member has its lock again takes its place: so nobody comes for a while.
            let all = first.until("never", {
                let later = Instant::now() + LEASE;
                move |_| Instant::now() > later
            });
            assert_eq!(all, [], "{number}");
            is_kept[usize::from(number)] =
                matches!(Process::join(daemon.folder(), number, 2), Err(JoinError::Taken { .. }));
        }
    }
    first.exchange(1, b"still here");
    first.send(1, b"");
    assert!(child.wait().unwrap().success());
}

/// Fails if a membership has learned that the others have lost it.
fn assert_has_place(member: &Membership) {
    while let Some(change) = member.next_change() {
        assert!(!matches!(change, Change::Replaced), "a living member has lost its place");
        assert!(!matches!(change, Change::Released), "a directory that is away for a moment is taken for released");
    }
    assert!(member.group_state().has_place().unwrap());
}

// If this failed, a member that had just joined would be thrown out when its lock ends with the home of the directory.
#[test]
fn member_that_is_not_connected_yet_outlives_its_lock() {
    let daemon = Daemon::start(1).unwrap();
    let mut first = Process::join(daemon.folder(), 0, 2).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    // It has a place, and no fabric: no connection to it comes up.
    let options = JoinOptions::new(2, "127.0.0.1:9".parse().unwrap()).lease(LEASE);
    let second = Membership::join(&client, NAME, &options).unwrap();
    let silent = Instant::now() + 2 * Group::SILENCE;
    assert_eq!(first.until("never", |_| Instant::now() > silent), []);
    // As a restart of the home does, or its death with two copies. The member takes its lock again within a third of its lease.
    assert_eq!(client.table::<[u8]>(NAME).open().unwrap().segment().break_lock().unwrap(), 2);
    let lost = first.until("no end", |all| !all.is_empty());
    assert_eq!(lost, [Seen::Lost(1, LostReason::Silent)], "its free lock proves nothing");
    assert_has_place(&second);
}

// If this failed, members would be lost, or could not join, while a directory with two copies moves to its replica.
#[test]
fn members_join_and_stay_while_the_directory_moves_to_its_replica() {
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    let mut nodes = [first, second];
    let options = JoinOptions::new(3, "127.0.0.1:9".parse().unwrap()).lease(LEASE).copies(2);
    let connect = |daemon: &Daemon| {
        let options = ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE / 4);
        Client::connect_with(options).unwrap()
    };
    // The directory is at the second node.
    drop(Membership::join(&connect(&nodes[1]), NAME, &options).unwrap());
    let client = connect(&nodes[0]);
    let segment = client.segment(NAME).open().unwrap();
    let end = Instant::now() + PATIENCE;
    while segment.stat().unwrap().replication != ReplicationInfo::InSync {
        assert!(Instant::now() < end, "{:?}", segment.stat());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(segment.stat().unwrap().home.0, 2);
    let mut first = Process::join(nodes[0].folder(), 0, 3).unwrap();
    let second = Membership::join(&client, NAME, &options).unwrap();
    nodes[1].kill().unwrap();
    let mut lost = Vec::new();
    let third = std::thread::scope(|scope| {
        let joining = scope.spawn(|| Membership::join(&client, NAME, &options));
        while !joining.is_finished() {
            first.step(|_, _, seen| lost.push(seen));
        }
        joining.join().unwrap().expect("a place while the directory moves")
    });
    assert_eq!(segment.stat().unwrap().home.0, 1);
    // No connection to the others comes up: in the end they are silent for too long.
    let is_lost = |lost: &[Seen], member| lost.iter().any(|seen| matches!(seen, Seen::Lost(of, _) if *of == member));
    first.until("no end", |seen| {
        let all = [&lost[..], seen].concat();
        is_lost(&all, 1) && is_lost(&all, 2)
    });
    [second, third].iter().for_each(assert_has_place);
}

// If this failed, members with other settings would misread each other, or an error would not say what to do.
#[test]
fn joining_a_group_of_another_kind_says_what_to_do() {
    if is_child() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let address = "127.0.0.1:7".parse().unwrap();
    let options = JoinOptions::new(2, address).settings([1; NOTE_BYTES]);
    let join = |options: &JoinOptions| Membership::join(&client, NAME, options);
    let refused = |options: &JoinOptions| join(options).err().unwrap().to_string();
    let first = join(&options).unwrap();
    assert_eq!(first.ours().member, Member(0), "the first free place");
    let second = join(&options).unwrap();
    assert_eq!(second.ours().member, Member(1));
    assert_eq!(first.key(), second.key());
    assert_eq!(refused(&options), "all 2 places of solver are taken");
    assert_eq!(
        refused(&options.settings([2; NOTE_BYTES])),
        "solver was made with other settings: start all members with the same, or remove the group"
    );
    assert_eq!(
        refused(&JoinOptions::new(3, address)),
        "solver was made for 2 members, and this process wants 3: use one number, or remove the group"
    );
    assert_eq!(refused(&JoinOptions::new(0, address)), "members 0 is not allowed: it is 1 to 64");
    assert_eq!(refused(&JoinOptions::new(2, address).number(2)), "place 2 is not allowed: it is 0 to 1");
    drop(second);
    let third = join(&options).unwrap();
    assert_eq!(third.ours().member, Member(1), "a place that was given up is free");
    assert_ne!(third.ours().run, 0);
}

// If this failed, a process that comes while others look whether a place is free would be told that the group is full.
#[test]
fn place_that_another_member_probes_is_free() {
    if is_child() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let options = JoinOptions::new(2, "127.0.0.1:7".parse().unwrap());
    let _first = Membership::join(&client, NAME, &options).unwrap();
    // As a member does for a moment that finds the row of a dead one.
    let table = client.table::<[u8]>(NAME).open().unwrap();
    let probe = table.row(4).lock_with(LockOptions::new().lease(Duration::from_secs(10)).keep_alive()).unwrap();
    let second = std::thread::scope(|scope| {
        let joining = scope.spawn(|| Membership::join(&client, NAME, &options));
        std::thread::sleep(Duration::from_millis(100));
        drop(probe);
        joining.join().unwrap()
    });
    assert_eq!(second.unwrap().ours().member, Member(1));
}

// If this failed, a rank would be refused because another one, on another node, was making the same group at that moment.
#[test]
fn members_that_make_a_group_at_the_same_time_all_join() {
    const MEMBERS: u16 = 4;
    let nodes = Daemon::pair().unwrap();
    let clients = [0, 1].map(|node: usize| Client::connect_with(ConnectOptions::new().directory(nodes[node].folder())));
    let clients = clients.map(Result::unwrap);
    for round in 0..100 {
        let (name, start) = (format!("group-{round}"), Barrier::new(MEMBERS.into()));
        std::thread::scope(|scope| {
            for number in 0..MEMBERS {
                let (client, name, start) = (&clients[usize::from(number) % 2], &name, &start);
                scope.spawn(move || {
                    let options = JoinOptions::new(MEMBERS, "127.0.0.1:1".parse().unwrap()).number(number).lease(LEASE);
                    start.wait();
                    drop(Membership::join(client, name, &options).unwrap());
                });
            }
        });
    }
}

// If this failed, processes that look whether a member lives would take each other for that member, and wait for the dead for ever.
#[test]
fn dead_member_is_dead_however_many_processes_look_at_its_lock() {
    let daemon = Daemon::start(1).unwrap();
    let connect = || Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let options = JoinOptions::new(2, "127.0.0.1:7".parse().unwrap()).lease(LEASE);
    let first = Membership::join(&connect(), NAME, &options).unwrap();
    // The row of a process that died: nobody holds its lock.
    let table = connect().table::<[u8]>(NAME).open().unwrap();
    let mut dead = table.row(1).get().unwrap().to_vec();
    dead[4..8].copy_from_slice(&(first.ours().run ^ 1).to_le_bytes());
    table.row(2).put(&dead).unwrap();
    let (is_over, end) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    std::thread::scope(|scope| {
        let look = || {
            let (client, mut looks) = (connect(), 0);
            while looks < 500 || !is_over.load(Ordering::Acquire) {
                let living = inspect(&client, NAME).unwrap().unwrap().members;
                assert_eq!(living.iter().filter(|member| member.whom.member == Member(1)).count(), 0, "look {looks}");
                looks += 1;
            }
        };
        let looking = [(); 4].map(|()| scope.spawn(look));
        // More seldom than the thread of the membership looks.
        let mut found = None;
        while found.is_none() && Instant::now() < end {
            first.suspect(Member(1));
            std::thread::sleep(Duration::from_millis(400));
            found = first.next_change();
        }
        is_over.store(true, Ordering::Release);
        looking.into_iter().for_each(|looking| looking.join().unwrap());
        assert_eq!(found, Some(Change::LockFree(Member(1))));
    });
}

/// Waits for the next news of a member.
fn next_change(member: &Membership) -> Change {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(change) = member.next_change() {
            return change;
        }
        assert!(Instant::now() < end, "no news");
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, a member whose place is cleared by a late write, or whose directory is no more, would believe in it for ever.
#[test]
fn member_without_a_row_learns_it_although_it_holds_its_lock() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let options = JoinOptions::new(2, "127.0.0.1:7".parse().unwrap()).lease(LEASE);
    let cleared = Membership::join(&client, NAME, &options).unwrap();
    let table = client.table::<[u8]>(NAME).open().unwrap();
    // As a process does that was stopped between its read of the row and this write.
    table.row(1).put(&[0; 128]).unwrap();
    assert_eq!(next_change(&cleared), Change::Replaced);
    drop(cleared);
    let member = Membership::join(&client, NAME, &options).unwrap();
    table.segment().release().unwrap();
    assert_eq!(next_change(&member), Change::Released);
}
