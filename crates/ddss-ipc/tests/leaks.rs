//! Clients that come and go, and clients that are killed: nothing of them stays behind.
//!
//! Every test here counts what its process holds, so they run one after the other.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ddss_ipc::{Attachment, Channel, Strategy, WaitClass};
use rustix::process::{Pid, Signal, kill_process};
use support::raw::{hear, knock, say_with};
use support::{Echo, attach, call, descriptors, role, serial, spawn};

/// What this process holds that a client could leave behind.
#[derive(PartialEq, Eq, Debug)]
struct Held {
    descriptors: usize,
    mappings: usize,
    threads: usize,
}

fn held() -> Held {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    Held {
        descriptors: descriptors(),
        mappings: maps.lines().filter(|line| line.contains("memfd:ddss-client")).count(),
        threads: threads(),
    }
}

/// Threads that this crate started; those of the test harness come and go as they like.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path().join("comm"));
    names.filter(|name| std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("ddss-"))).count()
}

/// Everything that leaves is gone only when the service has seen it leave.
fn until_held(expected: &Held) {
    let deadline = Instant::now() + support::PATIENCE;
    while held() != *expected {
        assert!(Instant::now() < deadline, "left behind: {:?}, expected {expected:?}", held());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Queues that are there, of those whose keys were written down.
fn queues_noted(echo: &Echo) -> usize {
    let ledger = std::fs::read(echo.folder.path().join("socket.queues")).unwrap_or_default();
    let queues = std::fs::read_to_string("/proc/sysvipc/msg").unwrap();
    let there: Vec<&str> = queues.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let keys = ledger.chunks(4).map(|key| i32::from_ne_bytes(key.try_into().unwrap()).to_string());
    keys.filter(|key| key != "0" && there.contains(&key.as_str())).count()
}

/// A child with many clients, all of them calling until it is killed.
#[test]
fn child_caller() {
    // A child that did nothing would be killed in vain: the parent waits until it says that it calls.
    let Some(argument) = role() else { return };
    let (strategy, path) = argument.split_once(' ').unwrap();
    let attachments: Vec<Attachment> =
        (0..20).map(|_| attach(path.as_ref(), |options| options.strategy = strategy.parse().unwrap())).collect();
    let mut lanes: Vec<Channel> = attachments.iter().filter_map(Attachment::take_lane).collect();
    for lane in &mut lanes {
        call(lane, WaitClass::Polling, 0);
    }
    println!("\ncalling");
    for value in 0.. {
        let lane = &mut lanes[value as usize % 20];
        call(lane, if value % 3 == 0 { WaitClass::Sleeping } else { WaitClass::Polling }, value);
    }
}

#[test]
fn a_thousand_clients_come_and_go() {
    // If this broke, a daemon would run out of descriptors, memory or queues after some days.
    let _alone = serial();
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        // What is opened once (the ledger) is opened now.
        drop(attach(&echo.path, |options| options.strategy = strategy));
        echo.until("the first to leave", |seen| seen.left.load(Ordering::Acquire) == 1);
        let before = held();
        for _ in 0..250 {
            let attachment = attach(&echo.path, |options| options.strategy = strategy);
            call(&mut attachment.take_lane().unwrap(), WaitClass::Polling, 1);
        }
        echo.until("all to leave", |seen| seen.left.load(Ordering::Acquire) == 251);
        until_held(&before);
        assert_eq!(queues_noted(&echo), 0);
    }
}

#[test]
fn who_attaches_again_and_again_waits_a_moment_and_is_let_in() {
    // If this broke, a user with many short processes would be refused, or would wait until his handshake is over its time.
    let _alone = serial();
    let echo = Echo::start();
    drop(attach(&echo.path, |_| {}));
    echo.until("the first to leave", |seen| seen.left.load(Ordering::Acquire) == 1);
    let before = held();
    // More than a user may at once.
    for _ in 0..700 {
        drop(attach(&echo.path, |_| {}));
    }
    // Some at the same time, of whom half are gone before it is their turn.
    for _ in 0..32 {
        say_with(&knock(&echo.path), b"no hello", &[]);
    }
    let attach_and_leave = || drop(attach(&echo.path, |_| {}));
    std::thread::scope(|scope| (0..32).for_each(|_| drop(scope.spawn(attach_and_leave))));
    echo.until("all to leave", |seen| seen.left.load(Ordering::Acquire) == 733);
    until_held(&before);
}

#[test]
fn a_thousand_killed_clients_leave_nothing_and_disturb_nobody() {
    // If this broke, a crash of a client would cost the daemon memory, or its neighbours an answer.
    let _alone = serial();
    let echo = Echo::start();
    for strategy in [Strategy::Mq, Strategy::Auto] {
        drop(attach(&echo.path, |options| options.strategy = strategy));
    }
    echo.until("the first to leave", |seen| seen.left.load(Ordering::Acquire) == 2);
    let before = held();
    let friend = attach(&echo.path, |_| {});
    let mut lane = friend.take_lane().unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..50_u64 {
        let strategy = Strategy::ALL[round as usize % 4];
        let mut child = spawn("child_caller", &format!("{strategy} {}", echo.path.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "calling"), "the child never called");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Somewhere between two of its instructions.
        std::thread::sleep(Duration::from_nanos(random % 2_000_000));
        child.kill().unwrap();
        child.wait().unwrap();
        call(&mut lane, WaitClass::Polling, round);
    }
    drop((lane, friend));
    echo.until("all to leave", |seen| seen.left.load(Ordering::Acquire) == 1003);
    until_held(&before);
    assert_eq!(queues_noted(&echo), 0);
    assert_eq!(echo.seen.offences.load(Ordering::Acquire), 0, "the dead were accused");
}

#[test]
fn a_stopped_client_holds_nobody_up_and_goes_on() {
    // If this broke, one client under a debugger would hang its whole node.
    let _alone = serial();
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        let mut child = spawn("child_caller", &format!("{strategy} {}", echo.path.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "calling"), "the child never called");
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let friend = attach(&echo.path, |options| options.strategy = strategy);
        let mut lane = friend.take_lane().unwrap();
        for _ in 0..10 {
            kill_process(pid, Signal::STOP).unwrap();
            for value in 0..50 {
                call(&mut lane, WaitClass::Polling, value);
            }
            let answered = echo.seen.answered.load(Ordering::Acquire);
            kill_process(pid, Signal::CONT).unwrap();
            echo.until("it to go on", |seen| seen.answered.load(Ordering::Acquire) > answered + 10);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        echo.until("its end", |seen| seen.left.load(Ordering::Acquire) == 20);
    }
}

#[test]
fn five_hundred_idle_clients_cost_the_busy_one_nothing_but_memory() {
    // If this broke, a node would be full long before its limit of clients.
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
    let mut lane = busy.take_lane().unwrap();
    for value in 0..20_000 {
        call(&mut lane, WaitClass::Polling, value);
    }
    // And each of the idle ones is found when it stirs.
    for attachment in &idle {
        call(&mut attachment.take_lane().unwrap(), WaitClass::Polling, 1);
    }
}

#[test]
fn descriptors_sent_along_are_not_kept() {
    // If this broke, a stranger could use up the daemon's descriptors.
    let _alone = serial();
    let echo = Echo::start();
    let sockets: Vec<_> = (0..4).map(|_| knock(&echo.path)).collect();
    drop(attach(&echo.path, |_| {}));
    echo.until("the end", |seen| seen.left.load(Ordering::Acquire) == 1);
    let before = descriptors();
    for socket in &sockets {
        say_with(socket, &[0; 64], &vec![socket.as_fd(); 60]);
        assert!(!hear(socket).0.is_empty());
    }
    // The door's ends of the four sockets are gone, and nothing came instead.
    assert!(descriptors() <= before, "{} descriptors, before {before}", descriptors());
}
