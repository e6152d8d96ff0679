//! Calls that wait for a lock or a version: they leave channels to other calls, end when their caller drops them, and
//! survive the absence of their home or of the daemon.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod many;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ErrorKind, LockOptions, Segment, Spec, aio};
use ddss_core::status::{Counter, Gauge, Status};
use ddss_ipc::read_status;
use ddss_testkit::{Daemon, SetOnDrop, block_on};

/// Time limit that no call here reaches.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of concurrent calls of tasks that neither wait nor hold a lock.
const PLACES: usize = 48;
/// More calls than fit into the channel that tasks share.
const MANY: usize = 64;

type Waits<T> = Vec<Pin<Box<dyn Future<Output = T> + Send>>>;

fn client_for(daemon: &Daemon, timeout: Duration) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(timeout)).expect("the daemon serves")
}

fn client(daemon: &Daemon) -> Client {
    client_for(daemon, PATIENCE)
}

fn wait_for_status(folder: &Path, is_so: impl Fn(&Status) -> bool) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = read_status(folder).unwrap();
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < end, "it never was so: {:?}", status.operations());
        std::thread::sleep(Duration::from_millis(5));
    }
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

/// Polls each future once: it is then in flight, or queued for a place.
fn begin<T>(waits: &mut Waits<T>) {
    let mut context = Context::from_waker(Waker::noop());
    for wait in waits {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
}

/// Waits for a version that is never written.
fn watchers(segment: &aio::Segment, count: usize) -> Waits<bool> {
    let version = block_on(segment.stat()).unwrap().stamp.version;
    let wait = |segment: aio::Segment| async move { segment.wait_newer_than(version).await.is_ok() };
    let mut waits: Waits<bool> = (0..count).map(|_| Box::pin(wait(segment.clone())) as _).collect();
    begin(&mut waits);
    waits
}

/// Runs all futures at the same time.
fn join_all<T>(mut futures: Waits<T>) -> Vec<T> {
    let mut ended: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    block_on(std::future::poll_fn(|context| {
        for (future, ended) in futures.iter_mut().zip(&mut ended).filter(|(_, ended)| ended.is_none()) {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                *ended = Some(output);
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    }));
    ended.into_iter().flatten().collect()
}

fn tasks(client: &Client, name: &str, bytes: u64) -> (aio::Client, aio::Segment) {
    let tasks = client.aio().unwrap();
    let segment = block_on(tasks.segment(name).allocate(Spec::new(bytes))).unwrap();
    (tasks, segment)
}

// If this failed, tasks would wait for a lease expiry each time that a lock is released under contention.
#[test]
fn three_hundred_tasks_lock_and_unlock_without_lease_expiry() {
    let daemon = Daemon::start(1).unwrap();
    let (_tasks, segment) = tasks(&client(&daemon), "contended", 64);
    let one = |segment: aio::Segment, number: u64| async move {
        let held = segment.lock().await.unwrap();
        held.put(0, &number.to_le_bytes()).await.unwrap();
        drop(held);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let tasks = (0..75).map(|number| Box::pin(one(segment.clone(), number)) as _);
            let tasks: Waits<()> = tasks.collect();
            scope.spawn(|| join_all(tasks));
        }
    });
    assert_eq!(block_on(segment.get(..)).unwrap().version().0, 300);
    let all_granted = |status: &Status| status.counter(Counter::LocksGranted) == 300;
    let status =
        wait_for_status(daemon.folder(), |status| all_granted(status) && status.gauge(Gauge::LockHolders) == 0);
    assert_eq!(status.counter(Counter::LocksBroken), 0);
}

// If this failed, a lock would stay taken until its lease ends because its holder's client waits for something else.
#[test]
fn unlock_succeeds_while_waits_fill_all_channels() {
    let daemon = Daemon::start(1).unwrap();
    let mine = client(&daemon);
    let (tasks, segment) = tasks(&mine, "locked", 64);
    let watched = block_on(tasks.segment("watched").allocate(Spec::new(8))).unwrap();
    let other = client(&daemon).segment("locked").open().unwrap();
    let at_once = LockOptions::new().timeout(Duration::ZERO);
    let held = [0, 1].map(|_| block_on(segment.lock_with(LockOptions::new().shared())).unwrap());
    let waits = watchers(&watched, MANY);
    let [unlocked, dropped] = held;
    block_on(unlocked.unlock()).unwrap();
    drop(dropped);
    // A dropped lock is released asynchronously, and no reply reports it.
    while segment_is_locked(&other, at_once) {}
    drop(waits);
    assert_eq!(wait_for_status(daemon.folder(), |_| true).counter(Counter::LocksBroken), 0);
}

fn segment_is_locked(segment: &Segment, at_once: LockOptions) -> bool {
    match segment.lock_with(at_once) {
        Ok(held) => {
            held.unlock().unwrap();
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Locked);
            true
        }
    }
}

// If this failed, a service that shuts down its runtime would keep its locks until their leases end, as long as its
// process lives.
#[test]
fn guards_release_locks_when_their_runtime_is_dropped() {
    let daemon = Daemon::start(1).unwrap();
    let mine = client(&daemon);
    let (tasks, segment) = tasks(&mine, "many-holders", 64);
    let shared = LockOptions::new().shared().lease(PATIENCE * 10);
    let held: Vec<_> = (0..2 * MANY).map(|_| block_on(segment.lock_with(shared)).unwrap()).collect();
    // Each lock is granted, but most tasks have not seen their grant.
    let wait = |segment: aio::Segment| async move { segment.lock_with(shared).await.is_ok() };
    let mut unseen: Waits<bool> = (0..10).map(|_| Box::pin(wait(segment.clone())) as _).collect();
    for wait in &mut unseen {
        let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let watched = block_on(tasks.segment("watched").allocate(Spec::new(8))).unwrap();
    let waits = watchers(&watched, MANY);
    wait_for_status(daemon.folder(), |status| status.gauge(Gauge::LockHolders) >= 2 * MANY as u64);
    drop((held, unseen, waits, segment, watched, tasks));
    // The client itself is still attached.
    let status = wait_for_status(daemon.folder(), |status| status.gauge(Gauge::LockHolders) == 0);
    assert_eq!(status.counter(Counter::LocksBroken), 0);
    mine.ping().unwrap();
}

// If this failed, one watcher too many would block all other calls of a service's threads.
#[test]
fn waiting_threads_leave_channels_for_other_calls() {
    let daemon = Daemon::start(1).unwrap();
    let mine = client(&daemon);
    let watched = mine.segment("watched").allocate(Spec::new(8)).unwrap();
    let locked = mine.segment("locked").allocate(Spec::new(8)).unwrap();
    let other = client(&daemon).segment("locked").open().unwrap();
    let held = locked.lock_with(LockOptions::new().lease(PATIENCE * 10)).unwrap();
    let version = watched.stat().unwrap().stamp.version;
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::Release);
                // The call completes, or finds no free channel before its deadline.
                let _ = watched.wait_newer_than(version);
            });
        }
        while begun.load(Ordering::Acquire) < 12 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        locked.with_timeout(PATIENCE / 2).get(0..8).unwrap();
        // The remaining channels are taken by calls behind another client's lock; they do not block a holder.
        let theirs = client(&daemon);
        let behind = theirs.segment("behind").allocate(Spec::new(8)).unwrap();
        let of_theirs = behind.lock_with(LockOptions::new().lease(PATIENCE * 10)).unwrap();
        let waits = mine.segment("behind").open().unwrap();
        for _ in 0..8 {
            let waits = waits.clone();
            scope.spawn(move || waits.word(0).fetch_add(1).unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        held.put(0, &[1; 8]).unwrap();
        held.unlock().unwrap();
        other.lock_with(LockOptions::new().timeout(Duration::ZERO)).unwrap().unlock().unwrap();
        of_theirs.unlock().unwrap();
        client(&daemon).segment("watched").open().unwrap().put(0, &[1; 8]).unwrap();
    });
}

// If this failed, the first caller would be served last, and under load some calls never.
#[test]
fn channel_slots_are_granted_in_fifo_order() {
    let daemon = Daemon::start(1).unwrap();
    let (tasks, segment) = tasks(&client(&daemon), "locked", 64);
    let counter = block_on(tasks.segment("counter").allocate(Spec::new(8))).unwrap();
    let held =
        client(&daemon).segment("locked").open().unwrap().lock_with(LockOptions::new().lease(PATIENCE * 10)).unwrap();
    // All places are taken by calls behind another client's lock.
    let put = |segment: aio::Segment| async move { segment.put(0, &[1; 8]).await.unwrap().version.0 };
    let mut taken: Waits<u64> = (0..PLACES).map(|_| Box::pin(put(segment.clone())) as _).collect();
    begin(&mut taken);
    let add = |counter: aio::Segment| async move { counter.word(0).fetch_add(1).await.unwrap().before };
    let mut in_line: Waits<u64> = (0..20).map(|_| Box::pin(add(counter.clone())) as _).collect();
    begin(&mut in_line);
    in_line.reverse();
    // Frees one place: each call that ends frees the place for the next one.
    drop(taken.pop());
    let ended = join_all(in_line);
    let order: Vec<u64> = (0..20).rev().collect();
    assert_eq!(ended, order);
    drop(held);
}

// If this failed, a call could take twice the time that its caller has given it.
#[test]
fn tasks_end_close_to_their_deadline() {
    const TIME: Duration = Duration::from_millis(1500);
    let daemon = Daemon::start(1).unwrap();
    let (tasks, segment) = tasks(&client_for(&daemon, TIME), "locked", 64);
    let watched = block_on(tasks.segment("watched").allocate(Spec::new(8))).unwrap();
    let held =
        client(&daemon).segment("locked").open().unwrap().lock_with(LockOptions::new().lease(PATIENCE * 10)).unwrap();
    let version = block_on(watched.stat()).unwrap().stamp.version;
    let late = |began: Instant| began.elapsed().saturating_sub(TIME);
    let watch = |watched: aio::Segment| async move {
        let began = Instant::now();
        watched.wait_newer_than(version).await.unwrap_err();
        late(began)
    };
    let put = |segment: aio::Segment| async move {
        let began = Instant::now();
        segment.put(0, &[1; 8]).await.unwrap_err();
        late(began)
    };
    for _ in 0..4 {
        let watching = (0..MANY + 6).map(|_| Box::pin(watch(watched.clone())) as _);
        let putting = (0..MANY + 6).map(|_| Box::pin(put(segment.clone())) as _);
        let ended = join_all(watching.chain(putting).collect::<Waits<Duration>>());
        let latest = ended.into_iter().max().unwrap();
        // 20 ms on a machine that has nothing else to do. A second wait would be as long as the first.
        assert!(latest < TIME * 3 / 4, "{latest:?} after the deadline");
    }
    held.unlock().unwrap();
}

// If this failed, a call could wait for two timeouts of watchers that requeue before it.
#[test]
fn restarted_watchers_do_not_overtake_queued_tasks() {
    const TIME: Duration = Duration::from_secs(1);
    let daemon = Daemon::start(1).unwrap();
    let mine = client(&daemon);
    let (tasks, watched) = tasks(&mine, "watched", 64);
    let watched = watched.with_timeout(TIME);
    let other = block_on(tasks.segment("other").allocate(Spec::new(64))).unwrap().with_timeout(TIME);
    let over = Arc::new(AtomicBool::new(false));
    let watch = |watched: aio::Segment, over: Arc<AtomicBool>| async move {
        let version = watched.stat().await.unwrap().stamp.version;
        while !over.load(Ordering::Acquire) {
            let _ = watched.wait_newer_than(version).await;
        }
    };
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&over);
        for _ in 0..4 {
            let watching = (0..15).map(|_| Box::pin(watch(watched.clone(), Arc::clone(&over))) as _);
            let watching: Waits<()> = watching.collect();
            scope.spawn(|| join_all(watching));
        }
        let mut latest = Duration::ZERO;
        for _ in 0..16 {
            std::thread::sleep(TIME / 8);
            let began = Instant::now();
            let _ = block_on(other.put(0, &[1; 64]));
            latest = latest.max(began.elapsed().saturating_sub(TIME));
        }
        over.store(true, Ordering::Release);
        assert!(latest < TIME * 3 / 4, "{latest:?} after the deadline");
    });
}

// If this failed, idle watchers could block a short call of a task.
#[test]
fn watching_tasks_leave_channels_for_other_calls() {
    let daemon = Daemon::start(1).unwrap();
    let (tasks, segment) = tasks(&client(&daemon), "watched", 64);
    let other = block_on(tasks.segment("other").allocate(Spec::new(64))).unwrap();
    let waits = watchers(&segment, 2 * MANY);
    let short = other.with_timeout(Duration::from_secs(5));
    for _ in 0..100 {
        block_on(short.put(0, &[1; 64])).unwrap();
        block_on(short.get(..)).unwrap();
    }
    drop(waits);
}

// If this failed, cancelled waits would fill channels, lock queue and watcher lists until their deadlines.
#[test]
fn dropped_waits_are_cancelled_at_daemon_and_home() {
    let [a, b] = Daemon::pair().unwrap();
    let made = client(&a).segment("far").allocate(Spec::new(64)).unwrap();
    let held = made.lock_with(LockOptions::new().lease(PATIENCE * 10)).unwrap();
    for daemon in [&a, &b] {
        let mine = client(daemon);
        open_soon(&mine, "far");
        let tasks = mine.aio().unwrap();
        let segment = block_on(tasks.segment("far").open()).unwrap();
        let version = made.stat().unwrap().stamp.version;
        let under_way =
            |count| wait_for_status(b.folder(), |status| (status.gauge(Gauge::UnderWay) > 0) == (count > 0));
        let in_line = |count| wait_for_status(a.folder(), |status| status.gauge(Gauge::LockWaiters) == count);
        for _ in 0..3 {
            let mut waits: Waits<bool> = Vec::new();
            for number in 0..40 {
                let segment = segment.clone();
                waits.push(match number % 4 {
                    0 => Box::pin(async move { segment.lock().await.is_ok() }),
                    1 => Box::pin(async move { segment.put(0, &[1; 8]).await.is_ok() }),
                    2 => Box::pin(async move { segment.word(0).fetch_add(1).await.is_ok() }),
                    _ => Box::pin(async move { segment.wait_newer_than(version).await.is_ok() }),
                });
            }
            begin(&mut waits);
            in_line(30);
            drop(waits);
            in_line(0);
            under_way(0);
            block_on(tasks.ping()).unwrap();
        }
    }
    held.unlock().unwrap();
    // None of the puts has taken effect.
    assert_eq!(made.stat().unwrap().stamp.version.0, 0);
}

/// Counts the errors of `next` during `time`.
fn errors_of(mut next: impl FnMut() -> bool, time: Duration) -> u32 {
    let (end, mut errors) = (Instant::now() + time, 0);
    while Instant::now() < end {
        errors += u32::from(!next());
    }
    errors
}

// If this failed, each watcher of a dead node would burn a core on either side until the node is back.
#[test]
fn watch_backs_off_while_home_is_down_and_resumes() {
    let [mut a, b] = Daemon::pair().unwrap();
    let made = client(&a).segment("far").allocate(Spec::new(64)).unwrap();
    made.put(0, &[1; 8]).unwrap();
    let far = open_soon(&client(&b), "far").with_timeout(Duration::from_millis(500));
    let tasks = client(&b).aio().unwrap();
    let far_of_tasks = block_on(tasks.segment("far").open()).unwrap().with_timeout(Duration::from_millis(500));
    let (mut versions, mut of_tasks) = (far.watch(), far_of_tasks.watch());
    // On a busy machine a call may end at its short deadline.
    let first = versions.by_ref().find_map(Result::ok).unwrap().version;
    let first_of_tasks =
        std::iter::repeat_with(|| block_on(of_tasks.next()).unwrap()).find_map(Result::ok).unwrap().version;
    assert_eq!(first_of_tasks, first);
    a.kill().unwrap();
    let second = Duration::from_secs(1);
    let errors = errors_of(|| versions.next().unwrap().is_ok(), second);
    assert!((1..100).contains(&errors), "a thread was told {errors} errors");
    let errors = errors_of(|| block_on(of_tasks.next()).unwrap().is_ok(), second);
    assert!((1..100).contains(&errors), "a task was told {errors} errors");
    a.restart().unwrap();
    let again = open_soon(&client(&a), "far");
    again.put(0, &[2; 8]).unwrap();
    while versions.next().unwrap().is_err() {}
    while block_on(of_tasks.next()).unwrap().is_err() {}
}

fn call_until(over: &AtomicBool, count: &AtomicU32, call: impl Fn() -> Result<(), ddss::Error>) {
    while !over.load(Ordering::Acquire) {
        call().unwrap_or_else(|error| panic!("{error:?}"));
        count.fetch_add(1, Ordering::Release);
    }
}

// If this failed, every restart of a daemon would fail calls that could have waited for the next one.
#[test]
fn calls_wait_for_the_daemon_until_their_deadline() {
    let mut daemon = Daemon::start(1).unwrap();
    let mine =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
            .unwrap();
    let segment = mine.segment("kept").allocate(Spec::new(64)).unwrap();
    let (tasks, _) = tasks(&mine, "other", 8);
    let of_tasks = block_on(tasks.segment("kept").open()).unwrap();
    let over = AtomicBool::new(false);
    let calls = [const { AtomicU32::new(0) }; 3];
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&over);
        scope.spawn(|| call_until(&over, &calls[0], || segment.get(0..8).map(drop)));
        scope.spawn(|| call_until(&over, &calls[1], || block_on(of_tasks.get(0..8)).map(drop)));
        scope.spawn(|| {
            call_until(&over, &calls[2], || {
                let mut batch = ddss::Batch::new();
                let _gets = (batch.get(&segment, 0..8)?, batch.get(&segment, 8..16)?);
                mine.run(batch)?.ok()
            });
        });
        let more = || {
            let before: Vec<u32> = calls.iter().map(|count| count.load(Ordering::Acquire)).collect();
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end
                && calls.iter().zip(&before).any(|(count, &before)| count.load(Ordering::Acquire) < before + 20)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for round in 0..4 {
            more();
            if round % 2 == 0 {
                daemon.kill().unwrap();
            } else {
                daemon.process().terminate().unwrap();
                assert!(daemon.process().wait(PATIENCE).unwrap().is_some());
            }
            std::thread::sleep(Duration::from_millis(500));
            // A call that changes something waits as well: it has not begun. At its deadline it certainly did nothing.
            let puts = scope.spawn(|| segment.put(0, &[1; 8]));
            let hasty = segment.with_timeout(Duration::from_millis(50));
            assert!(!hasty.put(8, &[1; 8]).unwrap_err().is_indeterminate());
            daemon.restart().unwrap();
            puts.join().unwrap().unwrap();
        }
        more();
        over.store(true, Ordering::Release);
    });
}
