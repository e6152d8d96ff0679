//! Shutdown of a daemon: pending calls complete, new calls are refused, and no acknowledged data is lost.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{
    Client, ConnectOptions, ErrorKind, LockOptions, NodeId, Placement, ReplicationInfo, Segment, Spec, Strategy,
};
use ddss_testkit::{Daemon, DaemonOptions, Process, TEST_KEY, TempNode, binary, block_on, write_key};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time limit that no call here reaches, below the drain time of the daemons that must not use it up.
const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon, strategy: Strategy) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).strategy(strategy).timeout(PATIENCE))
        .expect("the daemon serves")
}

fn is_soon(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "never {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Time of calls that no daemon serves.
const SHORT: Duration = Duration::from_millis(100);

/// Waits until new calls are refused, because this node is stopping.
fn wait_until_it_refuses(one: &Segment) {
    is_soon("refuses what is new", || match one.with_timeout(SHORT).put(0, &[0; 8]) {
        Ok(_) => false,
        Err(error) => {
            assert!(error.kind() == ErrorKind::NodeDown, "{error}");
            assert!(error.to_string().contains("this node is stopping") && !error.is_indeterminate(), "{error}");
            true
        }
    });
}

/// Options of a lock with a lease longer than any test, so that only the holder's end releases it.
fn for_long() -> LockOptions {
    LockOptions::new().lease(Duration::from_secs(600))
}

fn draining(ms: u64) -> Daemon {
    DaemonOptions::new(1).unwrap().argument("--drain-ms").argument(ms.to_string()).start().unwrap()
}

// If this failed, each upgrade of a daemon would break the calls that its clients had just begun.
#[test]
fn pending_calls_complete_before_shutdown() {
    let mut daemon = draining(60_000);
    let holder = client(&daemon, Strategy::Auto);
    let other = holder.segment("other").allocate(Spec::new(64)).unwrap();
    let shared = holder.segment("shared").allocate(Spec::new(64)).unwrap();
    let locked = shared.lock_with(for_long()).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = Strategy::ALL
            .iter()
            .map(|&strategy| {
                let segment = client(&daemon, strategy).segment("shared").open().unwrap();
                scope.spawn(move || segment.word(0).fetch_add(1))
            })
            .collect();
        // Each addition is in flight and waits behind the lock.
        is_soon("is everybody in line", || usize::from(shared.stat().unwrap().lock.waiting) == waiting.len());
        let late = client(&daemon, Strategy::Auto).segment("other").open().unwrap();
        daemon.process().terminate().unwrap();
        wait_until_it_refuses(&late);
        assert!(Client::connect_with(ConnectOptions::new().directory(daemon.folder())).is_err(), "somebody was let in");
        assert!(other.with_timeout(SHORT).put(0, &[1; 8]).unwrap_err().kind() == ErrorKind::NodeDown);
        // The unlock is accepted nevertheless, because it lets other calls end.
        drop(locked);
        for one in waiting {
            one.join().unwrap().unwrap();
        }
    });
    let status = daemon.process().wait(PATIENCE).unwrap().expect("all had ended");
    assert_eq!(status.code(), Some(0), "{}", daemon.process().stderr());
    assert!(daemon.process().stderr().contains("all requests are finished"), "{}", daemon.process().stderr());
    daemon.restart().unwrap();
    // The same handle continues, and no addition is lost.
    assert_eq!(shared.get(0..8).unwrap()[..], (Strategy::ALL.len() as u64).to_le_bytes());
}

// If this failed, a stop under load would lose acknowledged puts, or leave calls with an unknown outcome.
#[test]
fn each_call_during_shutdown_has_a_definite_outcome() {
    for round in 0..3 {
        let mut daemon = Daemon::start(1).unwrap();
        let maker = client(&daemon, Strategy::Auto);
        let names: Vec<String> = Strategy::ALL.iter().map(|strategy| format!("of-{strategy}")).collect();
        let made: Vec<Segment> =
            names.iter().map(|name| maker.segment(name).allocate(Spec::new(64)).unwrap()).collect();
        let done = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            for ((name, &strategy), done) in names.iter().zip(Strategy::ALL.iter()).zip(&done) {
                let segment = client(&daemon, strategy).segment(name).open().unwrap().with_timeout(PATIENCE / 10);
                scope.spawn(move || {
                    let error = loop {
                        match segment.word(0).fetch_add(1) {
                            Ok(_) => _ = done.fetch_add(1, Ordering::Release),
                            Err(error) => break error,
                        }
                    };
                    let told = matches!(error.kind(), ErrorKind::NoDaemon | ErrorKind::NodeDown);
                    assert!(told && !error.is_indeterminate(), "{strategy}: {error}");
                });
            }
            is_soon("has each of them called", || {
                done.iter().all(|done| done.load(Ordering::Acquire) > 20 + 50 * round)
            });
            daemon.process().terminate().unwrap();
        });
        assert!(daemon.process().wait(PATIENCE).unwrap().is_some_and(|status| status.success()));
        daemon.restart().unwrap();
        for (segment, done) in made.iter().zip(&done) {
            assert_eq!(segment.get(0..8).unwrap()[..], done.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

// If this failed, waiters would wait for the end of a lease although the holder has unlocked.
#[test]
fn unlock_works_during_shutdown() {
    let mut daemon = draining(600_000);
    let maker = client(&daemon, Strategy::Auto);
    let spare = maker.segment("spare").allocate(Spec::new(64)).unwrap();
    let names: Vec<String> = Strategy::ALL.iter().map(|strategy| format!("of-{strategy}")).collect();
    let made: Vec<Segment> = names.iter().map(|name| maker.segment(name).allocate(Spec::new(64)).unwrap()).collect();
    let own: Vec<Segment> = names
        .iter()
        .zip(Strategy::ALL)
        .map(|(name, strategy)| client(&daemon, strategy).segment(name).open().unwrap())
        .collect();
    let by_threads: Vec<_> = own.iter().map(|segment| segment.lock_with(for_long()).unwrap()).collect();
    let tasks = client(&daemon, Strategy::Auto).aio().unwrap();
    let by_tasks: Vec<_> = ["told", "dropped"]
        .map(|name| {
            maker.segment(name).allocate(Spec::new(64)).unwrap();
            block_on(async { tasks.segment(name).open().await.unwrap().lock_with(for_long()).await.unwrap() })
        })
        .into();
    let of_tasks = block_on(tasks.segment("spare").open()).unwrap();
    let waited_for: Vec<Segment> = (made.iter().map(|segment| segment.name()))
        .chain(["told", "dropped"])
        .map(|name| client(&daemon, Strategy::Auto).segment(name).open().unwrap())
        .collect();
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            waited_for.iter().map(|segment| scope.spawn(move || segment.word(0).fetch_add(1))).collect();
        is_soon("is everybody in line", || {
            waited_for
                .iter()
                .all(|segment| maker.segment(segment.name()).open().unwrap().stat().unwrap().lock.waiting == 1)
        });
        daemon.process().terminate().unwrap();
        wait_until_it_refuses(&spare);
        // Every holder knows that this daemon accepts no new calls.
        for segment in &own {
            let told = segment.with_timeout(SHORT).stat().unwrap_err();
            assert!(told.to_string().contains("this node is stopping"), "{told}");
        }
        let told = block_on(of_tasks.with_timeout(SHORT).stat()).unwrap_err();
        assert!(told.to_string().contains("this node is stopping"), "{told}");
        assert!(waiting.iter().all(|one| !one.is_finished()));
        for (number, locked) in by_threads.into_iter().enumerate() {
            // Dropping the guard also unlocks.
            if number % 2 == 0 { locked.unlock().unwrap() } else { drop(locked) }
        }
        for (number, locked) in by_tasks.into_iter().enumerate() {
            if number % 2 == 0 { block_on(locked.unlock()).unwrap() } else { drop(locked) }
        }
        for one in waiting {
            one.join().unwrap().unwrap();
        }
    });
    let status = daemon.process().wait(PATIENCE).unwrap().expect("all had ended");
    assert_eq!(status.code(), Some(0), "{}", daemon.process().stderr());
    daemon.restart().unwrap();
    for segment in &made {
        assert_eq!(segment.get(0..8).unwrap()[..], 1u64.to_le_bytes());
    }
}

// If this failed, one waiting client would prevent the stop of a daemon.
#[test]
fn second_signal_stops_at_once_and_waiting_calls_fail() {
    let mut daemon = draining(600_000);
    let holder = client(&daemon, Strategy::Auto);
    let shared = holder.segment("shared").allocate(Spec::new(64)).unwrap();
    let other = holder.segment("other").allocate(Spec::new(64)).unwrap();
    let locked = shared.lock().unwrap();
    let waits = client(&daemon, Strategy::Auto).segment("shared").open().unwrap().with_timeout(PATIENCE / 2);
    let wants_lock = client(&daemon, Strategy::Auto).segment("shared").open().unwrap();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| waits.put(0, &[7; 8]));
        let for_a_while = LockOptions::new().timeout(PATIENCE / 8);
        let lock = scope.spawn(move || wants_lock.lock_with(for_a_while).map(drop));
        is_soon("is everybody in line", || shared.stat().unwrap().lock.waiting == 2);
        daemon.process().terminate().unwrap();
        // A lock ends with the daemon, so the wait for it ends, because no other daemon starts before its deadline.
        assert_eq!(lock.join().unwrap().unwrap_err().kind(), ErrorKind::NodeDown);
        wait_until_it_refuses(&other);
        assert!(!put.is_finished());
        daemon.process().terminate().unwrap();
        let status = daemon.process().wait(PATIENCE).unwrap().expect("it was told twice");
        assert_eq!(status.code(), Some(0), "{}", daemon.process().stderr());
        let error = put.join().unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::NodeDown && !error.is_indeterminate(), "{error}");
    });
    drop(locked);
    daemon.restart().unwrap();
    assert_eq!(shared.get(0..8).unwrap()[..], [0; 8]);
}

// If this failed, a stop or a boot would wait for a name service that does not answer.
#[test]
fn daemon_stops_while_searching_for_its_cluster() {
    /// Time limit of the stop. The search alone would take 10 s.
    const SOON: Duration = Duration::from_secs(7);
    for place in ["no-such-host.invalid:7400", "192.0.2.1:7400"] {
        let node = TempNode::new().unwrap();
        write_key(node.path(), TEST_KEY).unwrap();
        let mut command = Command::new(binary("ddssd").unwrap());
        command.arg("--dir").arg(node.path()).args(["--join", place, "--listen", "127.0.0.1:0"]);
        let mut daemon = Process::start(command, node.path(), "ddssd").unwrap();
        daemon.wait_until(PATIENCE, |process| process.stderr().contains("fabric selected")).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        daemon.terminate().unwrap();
        let told = Instant::now();
        let status = daemon.wait(PATIENCE).unwrap().expect("it ends");
        assert!(told.elapsed() < SOON, "{place}: it went on for {:?}", told.elapsed());
        assert_eq!(status.code(), Some(0), "{place}: {}", daemon.stderr());
        assert!(!node.join("ddssd.sock").exists());
    }
}

// If this failed, one more failure after an orderly leave would lose acknowledged data.
#[test]
fn leave_ends_when_each_segment_has_its_copies_elsewhere() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    let first = client(&daemons[0], Strategy::default());
    let names: Vec<String> = (0..12).map(|number| format!("kept/{number}")).collect();
    let copies = |name: &str| first.segment(name).open().and_then(|segment| segment.stat()).ok();
    let is_in_sync = |stat: &ddss::SegmentInfo| stat.replication == ReplicationInfo::InSync;
    for (number, name) in names.iter().enumerate() {
        let home = Placement::Node(NodeId(number as u16 % 3 + 1));
        let spec = Spec::new(100_000).copies(2).placement(home);
        is_soon("a member", || first.segment(name).allocate(spec).is_ok());
        is_soon("in sync", || copies(name).is_some_and(|stat| is_in_sync(&stat)));
    }
    let leave = |daemon: &Daemon| {
        let mut command = Command::new(binary("ddss").unwrap());
        let ended = command.args(["cluster", "leave", "--dir"]).arg(daemon.folder()).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [said, progress] = leave(&daemons[2]);
    for name in &names {
        let stat = copies(name).unwrap();
        assert!(
            is_in_sync(&stat) && stat.home != NodeId(3) && stat.replica != Some(NodeId(3)),
            "{name}: {stat:?}; {said}"
        );
    }
    assert!(progress.contains("wait for a copy") && !said.contains("one copy"), "{said}; {progress}");
    // No node is left for a second copy.
    let [said, _] = leave(&daemons[1]);
    assert!(said.contains("12 segments have one copy: kept/0, kept/1, "), "{said}");
    for name in &names {
        is_soon("taken over", || copies(name).is_some_and(|stat| stat.home == NodeId(1)));
    }
}
