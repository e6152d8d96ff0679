//! Thousands of waits of one client: they take no place of a call, cost no message until they end, and leave nothing
//! behind in any daemon when their process is killed.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, LockOptions, Segment, Spec, Version, aio};
use ddss_core::status::{Counter, Gauge, Status};
use ddss_ipc::read_status;
use ddss_testkit::{Daemon, block_on};

/// Time limit that no call here reaches.
const PATIENCE: Duration = Duration::from_secs(120);
/// Waits of the client, half of them for a version and half for a lock.
const WAITS: usize = 10_000;
/// Waits that keep their places.
const KEPT: usize = 16;
/// Variable with the directory of the daemon whose client this test binary is until it is killed.
const CHILD: &str = "DDSS_TEST_WAITS_AT";

type Waits = Vec<Pin<Box<dyn Future<Output = Version> + Send>>>;

fn client(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder).timeout(PATIENCE)).expect("the daemon serves")
}

fn open_soon(client: &Client, name: &str) -> Segment {
    let end = Instant::now() + PATIENCE;
    loop {
        match client.segment(name).open() {
            Ok(segment) => return segment,
            Err(error) if Instant::now() > end => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn until(folder: &Path, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = read_status(folder).unwrap();
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < end, "{what}: {} waits are parked", status.gauge(Gauge::ParkedWaits));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn begin_waits(client: &Client, seen: Version) -> Waits {
    let (watched, locked) = (open_soon(client, "watched"), open_soon(client, "locked"));
    let (watched, locked) = (aio::Segment::from(&watched), aio::Segment::from(&locked));
    let watch = |segment: aio::Segment| async move { segment.wait_newer_than(seen).await.unwrap().version };
    let lock = |segment: aio::Segment| async move {
        let guard = segment.lock().await.unwrap();
        guard.unlock().await.unwrap();
        Version(1)
    };
    let mut waits = Waits::new();
    for _ in 0..WAITS / 2 {
        waits.push(Box::pin(watch(watched.clone())));
        waits.push(Box::pin(lock(locked.clone())));
    }
    waits
}

/// Flag that a future must be polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Polls each of the waits as often as it is woken, until `is_over`.
fn poll_until(waits: &mut Waits, mut is_over: impl FnMut() -> bool) {
    let flags: Vec<_> = waits.iter().map(|_| Arc::new(Woken(AtomicBool::new(true)))).collect();
    while !is_over() {
        for (wait, flag) in waits.iter_mut().zip(&flags).filter(|(_, flag)| flag.0.swap(false, Ordering::AcqRel)) {
            let waker = Waker::from(Arc::clone(flag));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Begins the waits, and polls until the daemon has parked all but those that keep their places.
fn poll_until_parked(folder: &Path, waits: &mut Waits) {
    let end = Instant::now() + PATIENCE;
    poll_until(waits, || {
        assert!(Instant::now() < end, "not all waits are parked");
        read_status(folder).unwrap().gauge(Gauge::ParkedWaits) == (WAITS - KEPT) as u64
    });
}

// If this failed, a service with many event streams could not make a call, or each wait would cost messages.
#[test]
fn ten_thousand_waits_cost_nothing_until_they_end() {
    let [a, b] = Daemon::pair().unwrap();
    let home = client(a.folder());
    let watched = home.segment("watched").allocate(Spec::new(8)).unwrap();
    let held = home.segment("locked").allocate(Spec::new(8)).unwrap();
    let other = home.segment("other").allocate(Spec::new(8)).unwrap();
    for daemon in [&a, &b] {
        let mine = client(daemon.folder());
        let other = open_soon(&mine, other.name());
        let guard = held.lock_with(LockOptions::new().lease(PATIENCE * 4)).unwrap();
        let mut waits = begin_waits(&mine, watched.stat().unwrap().stamp.version);
        poll_until_parked(daemon.folder(), &mut waits);
        let before = until(daemon.folder(), "the status is there", |_| true);
        for turn in 0..100u64 {
            other.put(0, &turn.to_le_bytes()).unwrap();
        }
        let puts = if daemon.folder() == a.folder() { 0 } else { 100 };
        let trips = |status: &Status| status.counter(Counter::RoundTrips) - before.counter(Counter::RoundTrips);
        let after = until(daemon.folder(), "the puts are counted", |status| trips(status) >= puts);
        assert_eq!(trips(&after), puts, "a put costs its own answer only");
        assert_eq!(after.gauge(Gauge::ParkedWaits), (WAITS - KEPT) as u64);
        watched.put(0, &[1; 8]).unwrap();
        guard.unlock().unwrap();
        assert!(waits.into_iter().all(|wait| block_on(wait) >= Version(1)));
        until(daemon.folder(), "waits are left", |status| status.gauge(Gauge::ParkedWaits) == 0);
    }
}

// If this failed, a client that was killed would fill the tables of its daemon and of other homes.
#[test]
fn killed_client_leaves_no_wait_behind() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let client = client(Path::new(&folder));
        let mut waits = begin_waits(&client, Version(0));
        return poll_until(&mut waits, || false);
    }
    let [a, b] = Daemon::pair().unwrap();
    let home = client(a.folder());
    let _watched = home.segment("watched").allocate(Spec::new(8)).unwrap();
    let held = home.segment("locked").allocate(Spec::new(8)).unwrap();
    let _guard = held.lock_with(LockOptions::new().lease(PATIENCE * 4)).unwrap();
    for daemon in [&a, &b] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "waits::many::killed_client_leaves_no_wait_behind"])
            .env(CHILD, daemon.folder())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until(daemon.folder(), "not all are parked", |status| {
            status.gauge(Gauge::ParkedWaits) == (WAITS - KEPT) as u64
        });
        until(a.folder(), "not all are in line", |status| status.gauge(Gauge::LockWaiters) == WAITS as u64 / 2);
        child.kill().unwrap();
        child.wait().unwrap();
        until(daemon.folder(), "waits are left", |status| {
            status.gauge(Gauge::ParkedWaits) == 0 && status.gauge(Gauge::UnderWay) == 0
        });
        until(a.folder(), "some are still in line", |status| status.gauge(Gauge::LockWaiters) == 0);
    }
}

/// Polls the waits until all have ended; returns their number by result.
fn end_all(waits: Vec<Pin<Box<dyn Future<Output = bool> + Send>>>) -> [usize; 2] {
    let mut counts = [0; 2];
    for wait in waits {
        counts[usize::from(block_on(wait))] += 1;
    }
    counts
}

// If this failed, a service would hang, or repeat waits forever, when the home of a watched segment dies.
#[test]
fn waits_of_another_node_end_when_their_home_is_killed() {
    const WATCHERS: usize = 500;
    let [mut a, b] = Daemon::pair().unwrap();
    let home = client(a.folder());
    let watched = home.segment("watched").allocate(Spec::new(8)).unwrap();
    let held = home.segment("locked").allocate(Spec::new(8)).unwrap();
    let _guard = held.lock_with(LockOptions::new().lease(PATIENCE * 4)).unwrap();
    // A client with retries waits for the next daemon.
    let mine =
        Client::connect_with(ConnectOptions::new().directory(b.folder()).timeout(PATIENCE).retries(false)).unwrap();
    let (there, locked) = (open_soon(&mine, "watched"), open_soon(&mine, "locked"));
    // Longer than the test, so that only the end of the home can end them.
    let [there, locked] = [there, locked].map(|segment| aio::Segment::from(&segment).with_timeout(PATIENCE * 4));
    let watch = |segment: aio::Segment| async move { segment.wait_newer_than(Version(0)).await.is_ok() };
    let lock = |segment: aio::Segment| async move { segment.lock().await.is_ok() };
    let mut waits: Vec<Pin<Box<dyn Future<Output = bool> + Send>>> = Vec::new();
    for _ in 0..WATCHERS / 2 {
        waits.push(Box::pin(watch(there.clone())));
        waits.push(Box::pin(lock(locked.clone())));
    }
    let mut context = Context::from_waker(Waker::noop());
    let end = Instant::now() + PATIENCE;
    while read_status(b.folder()).unwrap().gauge(Gauge::ParkedWaits) < (WATCHERS - KEPT) as u64 {
        assert!(waits.iter_mut().all(|wait| wait.as_mut().poll(&mut context).is_pending()));
        assert!(Instant::now() < end, "not all waits are parked");
        std::thread::sleep(Duration::from_millis(5));
    }
    a.kill().unwrap();
    assert_eq!(end_all(waits), [WATCHERS, 0], "a wait for a dead home succeeded");
    until(b.folder(), "waits are left", |status| {
        status.gauge(Gauge::ParkedWaits) == 0 && status.gauge(Gauge::UnderWay) == 0
    });
    // The next daemon knows none of them, and new waits are answered.
    a.restart().unwrap();
    until(a.folder(), "old waits came back", |status| status.gauge(Gauge::LockWaiters) == 0);
    let again = ddss_testkit::retry(|| block_on(there.stat()));
    let next = std::thread::spawn(move || block_on(there.wait_newer_than(again.stamp.version)));
    watched.put(0, &[7; 8]).unwrap();
    assert!(next.join().unwrap().unwrap().version > again.stamp.version);
}
