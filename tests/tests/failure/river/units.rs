//! Unit queues between real processes and daemons: deaths, stops, restarts, the loss of a node, and bad input.
//!
//! The test is a worker. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test what it claimed")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ReplicationInfo};
use ddss_river::{Unit, UnitInfo, UnitOptions, UnitQueue, UnitStatus};
use ddss_testkit::{Daemon, DaemonOptions, Process};

const CHILD: &str = "DDSS_TEST_UNITS";
const NAME: &str = "thumbnails";
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Wait that must not end with a unit.
const SHORT: Duration = Duration::from_millis(300);
/// Lease of a claim. A living worker must not miss it on a busy machine.
const LEASE: Duration = Duration::from_secs(4);
const UNITS: u32 = 20;
/// Units of a process that is killed while it adds them.
const MANY: u32 = 8_000;

fn connect(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder)).unwrap()
}

fn open(folder: &Path) -> UnitQueue {
    UnitQueue::open(&connect(folder), NAME).unwrap().with_timeout(PATIENCE)
}

fn names(units: u32) -> Vec<String> {
    (0..units).map(|number| format!("unit {number}")).collect()
}

/// A queue with units.
fn filled(daemon: &Daemon, copies: u8) -> UnitQueue {
    let options = UnitOptions::new().lease(LEASE).copies(copies);
    // A table with two copies waits for its replica, on a busy machine for seconds.
    let patient = ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE / 4);
    let client = Client::connect_with(patient).unwrap();
    let queue = UnitQueue::create(&client, NAME, options).unwrap().with_timeout(PATIENCE);
    assert_eq!(queue.add(&names(UNITS)).unwrap(), 0..UNITS);
    queue
}

/// Starts this program again, as a process that does a job.
fn start(test: &str, daemon: &Daemon, job: &str) -> Process {
    start_as(job, test, daemon, job)
}

/// Starts a process whose output has a name of its own.
fn start_as(name: &str, test: &str, daemon: &Daemon, job: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("river::units::{test}"), "--nocapture"]);
    command.env(CHILD, format!("{job} {}", daemon.folder().display()));
    Process::start(command, daemon.folder(), name).unwrap()
}

/// Does the job that `start` asked for. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let (job, folder) = words.split_once(' ').unwrap();
    let (folder, queue) = (Path::new(folder), open(Path::new(folder)));
    match job {
        "work" => {
            while let Some(unit) = queue.claim().unwrap() {
                println!("claimed {} {}", unit.number(), unit.attempt());
                unit.done(b"by a child").unwrap();
            }
            println!("ended");
        }
        "hold" => hold(&queue.claim().unwrap().unwrap(), &folder.join("go")),
        "add" => {
            println!("adds");
            queue.add(&names(MANY)).unwrap();
            println!("added");
        }
        other => panic!("{other}"),
    }
    true
}

// If this failed, a program that looks for units beside other duties would never get those of a dead worker.
#[test]
fn unit_of_a_dead_worker_is_claimed_by_calls_that_do_not_wait() {
    if is_child() {
        return;
    }
    let test = "unit_of_a_dead_worker_is_claimed_by_calls_that_do_not_wait";
    let daemon = Daemon::start(1).unwrap();
    let options = UnitOptions::new().lease(LEASE / 4);
    let queue = UnitQueue::create(&connect(daemon.folder()), NAME, options).unwrap().with_timeout(PATIENCE);
    queue.add(&["one"]).unwrap();
    let mut holder = start(test, &daemon, "hold");
    line(&mut holder, "holds ");
    assert!(queue.claim_within(Duration::ZERO).is_err());
    holder.kill().unwrap();
    // Each pause is longer than that between two renewals.
    let claimed = (0..20).find_map(|_| {
        std::thread::sleep(LEASE / 10);
        queue.claim_within(Duration::ZERO).ok()
    });
    let unit = claimed.expect("no call claims the unit").expect("the unit is neither done nor failed");
    assert_eq!((unit.bytes(), unit.attempt()), (&b"one"[..], 2));
    unit.done(b"").unwrap();
}

// If this failed, a worker that comes too early would be told to release the list.
#[test]
fn list_that_is_created_at_the_moment_is_no_damaged_one() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    // A process that creates the list is killed before its first row.
    let spec = ddss::Spec::new(2 + 16_384).row_len(64 + 256 + 256).model(ddss::Model::Write);
    client.table::<[u8]>("river/thumbnails/units").allocate(spec).unwrap();
    let early = UnitQueue::open(&client, NAME).unwrap_err().to_string();
    assert_eq!(early, "there is no unit queue thumbnails: create it");
    UnitQueue::create(&client, NAME, UnitOptions::new()).unwrap().add(&["one"]).unwrap();
    assert_eq!(UnitQueue::open(&client, NAME).unwrap().count().unwrap(), 1);
    let one_copy = UnitQueue::create(&client, NAME, UnitOptions::new().copies(2)).unwrap_err().to_string();
    assert_eq!(one_copy, "queue thumbnails has copies 1, and this process wants 2: use the same in all processes");
}

/// Holds a unit until a file exists, and ends it then.
fn hold(unit: &Unit, go: &Path) {
    println!("holds {}", unit.number());
    let end = Instant::now() + PATIENCE;
    while !go.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    match unit.done(b"late") {
        Ok(()) => println!("late done"),
        Err(error) => println!("late {error}"),
    }
}

/// Waits until a process has written a line that begins so. Returns the rest of it.
fn line(process: &mut Process, start: &str) -> String {
    let found = |process: &Process| {
        let text = process.stdout();
        // A line may be in work.
        text.split_inclusive('\n').find_map(|line| Some(line.strip_suffix('\n')?.strip_prefix(start)?.to_owned()))
    };
    process.wait_until(PATIENCE, |process| found(process).is_some()).unwrap();
    found(process).unwrap()
}

/// A process that holds a unit, and the number of that unit.
fn start_victim(test: &str, daemon: &Daemon) -> (Process, u32) {
    let mut victim = start(test, daemon, "hold");
    let held = line(&mut victim, "holds ").parse().unwrap();
    (victim, held)
}

/// Claims and ends units until each is settled. Returns their numbers and attempts.
fn work_off(queue: &UnitQueue) -> Vec<(u32, u16)> {
    let mut done = Vec::new();
    while let Some(unit) = queue.claim().unwrap() {
        assert_eq!(unit.bytes(), format!("unit {}", unit.number()).as_bytes());
        done.push((unit.number(), unit.attempt()));
        unit.done(b"by the test").unwrap();
    }
    done
}

fn listed(queue: &UnitQueue) -> Vec<UnitInfo> {
    queue.list().unwrap().collect::<Result<_, _>>().unwrap()
}

fn all_done(queue: &UnitQueue) {
    let units = listed(queue);
    assert_eq!(units.len(), UNITS as usize);
    assert!(units.iter().all(|unit| unit.status == UnitStatus::Done), "{units:?}");
}

// If this failed, work would be lost with the process that does it.
#[test]
fn unit_of_a_killed_worker_is_claimed_again_after_its_lease() {
    if is_child() {
        return;
    }
    let test = "unit_of_a_killed_worker_is_claimed_again_after_its_lease";
    let nodes = Daemon::pair().unwrap();
    let queue = filled(&nodes[0], 1);
    let (mut victim, held) = start_victim(test, &nodes[1]);
    victim.kill().unwrap();
    let mut done = work_off(&queue);
    assert_eq!(done.pop(), Some((held, 2)), "the unit of the dead worker comes last, a second time");
    assert!(done.iter().all(|(_, attempt)| *attempt == 1) && done.len() == UNITS as usize - 1, "{done:?}");
    all_done(&queue);
    assert_eq!(listed(&queue)[held as usize].strikes, 1);
}

// If this failed, the late end of a unit would replace the result that counts.
#[test]
fn stopped_worker_that_returns_cannot_end_its_unit() {
    if is_child() {
        return;
    }
    let test = "stopped_worker_that_returns_cannot_end_its_unit";
    let nodes = Daemon::pair().unwrap();
    let queue = filled(&nodes[0], 1);
    let (mut victim, held) = start_victim(test, &nodes[1]);
    victim.pause().unwrap();
    assert_eq!(work_off(&queue).pop(), Some((held, 2)));
    std::fs::write(nodes[1].folder().join("go"), b"").unwrap();
    victim.resume().unwrap();
    let late = line(&mut victim, "late ");
    assert!(late.starts_with(&format!("unit {held} of queue {NAME} was given to another worker")), "{late}");
    all_done(&queue);
    assert_eq!(listed(&queue)[held as usize].result, b"by the test");
}

// If this failed, the restart of a daemon would take units from living workers, or end the list.
#[test]
fn units_survive_the_restart_of_their_daemon_and_stay_with_living_workers() {
    if is_child() {
        return;
    }
    let test = "units_survive_the_restart_of_their_daemon_and_stay_with_living_workers";
    let mut daemon = Daemon::start(1).unwrap();
    let queue = filled(&daemon, 1);
    let (mut victim, held) = start_victim(test, &daemon);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| work_off(&queue));
        // The worker of this process is waiting for the last unit by now, or will be.
        std::thread::sleep(LEASE / 4);
        daemon.kill().unwrap();
        // An outage that is longer than a lease.
        std::thread::sleep(LEASE + LEASE / 2);
        daemon.restart().unwrap();
        std::thread::sleep(LEASE + LEASE / 2);
        std::fs::write(daemon.folder().join("go"), b"").unwrap();
        assert_eq!(line(&mut victim, "late "), "done");
        let done = waiting.join().unwrap();
        assert!(done.len() == UNITS as usize - 1 && !done.contains(&(held, 2)), "{done:?}");
    });
    all_done(&queue);
    assert_eq!((&listed(&queue)[held as usize].result[..], listed(&queue)[held as usize].attempts), (&b"late"[..], 1));
}

// If this failed, a list of work would be lost with the node that stores it.
#[test]
fn units_with_two_copies_survive_the_loss_of_each_node() {
    if is_child() {
        return;
    }
    let test = "units_with_two_copies_survive_the_loss_of_each_node";
    // The list of the first round has its home on the node that is killed, that of the second its replica.
    for home in [1, 0] {
        let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
        let second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
        let mut nodes = [first, second];
        filled(&nodes[home], 2);
        let client = connect(nodes[0].folder());
        let segment = client.segment(&format!("river/{NAME}/units")).open().unwrap();
        let end = Instant::now() + PATIENCE;
        while segment.stat().unwrap().replication != ReplicationInfo::InSync {
            assert!(Instant::now() < end, "{:?}", segment.stat());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(usize::from(segment.stat().unwrap().home.0), home + 1);
        let queue = open(nodes[0].folder());
        let (_victim, held) = start_victim(test, &nodes[1]);
        nodes[1].kill().unwrap();
        let mut done = work_off(&queue);
        assert_eq!(done.pop(), Some((held, 2)), "its worker cannot renew the claim without its node");
        assert!(done.len() == UNITS as usize - 1 && done.iter().all(|(_, attempt)| *attempt == 1), "{done:?}");
        all_done(&queue);
        assert_eq!(queue.add(&["unit 20"]).unwrap(), UNITS..UNITS + 1);
        assert_eq!(work_off(&queue), [(UNITS, 1)]);
    }
}

// If this failed, a unit that ends every worker would stop the others, or be forgotten.
#[test]
fn unit_that_fails_three_times_is_kept_aside_until_it_is_retried() {
    let daemon = Daemon::start(1).unwrap();
    let queue = filled(&daemon, 1);
    let other = open(daemon.folder());
    for attempt in 1..=3 {
        while let Some(unit) = queue.claim().unwrap() {
            if unit.number() == 7 {
                assert_eq!(unit.attempt(), attempt);
                match attempt {
                    1 => unit.fail(b"no such file").unwrap(),
                    2 => drop(unit),
                    _ => unit.fail(&[b'x'; 999]).unwrap(),
                }
                break;
            }
            unit.done(b"").unwrap();
        }
    }
    work_off(&queue);
    assert!(other.claim().unwrap().is_none());
    let failed = |queue: &UnitQueue| {
        let units = listed(queue).into_iter().filter(|unit| unit.status == UnitStatus::Failed);
        units.map(|unit| (unit.number, unit.attempts, unit.result)).collect::<Vec<_>>()
    };
    assert_eq!(failed(&queue), [(7, 3, vec![b'x'; 256])]);
    assert_eq!(queue.retry().unwrap(), 1);
    // A worker that was at its end before looks again.
    assert_eq!(work_off(&other), [(7, 4)]);
    assert_eq!((queue.retry().unwrap(), failed(&queue)), (0, vec![]));
    all_done(&queue);
}

// If this failed, an interrupted worker would use up attempts, or its units would wait for their lease.
#[test]
fn unit_that_is_given_back_is_claimed_at_once_and_has_no_strike() {
    let daemon = Daemon::start(1).unwrap();
    let queue = filled(&daemon, 1);
    for _ in 0..5 {
        let unit = queue.claim().unwrap().unwrap();
        unit.give_back().unwrap();
        let text = unit.done(b"").unwrap_err().to_string();
        assert_eq!(text, format!("unit {} of queue {NAME} has ended: claim another one", unit.number()));
    }
    // The lease is not over: each is claimed, some for the second time.
    assert_eq!(work_off(&open(daemon.folder())).len(), UNITS as usize);
    let units = listed(&queue);
    assert!(units.iter().all(|unit| unit.strikes == 0) && units.iter().any(|unit| unit.attempts > 1), "{units:?}");
}

// If this failed, a script that is repeated after its death would add a part of its units twice.
#[test]
fn units_of_a_process_that_is_killed_while_it_adds_them_are_all_there_or_none() {
    if is_child() {
        return;
    }
    let test = "units_of_a_process_that_is_killed_while_it_adds_them_are_all_there_or_none";
    let nodes = Daemon::pair().unwrap();
    let queue = filled(&nodes[0], 1);
    let mut count = UNITS;
    for round in 0..3_u32 {
        let mut victim = start(test, &nodes[1], "add");
        line(&mut victim, "adds");
        std::thread::sleep(Duration::from_millis(40) * round);
        victim.kill().unwrap();
        // Others read and work meanwhile. The lock of the dead process is free at once, or after its lease.
        let range = queue.add(&["one more"]).unwrap();
        assert!([count, count + MANY].contains(&range.start), "{range:?} behind {count}");
        count = range.end;
        if count > MANY {
            break;
        }
    }
    let units = listed(&queue);
    assert_eq!(units.len(), count as usize);
    assert!(units.iter().all(|unit| unit.status == UnitStatus::Open && unit.attempts == 0));
    assert_eq!(units.last().unwrap().bytes, b"one more");
}

// If this failed, two processes that add or claim at the same time would lose units, or do some twice.
#[test]
fn units_of_many_adders_are_claimed_once_each_by_many_workers() {
    if is_child() {
        return;
    }
    let test = "units_of_many_adders_are_claimed_once_each_by_many_workers";
    let nodes = Daemon::pair().unwrap();
    let queue = filled(&nodes[0], 1);
    let held = queue.claim().unwrap().unwrap();
    let mut workers = ["a", "b", "c"].map(|name| start_as(name, test, &nodes[usize::from(name != "a")], "work"));
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                let queue = open(node.folder());
                for _ in 0..20 {
                    queue.add(&["a", "b", "c", "d", "e"]).unwrap();
                }
            });
        }
    });
    // While one unit is with this process, the workers do not end.
    held.done(b"").unwrap();
    let mut claimed = vec![held.number()];
    for worker in &mut workers {
        let status = worker.wait(PATIENCE).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{} {}", worker.stdout(), worker.stderr());
        let lines = worker.stdout();
        claimed.extend(
            lines.lines().filter_map(|line| line.strip_prefix("claimed ")?.split(' ').next()?.parse::<u32>().ok()),
        );
    }
    assert_eq!(claimed.len(), UNITS as usize + 200);
    assert_eq!(claimed.iter().copied().collect::<BTreeSet<_>>(), (0..UNITS + 200).collect());
    assert!(listed(&queue).iter().all(|unit| unit.status == UnitStatus::Done && unit.attempts == 1));
}

// If this failed, a worker would neither end nor heed a signal while a node is stopped.
#[test]
fn calls_end_while_the_home_is_stopped() {
    let daemon = Daemon::start(1).unwrap();
    filled(&daemon, 1);
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(SHORT)).unwrap();
    let queue = UnitQueue::open(&client, NAME).unwrap().with_timeout(SHORT);
    let unit = queue.claim().unwrap().unwrap();
    daemon.pause().unwrap();
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        told.send(("done", unit.done(b"").err())).unwrap();
        told.send(("claim", queue.claim().err())).unwrap();
        told.send(("add", queue.add(&["more"]).err())).unwrap();
    });
    for _ in 0..3 {
        let (call, error) = ended.recv_timeout(PATIENCE).expect("a call does not end");
        assert!(error.is_some(), "{call} succeeds without the home");
    }
    daemon.resume().unwrap();
}

// If this failed, a user would search for the reason of a refusal.
#[test]
fn calls_that_are_refused_name_limit_queue_and_setting() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let options = UnitOptions::new().capacity(3).unit_bytes_max(8).result_bytes_max(4);
    let refused = |options: UnitOptions| UnitQueue::create(&client, NAME, options).map(drop).unwrap_err().to_string();
    assert_eq!(
        UnitQueue::open(&client, NAME).map(drop).unwrap_err().to_string(),
        "there is no unit queue thumbnails: create it"
    );
    assert_eq!(refused(options.lease(Duration::ZERO)), "lease in ms is 0: use 1 to 600000");
    let queue = UnitQueue::create(&client, NAME, options).unwrap();
    for (other, setting, theirs, ours) in [
        (options.lease(LEASE), "lease in ms", 10_000, 4_000),
        (options.capacity(4), "capacity", 3, 4),
        (options.unit_bytes_max(16), "unit_bytes_max", 8, 16),
    ] {
        let text = format!(
            "queue {NAME} has {setting} {theirs}, and this process wants {ours}: use the same in all processes"
        );
        assert_eq!(refused(other), text);
    }
    assert!(queue.claim().unwrap().is_none(), "an empty list is at its end");
    assert_eq!(
        queue.add(&["short", "much too long"]).unwrap_err().to_string(),
        "a unit of 13 bytes is above unit_bytes_max of queue thumbnails, which is 8"
    );
    queue.add(&["a", "b"]).unwrap();
    assert_eq!(
        queue.add(&["c", "d"]).unwrap_err().to_string(),
        "queue thumbnails has 2 units, and is for 3: use another queue, or release this one"
    );
    let units = [queue.claim().unwrap().unwrap(), queue.claim().unwrap().unwrap()];
    assert_eq!(
        units[0].done(b"12345").unwrap_err().to_string(),
        "a result of 5 bytes is above result_bytes_max of queue thumbnails, which is 4"
    );
    let text = queue.claim_within(SHORT).map(drop).unwrap_err().to_string();
    assert!(text.starts_with("all open units are with other workers"), "{text}");
    units[0].done(b"1234").unwrap();
    assert_eq!(listed(&queue)[0].result, b"1234");
    // A client with access writes what no worker writes.
    let table = client.table::<[u8]>(&format!("river/{NAME}/units")).open().unwrap();
    table.row(3).put(&[9; 32]).unwrap();
    let text = queue.list().unwrap().nth(1).unwrap().unwrap_err().to_string();
    assert!(text.starts_with("row 3 of unit queue thumbnails is of another release"), "{text}");
}
