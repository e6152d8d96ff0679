//! Resources after clients end or are killed: nothing remains.
//!
//! Every test here counts the resources of its process, so the tests run one after the other.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ddss_ipc::{Attachment, Channel, Strategy, WaitClass};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use rustix::process::{Pid, Signal, kill_process};
use support::raw::{connect, receive, send_with_descriptors};
use support::{Echo, attach, call, descriptors, role, serial, spawn};

/// Resources of this process that a client could leave behind.
#[derive(PartialEq, Eq, Debug)]
struct Resources {
    descriptors: usize,
    mappings: usize,
    threads: usize,
}

fn count_resources() -> Resources {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    Resources {
        descriptors: descriptors(),
        mappings: maps.lines().filter(|line| line.contains("memfd:ddss-client")).count(),
        threads: threads(),
    }
}

/// Counts the threads that this crate started; those of the test harness come and go.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path().join("comm"));
    names.filter(|name| std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("ddss-"))).count()
}

/// Waits until the resources are as expected. They are released only when the service has handled each end.
fn wait_for_resources(expected: &Resources) {
    let deadline = Instant::now() + support::TIMEOUT;
    while count_resources() != *expected {
        assert!(Instant::now() < deadline, "resources {:?}, expected {expected:?}", count_resources());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts the existing queues among those in the journal.
fn count_queues(echo: &Echo) -> usize {
    let journal = std::fs::read(echo.folder.path().join("socket.queues")).unwrap_or_default();
    let queues = std::fs::read_to_string("/proc/sysvipc/msg").unwrap();
    let there: Vec<&str> = queues.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let keys = journal.chunks(4).map(|key| i32::from_ne_bytes(key.try_into().unwrap()).to_string());
    keys.filter(|key| key != "0" && there.contains(&key.as_str())).count()
}

/// Child process with many clients, all of which call until it is killed.
#[test]
fn child_caller() {
    // A child that did nothing would be killed in vain: the parent waits until it reports that it calls.
    let Some(argument) = role() else { return };
    let (strategy, path) = argument.split_once(' ').unwrap();
    let attachments: Vec<Attachment> =
        (0..20).map(|_| attach(path.as_ref(), |options| options.strategy = strategy.parse().unwrap())).collect();
    let mut channels: Vec<Channel> = attachments.iter().filter_map(Attachment::take_channel).collect();
    for channel in &mut channels {
        call(channel, WaitClass::Polling, 0);
    }
    println!("\ncalling");
    for value in 0.. {
        let channel = &mut channels[value as usize % 20];
        call(channel, if value % 3 == 0 { WaitClass::Sleeping } else { WaitClass::Polling }, value);
    }
}

#[test]
fn thousand_clients_leave_no_resources() {
    // If this failed, a daemon would run out of descriptors, memory or queues after some days.
    let _alone = serial();
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        // Files that are opened once (the journal) are opened now.
        drop(attach(&echo.path, |options| options.strategy = strategy));
        echo.wait_for("the first to leave", |seen| seen.detached.load(Ordering::Acquire) == 1);
        let before = count_resources();
        for _ in 0..250 {
            let attachment = attach(&echo.path, |options| options.strategy = strategy);
            call(&mut attachment.take_channel().unwrap(), WaitClass::Polling, 1);
        }
        echo.wait_for("all to leave", |seen| seen.detached.load(Ordering::Acquire) == 251);
        wait_for_resources(&before);
        assert_eq!(count_queues(&echo), 0);
    }
}

#[test]
fn frequent_attaches_are_delayed_not_refused() {
    // If this failed, a user with many short processes would be refused, or its handshakes would time out.
    let _alone = serial();
    let echo = Echo::start();
    drop(attach(&echo.path, |_| {}));
    echo.wait_for("the first to leave", |seen| seen.detached.load(Ordering::Acquire) == 1);
    let before = count_resources();
    // More than the burst of one user.
    for _ in 0..700 {
        drop(attach(&echo.path, |_| {}));
    }
    // Concurrent ones, of which half end before their turn.
    for _ in 0..32 {
        send_with_descriptors(&connect(&echo.path), b"no hello", &[]);
    }
    let attach_and_leave = || drop(attach(&echo.path, |_| {}));
    std::thread::scope(|scope| (0..32).for_each(|_| drop(scope.spawn(attach_and_leave))));
    echo.wait_for("all to leave", |seen| seen.detached.load(Ordering::Acquire) == 733);
    wait_for_resources(&before);
}

#[test]
fn thousand_killed_clients_leave_no_resources() {
    // If this failed, a crash of a client would cost the daemon memory, or another client a reply.
    let _alone = serial();
    let echo = Echo::start();
    for strategy in [Strategy::Mq, Strategy::Auto] {
        drop(attach(&echo.path, |options| options.strategy = strategy));
    }
    echo.wait_for("the first to leave", |seen| seen.detached.load(Ordering::Acquire) == 2);
    let before = count_resources();
    let honest = attach(&echo.path, |_| {});
    let mut channel = honest.take_channel().unwrap();
    let mut random = SplitMix64::seed_from_u64(1);
    for round in 0..50_u64 {
        let strategy = Strategy::ALL[round as usize % 4];
        let mut child = spawn("child_caller", &format!("{strategy} {}", echo.path.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "calling"), "the child never called");
        // Between any two of its instructions.
        std::thread::sleep(Duration::from_nanos(random.next_u64() % 2_000_000));
        child.kill().unwrap();
        child.wait().unwrap();
        call(&mut channel, WaitClass::Polling, round);
    }
    drop((channel, honest));
    echo.wait_for("all to leave", |seen| seen.detached.load(Ordering::Acquire) == 1003);
    wait_for_resources(&before);
    assert_eq!(count_queues(&echo), 0);
    assert_eq!(echo.seen.violations.load(Ordering::Acquire), 0, "killed clients were reported");
}

#[test]
fn stopped_client_does_not_block_others_and_resumes() {
    // If this failed, one client under a debugger would hang its whole node.
    let _alone = serial();
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        let mut child = spawn("child_caller", &format!("{strategy} {}", echo.path.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "calling"), "the child never called");
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let honest = attach(&echo.path, |options| options.strategy = strategy);
        let mut channel = honest.take_channel().unwrap();
        for _ in 0..10 {
            kill_process(pid, Signal::STOP).unwrap();
            for value in 0..50 {
                call(&mut channel, WaitClass::Polling, value);
            }
            let answered = echo.seen.answered.load(Ordering::Acquire);
            kill_process(pid, Signal::CONT).unwrap();
            echo.wait_for("it to go on", |seen| seen.answered.load(Ordering::Acquire) > answered + 10);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        echo.wait_for("its end", |seen| seen.detached.load(Ordering::Acquire) == 20);
    }
}

#[test]
fn idle_clients_do_not_slow_busy_client() {
    // If this failed, a node would be full long before its limit of clients.
    let _alone = serial();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if limit.is_some_and(|limit| limit < 6000) {
        println!("skipped: {limit:?} descriptors are too few for 512 clients and their daemon in one process");
        return;
    }
    let echo = Echo::start();
    let idle: Vec<Attachment> =
        (0..512).map(|index| attach(&echo.path, |options| options.strategy = Strategy::ALL[index % 4])).collect();
    let busy = attach(&echo.path, |_| {});
    let mut channel = busy.take_channel().unwrap();
    for value in 0..20_000 {
        call(&mut channel, WaitClass::Polling, value);
    }
    // Each of the idle clients is served when it calls.
    for attachment in &idle {
        call(&mut attachment.take_channel().unwrap(), WaitClass::Polling, 1);
    }
}

#[test]
fn unsolicited_descriptors_are_closed() {
    // If this failed, an unauthenticated process could exhaust the daemon's descriptors.
    let _alone = serial();
    let echo = Echo::start();
    let sockets: Vec<_> = (0..4).map(|_| connect(&echo.path)).collect();
    drop(attach(&echo.path, |_| {}));
    echo.wait_for("the end", |seen| seen.detached.load(Ordering::Acquire) == 1);
    let before = descriptors();
    for socket in &sockets {
        send_with_descriptors(socket, &[0; 64], &vec![socket.as_fd(); 60]);
        assert!(!receive(socket).0.is_empty());
    }
    // The daemon's ends of the four sockets are closed, and nothing else was opened.
    assert!(descriptors() <= before, "{} descriptors, before {before}", descriptors());
}
