//! The coherence models between two nodes, with real daemons: history, read cache, vectored calls, locks, lists.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{
    Client, ConnectOptions, Error, ErrorKind, GetOptions, LockOptions, Mode, Model, NodeId, Permissions, Placement,
    PutOptions, Segment, Spec, Strategy, Value, Version,
};
use ddss_testkit::{Daemon, SetOnDrop};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Opens a segment of another node, as soon as the nodes are connected.
fn open(client: &Client, name: &str) -> Segment {
    let end = Instant::now() + PATIENCE;
    loop {
        match client.segment(name).open() {
            Ok(segment) => return segment,
            Err(error) if Instant::now() > end => panic!("{name} cannot be opened: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A minimal executor that polls in a loop.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

// If this failed, an audit could not read the version that a reader saw a moment ago, or would get another one.
#[test]
fn history_versions_are_readable_from_every_node() {
    let [a, b] = Daemon::pair().unwrap();
    let here = client(&a).segment("kept").allocate(Spec::new(5000).history(3)).unwrap();
    let there = open(&client(&b), "kept");
    for turn in 1..=6u8 {
        here.put(0, &[turn; 5000]).unwrap();
    }
    for segment in [&here, &there] {
        for version in 3..=6 {
            let value = segment.get_with(.., GetOptions::new().at_version(Version(version))).unwrap();
            assert_eq!((value.version().0, &value[..]), (version, &[version as u8; 5000][..]));
        }
        assert_eq!(failure(segment.get_with(.., GetOptions::new().at_version(Version(2)))), ErrorKind::VersionGone);
        assert_eq!(failure(segment.get_with(.., GetOptions::new().at_version(Version(7)))), ErrorKind::VersionMismatch);
        let part = segment.get_with(4990..5000, GetOptions::new().at_version(Version(4))).unwrap();
        assert_eq!(&part[..], &[4; 10][..]);
    }
    let bare = client(&a).segment("bare").allocate(Spec::new(8)).unwrap();
    bare.put(0, &[1; 8]).unwrap();
    let far = open(&client(&b), "bare");
    assert_eq!(&far.get_with(.., GetOptions::new().at_version(Version(1))).unwrap()[..], &[1; 8]);
    assert_eq!(failure(far.get_with(.., GetOptions::new().at_version(Version(0)))), ErrorKind::VersionGone);
    assert_eq!(failure(client(&a).segment("much").allocate(Spec::new(2 << 20).history(3))), ErrorKind::BadArgument);
}

// If this failed, a Temporal segment would cost a round trip for each get, or return a value older than its bound.
#[test]
fn read_cache_serves_fresh_values_and_never_hides_local_puts() {
    let [a, b] = Daemon::pair().unwrap();
    let made = client(&a).segment("prices").allocate(Spec::new(1000).model(Model::Temporal(60_000_000))).unwrap();
    made.put(0, &[1; 1000]).unwrap();
    let (reader, second) = (open(&client(&b), "prices"), open(&client(&b), "prices"));
    assert_eq!(&reader.get(..).unwrap()[..], &[1; 1000]);
    made.put(0, &[2; 1000]).unwrap();
    assert_eq!(&second.get(..).unwrap()[..], &[1; 1000], "the copy is young");
    assert_eq!(&second.with_model(Model::Strict).get(..).unwrap()[..], &[2; 1000], "this once the newest");
    reader.put(0, &[3; 1000]).unwrap();
    assert_eq!(&second.get(..).unwrap()[..], &[3; 1000], "a put of its own node ends it");
    a.pause().unwrap();
    assert_eq!(&second.get(10..20).unwrap()[..], &[3; 10], "its home need not answer");
    let younger = second.with_model(Model::Temporal(1)).with_timeout(Duration::from_millis(300));
    assert!(younger.get(..).is_err(), "a younger one has to come from there");
    a.resume().unwrap();
}

// If this failed, a follower that was notified of a new version would get the old one.
#[test]
fn wait_for_newer_version_bypasses_the_read_cache() {
    let [a, b] = Daemon::pair().unwrap();
    let made = client(&a).segment("followed").allocate(Spec::new(1000).model(Model::Temporal(60_000_000))).unwrap();
    let on_b = client(&b);
    let follower = open(&on_b, "followed");
    let task = block_on(on_b.aio().unwrap().segment("followed").open()).unwrap();
    made.put(0, &[1; 1000]).unwrap();
    let first = follower.get(..).unwrap().version();
    made.put(0, &[2; 1000]).unwrap();
    assert_eq!(follower.get(..).unwrap().version(), first, "the copy is young");
    let newer = follower.get_with(.., GetOptions::new().newer_than(first)).unwrap();
    assert_eq!((newer.version().0, &newer[..]), (first.0 + 1, &[2; 1000][..]));
    assert_eq!(follower.get(..).unwrap().version(), first, "the copy is as it was");
    let newer = block_on(task.get_with(10..20, GetOptions::new().newer_than(first))).unwrap();
    assert_eq!((newer.version().0, &newer[..]), (first.0 + 1, &[2; 10][..]));
}

// If this failed, a record of several fields could be read half old and half new.
#[test]
fn vectored_get_returns_one_version_or_fails() {
    let [a, b] = Daemon::pair().unwrap();
    let here = client(&a).segment("table").allocate(Spec::new(100_000)).unwrap();
    let there = open(&client(&b), "table");
    for (turn, segment) in [&here, &there].into_iter().enumerate() {
        let mark = turn as u8 + 1;
        let stamp = segment.put_many(&[(0, &[mark; 8]), (50_000, &[mark; 40_000]), (99_999, &[mark])]).unwrap();
        for reader in [&here, &there] {
            let parts = reader.get_many(&[0..9, 49_999..90_001, 99_990..100_000]).unwrap();
            assert!(parts.iter().all(|part| part.version() == stamp.version));
            assert_eq!(&parts[0][..], [&[mark; 8][..], &[0]].concat());
            assert_eq!(&parts[1][..], [&[0][..], &[mark; 40_000], &[0]].concat());
            assert_eq!(&parts[2][..], [&[0; 9][..], &[mark]].concat());
        }
        assert!(
            segment
                .put_many(&[(0, &[9; 8]), (99_999, &[9; 2])])
                .is_err_and(|error| error.kind() == ErrorKind::OutOfRange)
        );
        assert_eq!(
            failure(segment.put_with(&[(0, &[9; 8])], PutOptions::new().if_version(Version(0)))),
            ErrorKind::VersionMismatch
        );
        assert_eq!(failure(segment.get_many(&[])), ErrorKind::BadArgument);
        assert_eq!(&segment.get(0..8).unwrap()[..], &[mark; 8], "nothing of it happened");
    }
}

// If this failed, a lock holder would wait for itself, or change its protected data by accident.
#[test]
fn lock_holder_puts_through_its_guard_and_other_puts_fail_at_once() {
    let [a, b] = Daemon::pair().unwrap();
    let here = client(&a).segment("account").allocate(Spec::new(64)).unwrap();
    let there = open(&client(&b), "account");
    for (mine, other) in [(&here, &there), (&there, &here)] {
        let before = mine.get(..).unwrap().version().0;
        let held = mine.lock().unwrap();
        let began = Instant::now();
        assert_eq!(failure(mine.put(0, &[1; 8])), ErrorKind::OwnLock);
        assert_eq!(failure(mine.word(8).fetch_add(1)), ErrorKind::OwnLock);
        assert!(began.elapsed() < PATIENCE / 2, "at once, and not at its deadline");
        held.put(0, &[2; 8]).unwrap();
        held.word(8).fetch_add(5).unwrap();
        held.put_many(&[(16, &[3; 8]), (32, &[4; 8])]).unwrap();
        assert_eq!(mine.get(..).unwrap().version().0, before + 3, "its own gets go on");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.get(..).unwrap().version().0);
            let last = held.put(0, &[5; 8]).unwrap().version.0;
            held.unlock().unwrap();
            assert_eq!(waits.join().unwrap(), last, "a reader sees the end of it and nothing in between");
        });
        mine.put(0, &[6; 8]).unwrap();
    }
}

// If this failed, the lock holder of a segment under the model Version could not change it at all.
#[test]
fn lock_holder_names_a_version_when_the_model_requires_it() {
    let [a, b] = Daemon::pair().unwrap();
    let (on_a, on_b) = (client(&a), client(&b));
    let here = on_a.segment("ledger").allocate(Spec::new(64).model(Model::Version)).unwrap();
    let there = open(&on_b, "ledger");
    for (mine, other) in [(&here, &there), (&there, &here)] {
        let held = mine.lock().unwrap();
        let before = held.version();
        assert_eq!(failure(held.put(0, &[1; 8])), ErrorKind::VersionMismatch, "it names none");
        let first = held.put_if(before, 0, &[2; 40]).unwrap();
        assert_eq!(failure(held.put_if(before, 0, &[3; 8])), ErrorKind::VersionMismatch);
        assert_eq!(
            failure(held.put_with(&[(0, &[3; 8])], PutOptions::new().if_version(before))),
            ErrorKind::VersionMismatch
        );
        let last = held.put_with(&[(0, &[4; 8]), (40, &[4; 8])], PutOptions::new().if_version(first.version)).unwrap();
        assert_eq!(last.version.0, before.0 + 2);
        held.unlock().unwrap();
        let seen = other.get(..).unwrap();
        assert_eq!(
            (seen.stamp, &seen[..8], &seen[8..40], &seen[40..48]),
            (last, &[4; 8][..], &[2; 32][..], &[4; 8][..])
        );
        // A put after the end of the lease is lost, whichever version it names.
        let short = mine.lock_with(LockOptions::new().lease(Duration::from_millis(1))).unwrap();
        drop(other.lock().unwrap());
        assert_eq!(failure(short.put_if(last.version, 0, &[5; 8])), ErrorKind::LockLost);
    }
    for client in [on_a, on_b] {
        let task = block_on(client.aio().unwrap().segment("ledger").open()).unwrap();
        let held = block_on(task.lock()).unwrap();
        assert_eq!(failure(block_on(held.put(0, &[6; 8]))), ErrorKind::VersionMismatch);
        let first = block_on(held.put_if(held.version(), 0, &[6; 8])).unwrap();
        let last = block_on(held.put_with(&[(0, &[7; 40])], PutOptions::new().if_version(first.version))).unwrap();
        assert_eq!(last.version.0, held.version().0 + 2);
        block_on(held.unlock()).unwrap();
    }
}

// If this failed, a put that must not pass a lock would pass it, or a caller could weaken a segment's own promise. A
// put that ends as *indeterminate* may have taken effect: the home's clock starts a moment later, and it may have
// admitted the put when the holder left.
#[test]
fn strict_put_waits_for_lock_holder_and_plain_put_does_not() {
    let [a, b] = Daemon::pair().unwrap();
    let (on_a, on_b) = (client(&a), client(&b));
    let soon = Duration::from_millis(150);
    let loose = on_a.segment("loose").allocate(Spec::new(64).model(Model::Null)).unwrap();
    let strict = on_a.segment("strict").allocate(Spec::new(64)).unwrap();
    let held = [&loose, &strict].map(|segment| segment.lock().unwrap());
    let (mut unsure_of_loose, mut unsure_of_strict) = (0, 0);
    // Another client of the same node, and one of another node.
    for other in [client(&a), on_b] {
        let (loose, strict) = (open(&other, "loose"), open(&other, "strict").with_timeout(soon));
        let task = block_on(other.aio().unwrap().segment("loose").open()).unwrap();
        let before = loose.get(..).unwrap().version().0;
        for model in [Model::Strict, Model::Write] {
            let asking = loose.with_model(model).with_timeout(soon);
            unsure_of_loose += late(asking.put(0, &[1; 8]));
            unsure_of_loose += late(asking.put(0, &[1; 60]));
            unsure_of_loose += late(asking.put_many(&[(0, &[1; 8])]));
            unsure_of_loose += late(block_on(task.with_model(model).with_timeout(soon).put(0, &[1; 8])));
        }
        assert_eq!(loose.put(0, &[2; 8]).unwrap().version.0, before + 1, "a plain one");
        assert_eq!(loose.with_model(Model::Read).put(0, &[2; 60]).unwrap().version.0, before + 2);
        assert_eq!(block_on(task.put_many(&[(0, &[2; 8])])).unwrap().version.0, before + 3);
        unsure_of_strict += late(strict.with_model(Model::Null).put(0, &[3; 8])); // never less
    }
    for held in held {
        held.unlock().unwrap();
    }
    let last = loose.with_model(Model::Strict).put(0, &[4; 8]).unwrap().version.0;
    assert!((7..=7 + unsure_of_loose).contains(&last), "the lock is free: {last}, {unsure_of_loose} unsure");
    assert!(strict.get(..).unwrap().version().0 <= unsure_of_strict);
}

/// Expects that the call timed out; returns the number of versions that it may have made.
fn late<T: std::fmt::Debug>(call: Result<T, Error>) -> u64 {
    let error = call.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    error.is_indeterminate().into()
}

/// Returns the result and the duration of a call.
fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    (what(), began.elapsed())
}

// If this failed, one slow lock would block a service for its longest call timeout.
#[test]
fn handle_calls_use_the_handle_timeout() {
    let [a, b] = Daemon::pair().unwrap();
    let here = client(&a).segment("slow").allocate(Spec::new(64)).unwrap();
    let on_b = client(&b);
    let held = open(&on_b, "slow").lock().unwrap();
    let task = block_on(client(&a).aio().unwrap().segment("slow").open()).unwrap();
    let soon = Duration::from_millis(100);
    let (hasty, hasty_task) = (here.with_timeout(soon), task.with_timeout(soon).with_model(Model::Strict));
    let options = LockOptions::new().timeout(soon);
    let (ends, took) = timed(|| {
        [
            failure(hasty.get(..)),
            failure(hasty.with_model(Model::Strict).get_many(&[0..8, 9..10])),
            failure(hasty.put(0, &[1])),
            failure(hasty.put_many(&[(0, &[1])])),
            failure(hasty.word(0).fetch_add(1)),
            failure(hasty.lock()),
            failure(here.lock_with(options)),
            failure(block_on(hasty_task.get(..))),
            failure(block_on(hasty_task.get_many(&[0..8, 9..10]))),
            failure(block_on(hasty_task.put(0, &[1]))),
            failure(block_on(hasty_task.put_many(&[(0, &[1])]))),
            failure(block_on(hasty_task.word(0).fetch_add(1))),
            failure(block_on(hasty_task.lock())),
            failure(block_on(task.lock_with(options))),
        ]
    });
    assert_eq!(ends, [ErrorKind::TimedOut; 14]);
    assert!(took < PATIENCE, "{took:?}: one of them had the client's time");
    held.unlock().unwrap();
    assert_eq!(here.get(..).unwrap().version(), Version(0), "nothing of it happened");
    // The lock is released nevertheless.
    let (_, took) = timed(|| {
        drop(hasty.with_timeout(Duration::ZERO).lock_with(LockOptions::new().timeout(PATIENCE)).unwrap());
        let held =
            block_on(hasty_task.with_timeout(Duration::ZERO).lock_with(LockOptions::new().timeout(PATIENCE))).unwrap();
        assert_eq!(failure(block_on(held.unlock())), ErrorKind::TimedOut);
        here.lock().unwrap().unlock().unwrap();
    });
    assert!(took < Duration::from_secs(8), "{took:?}: a lease had to end");
    // A call with a timeout of zero fails immediately and sends nothing.
    let never = hasty.with_timeout(Duration::ZERO).put(0, &[1]).unwrap_err();
    assert_eq!((never.kind(), never.is_indeterminate()), (ErrorKind::TimedOut, false));
    let never = block_on(hasty_task.with_timeout(Duration::ZERO).put(0, &[1])).unwrap_err();
    assert_eq!((never.kind(), never.is_indeterminate()), (ErrorKind::TimedOut, false));
}

// If this failed, a call that retries could take twice its caller's time, or forever.
#[test]
fn retried_calls_share_one_deadline() {
    let [a, b] = Daemon::pair().unwrap();
    let (on_a, on_b) = (client(&a), client(&b));
    let mine = on_a.segment("contended").allocate(Spec::new(64)).unwrap();
    let other = open(&on_b, "contended");
    let task = block_on(on_a.aio().unwrap().segment("contended").open()).unwrap();
    let soon = Duration::from_millis(300);
    // A competing put always comes between read and write.
    let begin = Instant::now();
    let in_between = |count: &mut u64| {
        assert!(begin.elapsed() < PATIENCE, "it never ends");
        other.put(0, &[1; 8]).unwrap();
        *count += 1;
    };
    let shared = mine.with_timeout(soon).cell::<u64>(0).unwrap();
    assert_eq!(failure(shared.update(in_between)), ErrorKind::TimedOut);
    let shared = task.with_timeout(soon).cell::<u64>(0).unwrap();
    assert_eq!(failure(block_on(shared.update(in_between))), ErrorKind::TimedOut);
    // The new version comes late, under a lock for which the get that follows would wait.
    let (late, time) = (Duration::from_secs(3), Duration::from_secs(4));
    let (hasty, hasty_task) = (mine.with_timeout(time), task.with_timeout(time));
    let newer = |ask: &(dyn Fn(Version) -> Result<Value, Error> + Sync)| {
        let held = other.lock().unwrap();
        let version = held.version();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| timed(|| ask(version)));
            std::thread::sleep(late);
            held.put(0, &[2; 8]).unwrap();
            let (ended, took) = waits.join().unwrap();
            assert_eq!(failure(ended), ErrorKind::TimedOut);
            assert!(took < late + time * 3 / 4, "{took:?}");
        });
        held.unlock().unwrap();
    };
    newer(&|version| hasty.get_with(.., GetOptions::new().newer_than(version)));
    newer(&|version| block_on(hasty_task.get_with(.., GetOptions::new().newer_than(version))));
}

// If this failed, a call whose daemon dies would restart its time with the search for the next daemon.
#[test]
fn call_keeps_its_deadline_when_daemon_dies() {
    let mut daemon = Daemon::start(1).unwrap();
    let time = Duration::from_secs(6);
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(time)).unwrap();
    let segment = client.segment("watched").allocate(Spec::new(64)).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| timed(|| segment.wait_newer_than(Version(0))));
        std::thread::sleep(time * 3 / 4);
        daemon.kill().unwrap();
        let (ended, took) = waits.join().unwrap();
        assert!(ended.is_err());
        assert!(took >= time / 2 && took < time * 3 / 2, "{took:?}");
    });
}

// If this failed, a large value under constant puts could never be read from another node.
#[test]
fn large_segment_is_read_whole_under_constant_puts() {
    const BYTES: usize = 1 << 20;
    let [a, b] = Daemon::pair().unwrap();
    for (index, model) in [Model::Strict, Model::Write, Model::Delta(2), Model::Read].into_iter().enumerate() {
        let name = format!("large-{index}");
        let made = client(&a).segment(&name).allocate(Spec::new(BYTES as u64).model(model)).unwrap();
        let reader = open(&client(&b), &name);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = SetOnDrop(&end);
            let writer = scope.spawn(|| {
                let mut turn = 0u8;
                while !end.load(Ordering::Relaxed) {
                    turn = turn.wrapping_add(1);
                    made.put(0, &vec![turn; BYTES]).unwrap();
                }
            });
            let mut newest = 0;
            for _ in 0..20 {
                let value = reader.get(..).unwrap();
                assert!(value.iter().all(|&byte| byte == value[0]), "{model:?}: a mix");
                assert!(value.version().0 >= newest, "{model:?}: back to {} from {newest}", value.version());
                newest = value.version().0;
            }
            end.store(true, Ordering::Relaxed);
            writer.join().unwrap();
        });
        made.release().unwrap();
    }
}

// If this failed, an operator would not see all segments, or a client could not find the homes of its segments.
#[test]
fn segments_are_listed_described_and_placed() {
    let [a, b] = Daemon::pair().unwrap();
    let (on_a, on_b) = (client(&a), client(&b));
    on_a.segment("meet").allocate(Spec::new(8)).unwrap();
    open(&on_b, "meet");
    for index in 0..20 {
        let placement = if index % 2 == 0 { Placement::RoundRobin } else { Placement::Hash };
        let spec = Spec::new(100 + index).placement(placement).history(1).mode(Mode(0o640));
        on_a.segment(&format!("many/{index:02}")).allocate(spec).unwrap();
    }
    on_b.segment("other").allocate(Spec::new(8)).unwrap();
    for client in [&on_a, &on_b] {
        let found: Vec<_> = client.list("many/").map(Result::unwrap).collect();
        let mut names: Vec<String> = found.iter().map(|listing| listing.name.to_string()).collect();
        names.sort();
        assert_eq!(names, (0..20).map(|index| format!("many/{index:02}")).collect::<Vec<_>>());
        let homes = |node| found.iter().filter(|listing| listing.id.home() == NodeId(node)).count();
        assert!(homes(1) >= 5 && homes(2) >= 5, "round robin alone gives five to each");
        assert_eq!(client.list("nothing").count(), 0);
        assert_eq!(client.list("").count(), 22);
    }
    let segment = open(&on_b, "meet");
    segment.put(0, &[1; 8]).unwrap();
    let held = segment.lock().unwrap();
    let info = open(&on_a, "meet").stat().unwrap();
    assert_eq!((info.stamp.version.0, info.lock.holders, info.lock.is_exclusive, info.len), (1, 1, true, 8));
    held.unlock().unwrap();
    segment.set_permissions(Permissions { mode: Mode(0o660), ..segment.stat().unwrap().permissions }).unwrap();
    assert_eq!(open(&on_a, "meet").stat().unwrap().permissions.mode, Mode(0o660));
    assert_eq!(segment.stat().unwrap().permissions.mode, Mode(0o660));
    segment.put(0, &[2; 8]).unwrap();
    assert_eq!(&segment.get(..).unwrap()[..], &[2; 8]);
}

// If this failed, a daemon that was stopped for a while would treat its old cache entries as fresh.
#[test]
fn read_cache_expires_while_daemon_is_stopped() {
    let [a, b] = Daemon::pair().unwrap();
    let made = client(&a).segment("watched").allocate(Spec::new(8).model(Model::Temporal(20_000))).unwrap();
    made.put(0, &[0; 8]).unwrap();
    let options = ConnectOptions::new().directory(b.folder()).timeout(PATIENCE).strategy(Strategy::Rcq);
    let reader = open(&Client::connect_with(options).unwrap(), "watched");
    for round in 1..=10 {
        made.put(0, &[round; 8]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(&reader.get(..).unwrap()[..], &[round; 8], "this makes the copy");
        b.pause().unwrap();
        made.put(0, &[round + 100; 8]).unwrap();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| reader.get(..).unwrap());
            std::thread::sleep(Duration::from_millis(60));
            b.resume().unwrap();
            assert_eq!(&late.join().unwrap()[..], &[round + 100; 8], "round {round}: what is older than 60 ms");
        });
    }
}
