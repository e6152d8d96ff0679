//! Tests of the cache, the lock manager, published counters, and the web farm.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may unwrap as the test may")]

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_apps::Error;
use ddss_apps::cache::{Cache, CacheOptions};
use ddss_apps::locks::LockManager;
use ddss_apps::monitor::{Farm, FarmOptions, Load, Progress, Publisher, Watcher};
use ddss_testkit::Daemon;

const DEADLINE: Duration = Duration::from_secs(30);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(DEADLINE)).unwrap()
}

/// Starts nodes and waits until they are connected.
fn pair() -> ([Daemon; 2], [Client; 2]) {
    let daemons = Daemon::pair().unwrap();
    let clients = [client(&daemons[0]), client(&daemons[1])];
    clients[0].segment("met").allocate(ddss::Spec::new(8)).unwrap();
    let begin = Instant::now();
    while let Err(error) = clients[1].segment("met").open() {
        assert!(begin.elapsed() < DEADLINE, "{error}");
        thread::sleep(Duration::from_millis(10));
    }
    (daemons, clients)
}

// Otherwise two nodes would load the same value twice, or a client would get an outdated value or that of another key.
#[test]
fn cache_is_shared_and_respects_its_maximum_age() {
    let (_daemons, [here, there]) = pair();
    let options = CacheOptions { slots: 16, entry_bytes_max: 100, age_max: DEADLINE };
    let [mine, theirs] = [&here, &there].map(|client| Cache::open(client, "cache", options).unwrap());
    let loads = Cell::new(0);
    let load = |value: &str| {
        loads.set(loads.get() + 1);
        Ok::<_, Error>(value.as_bytes().to_vec())
    };
    assert_eq!(mine.get_or_load(b"key", || load("one")).unwrap(), b"one");
    assert_eq!(theirs.get_or_load(b"key", || load("two")).unwrap(), b"one");
    assert_eq!((loads.get(), theirs.get(b"other").unwrap()), (1, None));
    theirs.remove(b"key").unwrap();
    assert_eq!(mine.get(b"key").unwrap(), None);
    // Too old immediately.
    let hasty = Cache::open(&here, "cache", CacheOptions { age_max: Duration::ZERO, ..options }).unwrap();
    mine.put(b"key", b"three").unwrap();
    thread::sleep(Duration::from_millis(2));
    assert_eq!(hasty.get_or_load(b"key", || load("four")).unwrap(), b"four");
    assert_eq!(mine.get(b"key").unwrap().unwrap(), b"four");
    // A value that is too long is loaded each time, and displaces no entry.
    assert_eq!(mine.get_or_load(&[7; 101], || load("long")).unwrap(), b"long");
    assert_eq!(mine.get(&[7; 101]).unwrap(), None);
    // More keys than slots: some have no entry, and none has the value of another key.
    for key in 0..100u32 {
        mine.put(&key.to_le_bytes(), &key.to_be_bytes()).unwrap();
    }
    let kept: Vec<u32> = (0..100u32).filter(|key| theirs.get(&key.to_le_bytes()).unwrap().is_some()).collect();
    assert!((1..=16).contains(&kept.len()), "{kept:?}");
    assert!(kept.iter().all(|key| theirs.get(&key.to_le_bytes()).unwrap().unwrap() == key.to_be_bytes()));
    let other = Cache::open(&there, "cache", CacheOptions { slots: 999, ..options });
    assert!(matches!(other, Err(Error::Inconsistent(_))), "{other:?}");
}

// Otherwise two nodes could hold one lock, or two processes would wait for each other forever.
#[test]
fn named_lock_has_one_holder_and_growing_tokens() {
    let (_daemons, [here, there]) = pair();
    let (mine, theirs) = (LockManager::new(&here, "accounts"), LockManager::new(&there, "accounts"));
    let first = mine.acquire("alice").unwrap();
    assert!(theirs.try_acquire("alice").unwrap().is_none());
    assert!(theirs.try_acquire("bob").unwrap().is_some());
    assert!(LockManager::new(&there, "others").try_acquire("alice").unwrap().is_some());
    let before = first.token();
    drop(first);
    let second = theirs.acquire("alice").unwrap();
    assert!(second.token() > before);
    drop(second);
    // Each names them in another order.
    thread::scope(|scope| {
        for (locks, names) in [(&mine, ["alice", "bob"]), (&theirs, ["bob", "alice"])] {
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(locks.acquire_all(&names).unwrap().len(), 2);
                }
            });
        }
    });
    assert_eq!(mine.acquire_all(&["x", "x"]).unwrap().len(), 1);
}

// Otherwise a client would decide by counters that are older than allowed, or not see that a service is silent.
#[test]
fn counters_of_all_nodes_respect_their_maximum_age() {
    let (_daemons, [here, there]) = pair();
    let start = |client, name, served| Publisher::start(client, "web", name, &Load { active: 0, served }).unwrap();
    let (one, _two) = (start(&here, "one", 1), start(&there, "two", 2));
    let mut watcher = Watcher::<Load>::new(&there, "web");
    assert!(watcher.read(Duration::ZERO).unwrap().is_empty());
    assert_eq!(watcher.discover().unwrap(), 2);
    let served = |watcher: &mut Watcher<Load>, age_max| {
        let readings = watcher.read(age_max).unwrap();
        let mut served: Vec<_> =
            readings.iter().map(|reading| (reading.instance.clone(), reading.value.served)).collect();
        served.sort();
        served.into_iter().map(|(_, served)| served).collect::<Vec<_>>()
    };
    assert_eq!(served(&mut watcher, Duration::ZERO), [1, 2]);
    one.publish(&Load { active: 0, served: 5 }).unwrap();
    assert_eq!(served(&mut watcher, DEADLINE), [1, 2], "young enough");
    assert_eq!(served(&mut watcher, Duration::ZERO), [5, 2]);
    thread::sleep(Duration::from_millis(20));
    let readings = watcher.read(Duration::ZERO).unwrap();
    assert!(readings.iter().all(|reading| reading.silent_for() >= Duration::from_millis(20)), "{readings:?}");
    assert_eq!(
        start(&here, "one", 9).publish(&Load { active: 1, served: 9 }).map_err(|error| error.to_string()),
        Ok(())
    );
    assert_eq!(served(&mut watcher, Duration::ZERO), [9, 2]);
}

// Otherwise one hung node would keep a client from the counters of all others, or make it decide by old ones.
#[test]
fn hung_node_does_not_delay_counters_of_other_nodes() {
    const TIMEOUT: Duration = Duration::from_millis(400);
    let (daemons, [here, there]) = pair();
    let start = |client, name, served| Publisher::start(client, "web", name, &Load { active: 0, served }).unwrap();
    let (one, _two) = (start(&here, "one", 1), start(&there, "two", 2));
    let impatient =
        Client::connect_with(ConnectOptions::new().directory(daemons[0].folder()).timeout(TIMEOUT)).unwrap();
    let mut watcher = Watcher::<Load>::new(&impatient, "web");
    assert_eq!((watcher.discover().unwrap(), watcher.read(Duration::ZERO).unwrap().len()), (2, 2));
    daemons[1].pause().unwrap();
    one.publish(&Load { active: 0, served: 7 }).unwrap();
    let begin = Instant::now();
    let readings = watcher.read(Duration::ZERO).unwrap().to_vec();
    let of = |name: &str| readings.iter().find(|reading| reading.instance == name).unwrap();
    // The responsive instance was read again after the other one had timed out.
    assert_eq!(of("one").value.served, 7);
    assert!(of("two").age() > begin.elapsed(), "{readings:?}");
    assert!(of("one").age() + TIMEOUT / 2 < of("two").age(), "{readings:?}");
    // From then on it is skipped for a while: no read waits for it again.
    let two = of("two").asked_at();
    one.publish(&Load { active: 0, served: 8 }).unwrap();
    let readings = watcher.read(Duration::ZERO).unwrap().to_vec();
    let of = |name: &str| readings.iter().find(|reading| reading.instance == name).unwrap();
    assert_eq!((of("one").value.served, of("two").asked_at()), (8, two));
    daemons[1].resume().unwrap();
    let end = Instant::now() + DEADLINE;
    while watcher.read(Duration::ZERO).unwrap().iter().any(|reading| reading.asked_at() <= two) {
        assert!(Instant::now() < end, "it is never asked again");
        thread::sleep(Duration::from_millis(10));
    }
}

// Otherwise no user could start from the examples.
#[test]
fn examples_verify_their_results() {
    let daemon = Daemon::start(1).unwrap();
    for (name, said) in [("locks", "alice has -900, bob has 1100"), ("cache", "")] {
        let program = ddss_testkit::example(name).unwrap();
        let output = std::process::Command::new(program).env("DDSS_DIR", daemon.folder()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(said), "{name}: {text}");
    }
}

// Otherwise the farm would measure a proxy that ignores the loads, or that uses one server only.
#[test]
fn web_farm_serves_requests_and_proxy_reads_loads() {
    let options = FarmOptions { servers: 3, progress: Progress::Shared, proxy_core: 0, other_core: 0 };
    let farm = Farm::start(options).unwrap();
    // On a busy machine little happens in this time: try again.
    let end = Instant::now() + DEADLINE;
    loop {
        let watched = farm.watch(2, Some(Duration::from_millis(5)), Duration::from_millis(400)).unwrap();
        let is_enough = watched.responses.len() > 10 && watched.readings > 3;
        if is_enough && farm.served().iter().all(|&served| served > 0) {
            break;
        }
        assert!(Instant::now() < end, "too little happened: {watched:?}, {:?}", farm.served());
    }
    loop {
        let blind = farm.watch(2, None, Duration::from_millis(200)).unwrap();
        assert_eq!(blind.readings, 0);
        if !blind.responses.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "nothing is answered");
    }
}
