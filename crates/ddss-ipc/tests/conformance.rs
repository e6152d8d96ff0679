//! One suite for every strategy: the same calls have the same results under each transport and each back-off.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ddss_ipc::{AttachOptions, Attachment, BackOff, Channel, Strategy, WaitClass, WaitOutcome};
use rustix::event::{PollFd, PollFlags};
use support::{Echo, INVERT, LATER, NEVER, NOW, REVERSE, TIMEOUT, attach, call, role, spawn};

const CALLS: u64 = 5_000;

/// Strategy of a client, and the number of cores for which its back-off is made.
#[derive(Clone, Copy)]
struct Way {
    strategy: Strategy,
    cores: usize,
}

impl Way {
    fn set(self, options: &mut AttachOptions) {
        (options.strategy, options.back_off) = (self.strategy, BackOff::for_cores(self.cores));
    }
}

macro_rules! suite {
    ($($name:ident: $strategy:expr, $cores:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn another_process_calls_and_detaches() {
                super::another_process_calls_and_detaches(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn full_window_is_refused_and_drains() {
                super::full_window_is_refused_and_drains(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn all_channels_full_lose_no_entry() {
                super::all_channels_full_lose_no_entry(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn replies_in_any_order_reach_their_channel() {
                super::replies_in_any_order_reach_their_channel(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn payloads_travel_in_the_arena() {
                super::payloads_travel_in_the_arena(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn channel_has_one_owner_and_is_reusable() {
                super::channel_has_one_owner_and_is_reusable(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn wait_ends_at_its_deadline() {
                super::wait_ends_at_its_deadline(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn wait_ends_when_daemon_is_killed() {
                super::wait_ends_when_daemon_is_killed(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn completion_makes_descriptor_readable() {
                super::completion_makes_descriptor_readable(Way { strategy: $strategy, cores: $cores });
            }

            #[test]
            fn sleeping_service_is_woken() {
                super::sleeping_service_is_woken(Way { strategy: $strategy, cores: $cores });
            }
        }
    )* };
}

suite! {
    mq: Strategy::Mq, 2;
    rmq: Strategy::Rmq, 2;
    rcq: Strategy::Rcq, 2;
    auto: Strategy::Auto, 2;
    rcq_with_own_core: Strategy::Rcq, 4;
    auto_with_own_core: Strategy::Auto, 4;
}

/// Child process that calls.
#[test]
fn child_client() {
    // A child that did nothing would pass its parent's test: the parent counts the replies.
    let Some(argument) = role() else { return };
    let [strategy, cores, path]: [&str; 3] = argument.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let way = Way { strategy: strategy.parse().unwrap(), cores: cores.parse().unwrap() };
    let attachment = attach(path.as_ref(), |options| way.set(options));
    let mut channel = attachment.take_channel().unwrap();
    for value in 0..CALLS {
        let class = match value % 64 {
            0 => WaitClass::Sleeping,
            _ => WaitClass::Polling,
        };
        call(&mut channel, class, value);
    }
}

/// Child process that serves, until it is killed or its standard input ends.
#[test]
fn child_daemon() {
    // A daemon that never started would leave its parent waiting, which fails there.
    if role().is_none() {
        return;
    }
    let echo = Echo::start();
    println!("\nat {}", echo.path.display());
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn with(way: Way, channels: usize) -> (Echo, Attachment) {
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| {
        way.set(options);
        options.channels = channels;
    });
    assert_eq!(attachment.strategy(), way.strategy);
    (echo, attachment)
}

fn wait(channel: &mut Channel) -> u64 {
    assert_eq!(channel.wait(WaitClass::Polling, Instant::now() + TIMEOUT), WaitOutcome::Ready);
    channel.reap().unwrap()[1]
}

fn another_process_calls_and_detaches(way: Way) {
    // If this failed, no client could communicate with the daemon at all.
    let echo = Echo::start();
    let child = spawn("child_client", &format!("{} {} {}", way.strategy, way.cores, echo.path.display()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    echo.wait_for("all answers", |seen| seen.answered.load(Ordering::Acquire) == CALLS);
    echo.wait_for("the child's end", |seen| seen.detached.load(Ordering::Acquire) == 1);
}

fn full_window_is_refused_and_drains(way: Way) {
    // If this failed, a client with many calls in flight would overwrite its own requests.
    let (_echo, attachment) = with(way, 1);
    let mut channel = attachment.take_channel().unwrap();
    for round in 0..50_u64 {
        for slot in 0..64_u64 {
            channel.submit([0, round << 8 | slot, 0, NOW, 0, 0, 0, 0]).unwrap();
        }
        assert!(channel.submit([0; 8]).is_err());
        channel.ring_doorbell();
        for slot in 0..64_u64 {
            assert_eq!(wait(&mut channel), !(round << 8 | slot));
        }
        assert_eq!((channel.reap(), channel.outstanding()), (None, 0));
    }
}

fn all_channels_full_lose_no_entry(way: Way) {
    // If this failed, requests or replies would vanish when a message queue (256 entries by default) is full.
    let (_echo, attachment) = with(way, 16);
    let mut channels: Vec<Channel> = std::iter::from_fn(|| attachment.take_channel()).collect();
    assert_eq!(channels.len(), 16);
    for round in 0..4_u64 {
        for channel in &mut channels {
            let index = u64::from(channel.index());
            for slot in 0..64_u64 {
                channel.submit([0, round << 16 | index << 8 | slot, 0, NOW, 0, 0, 0, 0]).unwrap();
            }
            channel.ring_doorbell();
        }
        for channel in &mut channels {
            let index = u64::from(channel.index());
            for slot in 0..64_u64 {
                assert_eq!(wait(channel), !(round << 16 | index << 8 | slot));
            }
        }
    }
}

fn replies_in_any_order_reach_their_channel(way: Way) {
    // If this failed, a fast operation could not overtake a slow one, or its reply would go to another thread.
    let (echo, attachment) = with(way, 2);
    let (mut first, mut second) = (attachment.take_channel().unwrap(), attachment.take_channel().unwrap());
    for value in 0..40 {
        first.submit([0, value, 0, LATER, 0, 0, 0, 0]).unwrap();
        second.submit([0, 100 + value, 0, LATER, 0, 0, 0, 0]).unwrap();
    }
    first.ring_doorbell();
    second.ring_doorbell();
    // The service must have all of them before it is told to reverse them.
    echo.wait_for("all requests", |seen| seen.answered.load(Ordering::Acquire) == 80);
    second.submit([0, 7, 0, REVERSE, 0, 0, 0, 0]).unwrap();
    second.ring_doorbell();
    for value in (0..40).rev() {
        assert_eq!(wait(&mut first), !value);
        assert_eq!(wait(&mut second), !(100 + value));
    }
    assert_eq!(wait(&mut second), !7);
}

fn payloads_travel_in_the_arena(way: Way) {
    // If this failed, payloads longer than an entry would arrive damaged, or at another client.
    let (_echo, attachment) = with(way, 1);
    let mut channel = attachment.take_channel().unwrap();
    for (offset, bytes) in [(0, 1), (4096, 4096), (100, 8192), (0, 1 << 16)] {
        let sent: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        attachment.arena().write(offset, &sent).unwrap();
        channel.submit([0, 1, 0, INVERT, offset as u64, bytes as u64, 0, 0]).unwrap();
        channel.ring_doorbell();
        assert_eq!(wait(&mut channel), !1);
        let mut back = vec![0; bytes];
        attachment.arena().read(offset, &mut back).unwrap();
        assert!(back.iter().zip(&sent).all(|(back, sent)| *back == !*sent), "{bytes} bytes at {offset}");
    }
}

fn channel_has_one_owner_and_is_reusable(way: Way) {
    // If this failed, two threads would write one ring, or a new holder would get an old holder's reply.
    let (_echo, attachment) = with(way, 2);
    let (mut first, second) = (attachment.take_channel().unwrap(), attachment.take_channel().unwrap());
    assert_ne!(first.index(), second.index());
    assert!(attachment.take_channel().is_none());
    for value in 0..10 {
        first.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
    }
    first.ring_doorbell();
    drop(first);
    let deadline = Instant::now() + TIMEOUT;
    let mut again = loop {
        if let Some(channel) = attachment.take_channel() {
            break channel;
        }
        assert!(Instant::now() < deadline, "the channel never became free");
    };
    assert_eq!(again.outstanding(), 0);
    call(&mut again, WaitClass::Polling, 99);
    // A channel may outlive its attachment.
    drop(attachment);
    call(&mut again, WaitClass::Polling, 100);
}

fn wait_ends_at_its_deadline(way: Way) {
    // If this failed, a call would hang forever on an operation that hangs.
    let (_echo, attachment) = with(way, 1);
    let mut channel = attachment.take_channel().unwrap();
    channel.submit([0, 1, 0, NEVER, 0, 0, 0, 0]).unwrap();
    channel.ring_doorbell();
    for class in [WaitClass::Polling, WaitClass::Sleeping, WaitClass::Polling] {
        let deadline = Instant::now() + Duration::from_millis(30);
        assert_eq!(channel.wait(class, deadline), WaitOutcome::TimedOut);
        assert!(Instant::now() >= deadline);
    }
    // Later requests are still answered.
    channel.submit([0, 2, 0, NOW, 0, 0, 0, 0]).unwrap();
    channel.ring_doorbell();
    assert_eq!(wait(&mut channel), !2);
    assert_eq!(channel.outstanding(), 1);
}

fn wait_ends_when_daemon_is_killed(way: Way) {
    // If this failed, every client of a crashed daemon would hang until its deadline, or forever.
    let mut daemon = spawn("child_daemon", "serve");
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let path = loop {
        let line = lines.next().expect("the daemon came up").unwrap();
        if let Some(path) = line.strip_prefix("at ") {
            break path.to_owned();
        }
    };
    let attachment = attach(path.as_ref(), |options| way.set(options));
    let mut channels: Vec<Channel> = std::iter::from_fn(|| attachment.take_channel()).collect();
    call(&mut channels[0], WaitClass::Polling, 1);
    assert!(attachment.is_alive());
    // One channel waits during the kill, the other only afterwards.
    channels[0].submit([0, 1, 0, NEVER, 0, 0, 0, 0]).unwrap();
    channels[0].ring_doorbell();
    let mut waiting = channels.remove(0);
    let waiter = std::thread::spawn(move || waiting.wait(WaitClass::Polling, Instant::now() + TIMEOUT));
    std::thread::sleep(Duration::from_millis(30));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Gone);
    channels[0].submit([0, 1, 0, NOW, 0, 0, 0, 0]).unwrap();
    channels[0].ring_doorbell();
    assert_eq!(channels[0].wait(WaitClass::Sleeping, Instant::now() + TIMEOUT), WaitOutcome::Gone);
    assert!(!attachment.is_alive());
    support::clean_after_a_dead_daemon(path.as_ref());
}

fn completion_makes_descriptor_readable(way: Way) {
    // If this failed, a future would never resolve, or an executor would spin.
    let (echo, attachment) = with(way, 2);
    let mut channels: Vec<Channel> = std::iter::from_fn(|| attachment.take_channel()).collect();
    let deadline = Instant::now() + TIMEOUT;
    for round in 0..200 {
        let mut waiting = BTreeSet::new();
        for (index, channel) in channels.iter_mut().enumerate() {
            channel.submit([0, round, 0, NOW, 0, 0, 0, 0]).unwrap();
            channel.ring_doorbell();
            waiting.insert(index);
        }
        while !waiting.is_empty() {
            assert!(Instant::now() < deadline);
            let all_armed = waiting.iter().all(|index| channels[*index].arm_async());
            if all_armed {
                let limit = rustix::time::Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
                let descriptor = attachment.async_descriptor();
                let mut asked = [PollFd::new(&descriptor, PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut asked, Some(&limit)).unwrap(), 1, "the task was not woken");
            }
            assert!(attachment.clear_async());
            waiting.retain(|index| {
                channels[*index].disarm_async();
                let reaped = channels[*index].reap();
                assert!(reaped.is_none_or(|entry| entry[1] == !round));
                reaped.is_none()
            });
        }
    }
    drop(echo);
    assert!(!attachment.clear_async(), "the end of the daemon makes the descriptor readable");
}

fn sleeping_service_is_woken(way: Way) {
    // If this failed, the first call after an idle minute would wait for its deadline.
    let (echo, attachment) = with(way, 1);
    let mut channel = attachment.take_channel().unwrap();
    for value in 0..20 {
        echo.wait_for("a rest", |seen| seen.is_sleeping.load(Ordering::Acquire));
        call(&mut channel, WaitClass::Polling, value);
    }
}
