//! Maps with real daemons: keys over two nodes, and the death of clients and daemons in the middle of changes.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, SharedMap, Storage, Table, aio};
use ddss_core::BucketLayout;
use ddss_core::status::{Counter, Kind};
use ddss_ipc::read_status;
use ddss_testkit::{Daemon, ScriptedClient, block_on, retry};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENT: &str = env!("CARGO_BIN_EXE_client");
/// Number of keys of `map-churn` of the scripted client.
const KEYS: u64 = 100;

type Map = SharedMap<u64, [u64; 64]>;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

/// Checks that each key occurs once with a complete value of its own; returns the number of keys.
fn check(map: &Map) -> u64 {
    let mut found: Vec<u64> = Vec::new();
    for bucket in 0..map.buckets() {
        for (key, value) in map.bucket_entries(bucket).unwrap() {
            assert!(value.iter().all(|word| word == &value[0]) && value[0] % KEYS == key, "a mix of values");
            assert_eq!(map.get(&key).unwrap(), Some(value));
            found.push(key);
        }
    }
    found.sort_unstable();
    let keys = found.len();
    found.dedup();
    assert_eq!((found.len(), keys as u64), (keys, map.count().unwrap()), "a key is there twice");
    keys as u64
}

// If this failed, a map would have different values on another node.
#[test]
fn keys_of_a_map_are_read_and_changed_on_both_nodes() {
    let [home, other] = Daemon::pair().unwrap();
    let here = Map::allocate(&client(&home), "map", KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| Map::open(&there_client, "map"));
    for key in 0..KEYS {
        let (writer, reader) = if key % 2 == 0 { (&here, &there) } else { (&there, &here) };
        assert!(writer.insert_new(&key, &[key; 64]).unwrap());
        assert!(!reader.insert_new(&key, &[0; 64]).unwrap());
        assert_eq!(reader.get(&key).unwrap(), Some([key; 64]));
    }
    assert_eq!((check(&here), check(&there)), (KEYS, KEYS));
    for key in (0..KEYS).step_by(3) {
        assert!(there.remove(&key).unwrap() && !here.remove(&key).unwrap());
    }
    assert_eq!((check(&here), check(&there)), (66, 66));
    there.release().unwrap();
}

/// Puts and gets of clients that a node has completed.
fn requests(daemon: &Daemon) -> (u64, u64) {
    let status = read_status(daemon.folder()).unwrap();
    let ended = |kinds: [Kind; 2]| kinds.map(|kind| status.operation(kind).ended()).iter().sum();
    (ended([Kind::Put, Kind::PutMany]), ended([Kind::Get, Kind::GetMany]))
}

// If this failed, each insert from another node would take a second round trip, to read the bucket.
#[test]
fn insert_and_removal_are_one_request_each() {
    let [home, other] = Daemon::pair().unwrap();
    let here = Map::allocate(&client(&home), "map", KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| Map::open(&there_client, "map"));
    for (daemon, map) in [(&home, &here), (&other, &there)] {
        let before = requests(daemon);
        for key in 0..10 {
            assert!(map.insert(&key, &[1; 64]).unwrap() && !map.insert_new(&key, &[2; 64]).unwrap());
            assert!(!map.insert_for(&key, &[3; 64], PATIENCE).unwrap());
            assert!(map.remove(&key).unwrap() && !map.remove(&key).unwrap());
        }
        // The daemon counts a request after its answer.
        let begin = Instant::now();
        while requests(daemon).0 < before.0 + 50 {
            assert!(begin.elapsed() < PATIENCE, "{:?} after {before:?}", requests(daemon));
        }
        let now = requests(daemon);
        assert_eq!((now.0 - before.0, now.1 - before.1), (50, 0), "puts and gets of 50 calls");
    }
}

// If this failed, each key that another node asks for would cost a request, four reads and a completion.
#[test]
fn many_keys_from_another_node_are_one_request_and_one_read_each() {
    const MANY: u64 = 2000;
    let [home, other] = Daemon::pair().unwrap();
    let here: SharedMap<u64, u64> = SharedMap::allocate(&client(&home), "many", MANY).unwrap();
    for key in 0..MANY {
        here.insert(&key, &(key * 3)).unwrap();
    }
    let there_client = client(&other);
    let there: SharedMap<u64, u64> = retry(|| SharedMap::open(&there_client, "many"));
    there.get(&0).unwrap();
    let counted = || {
        let status = read_status(other.folder()).unwrap();
        (status.counter(Counter::FabricReads), status.operation(Kind::GetMany).ended(), requests(&other).1)
    };
    let (before, mut batches) = (counted(), 0);
    // Absent keys are asked for, too.
    for first in (0..MANY + 256).step_by(128) {
        let keys: Vec<u64> = (first..first + 128).collect();
        let values = there.get_many(&keys).unwrap();
        let wanted = |key: u64| (key < MANY).then_some(key * 3);
        assert!(keys.iter().zip(values).all(|(key, value)| value == wanted(*key)), "keys from {first}");
        batches += 1;
    }
    let (least, most) = (129 * batches, (129 + 64) * batches);
    // The daemon counts after its answer, and a batch may be two requests: the last read is counted last.
    let begin = Instant::now();
    while counted().0 <= before.0 + least {
        assert!(begin.elapsed() < PATIENCE, "{:?} and {before:?}: {batches} batches of 128 keys", counted());
    }
    let after = counted();
    let (reads, many, gets) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    assert!(many <= 2 * batches, "{many} requests for {batches} batches: a second one for keys behind links");
    assert!(gets <= many + 8, "{gets} gets, {many} of them of many rows");
    assert!(many >= batches && reads <= most, "{reads} reads for {batches} batches of 128 keys");
    assert_eq!(there.count().unwrap(), MANY);
}

// If this failed, the death of one application would leave half of an entry, or a key twice, to all others.
#[test]
fn map_stays_whole_when_its_clients_are_killed() {
    let [home, other] = Daemon::pair().unwrap();
    let map = Map::allocate(&client(&home), "churn", KEYS).unwrap();
    let far_client = client(&other);
    let far = retry(|| Map::open(&far_client, "churn"));
    let mut keys = 0;
    for round in 0..6u64 {
        let mut writers: Vec<ScriptedClient> = [&home, &other, &home]
            .map(|daemon| ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap())
            .into_iter()
            .collect();
        for writer in &mut writers {
            assert_eq!(writer.ask("map-churn churn").unwrap(), "ok changing");
        }
        std::thread::sleep(Duration::from_millis(40 + 13 * round));
        for writer in &mut writers {
            writer.kill().unwrap();
        }
        keys += check(&map);
        assert!(map.insert(&round, &[round; 64]).is_ok() && far.get(&round).unwrap() == Some([round; 64]));
    }
    assert!(keys > 0, "no client changed the map");
    // Unlinked entries do not take space forever.
    map.remove_expired(0, u64::MAX).unwrap();
    assert_eq!((map.remove_expired(0, u64::MAX).unwrap(), check(&map)), (0, far.count().unwrap()));
    for key in 0..KEYS {
        far.insert(&key, &[key; 64]).unwrap();
    }
    assert_eq!(check(&map), KEYS);
}

// If this failed, an acknowledged insert would be lost with its daemon, or a key would occur twice.
#[test]
fn acknowledged_inserts_survive_the_death_of_the_daemon() {
    for storage in [Storage::Memory, Storage::File] {
        let mut daemon = Daemon::start(1).unwrap();
        let table = client(&daemon).table("map").allocate(Map::spec(5_000).storage(storage)).unwrap();
        let map = Map::view(table).unwrap();
        let mut next = 0u64;
        for round in 0..4 {
            let soon =
                Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(1)))
                    .unwrap();
            let (writer, first) = (Map::open(&soon, "map").unwrap(), next);
            let inserts = std::thread::spawn(move || {
                let mut key = first;
                // The last insert waits a second for the dead daemon. It may or may not have taken effect.
                while key < 5_000 && writer.insert(&key, &[key; 64]).is_ok() {
                    key += 1;
                }
                key
            });
            std::thread::sleep(Duration::from_millis(30 + 7 * round));
            daemon.kill().unwrap();
            next = inserts.join().unwrap();
            daemon.restart().unwrap();
            for key in 0..next {
                assert_eq!(map.get(&key).unwrap(), Some([key; 64]), "{storage:?}: an acknowledged insert was lost");
            }
            let count = map.count().unwrap();
            assert!([next, next + 1].contains(&count), "{storage:?}: {count} keys after {next} inserts");
        }
        assert!(next > 0, "nothing was inserted");
    }
}

// If this failed, a client that died after it allocated the table would leave a map that no other client can open.
#[test]
fn map_without_description_is_completed_by_the_next_client() {
    let daemon = Daemon::start(1).unwrap();
    client(&daemon).table("map").allocate(Map::spec(50)).unwrap();
    let map = Map::open(&client(&daemon), "map").unwrap();
    assert!(map.insert(&1, &[1; 64]).unwrap());
    assert_eq!(Map::open(&client(&daemon), "map").unwrap().get(&1).unwrap(), Some([1; 64]));
}

// If this failed, a watcher on another node would poll, miss a change, or end with the daemon of the home.
#[test]
fn watcher_of_a_prefix_follows_from_another_node_and_over_a_restart() {
    let [mut home, other] = Daemon::pair().unwrap();
    let here = Map::allocate(&client(&home), "map", KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| Map::open(&there_client, "map"));
    // Keys whose first byte is 3; the others are not reported.
    let key_of = |number: u64| number << 8 | 3;
    let mut watch = there.watch_prefix(&[3]);
    let before = requests(&other);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..40 {
                assert!(here.insert(&key_of(number), &[number; 64]).unwrap());
                assert!(here.insert(&(number << 8 | 4), &[number; 64]).unwrap());
            }
            for number in 0..20 {
                assert!(here.remove(&key_of(number)).unwrap());
            }
        });
        // Changes that follow each other quickly may be merged.
        let (mut seen, last) = (BTreeMap::new(), (20..40).map(|number| (key_of(number), [number; 64])).collect());
        while seen != last {
            let event = watch.next_event().unwrap();
            assert_eq!(event.key & 0xff, 3);
            match event.value {
                Some(value) => drop(seen.insert(event.key, value)),
                None => assert!(seen.remove(&event.key).is_some(), "a key that was never there is removed"),
            }
        }
        writer.join().unwrap();
    });
    // An idle watcher sends no gets.
    let gets = requests(&other).1;
    let idle = there.table().segment().with_timeout(Duration::from_millis(300));
    let quiet = Map::view(Table::new(idle).unwrap()).unwrap();
    let mut quiet = quiet.watch_prefix(&[9]);
    assert!(quiet.next_event().unwrap_err().kind() == ErrorKind::TimedOut);
    let asked = requests(&other).1 - gets;
    assert!(quiet.next_event().unwrap_err().kind() == ErrorKind::TimedOut);
    // The daemon counts a request after its answer.
    assert!(requests(&other).1 - gets <= asked + 1 && gets >= before.1, "{asked} gets while nothing changes");
    // The next daemon does not know the earlier changes, so the watcher reads the map again.
    home.kill().unwrap();
    home.restart().unwrap();
    retry(|| here.insert(&key_of(5), &[77; 64]));
    let end = Instant::now() + PATIENCE;
    loop {
        match watch.next_event() {
            Ok(event) if event.value == Some([77; 64]) => break,
            Ok(event) => panic!("{:?} has not changed", event.key),
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

// If this failed, calls over a large map would take a hundred times the timeout of their callers.
#[test]
fn calls_over_a_whole_map_have_one_deadline_and_few_requests() {
    const KEYS: u64 = 10_000;
    type Small = SharedMap<u64, u64>;
    let [home, other] = Daemon::pair().unwrap();
    let here = Small::allocate(&client(&home), "large", KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| Small::open(&there_client, "large"));
    for key in 0..KEYS {
        here.insert_for(&key, &key, PATIENCE * 60).unwrap();
    }
    let counted = |call: &dyn Fn()| {
        let before = settled_requests(&other);
        call();
        let after = settled_requests(&other);
        (after.0 - before.0, after.1 - before.1)
    };
    // A call reads buckets on both sides of a part, since their entries may belong to it.
    let around = 2 * BucketLayout::link_offsets(there.buckets()).into_iter().max().unwrap();
    let most = there.buckets() + around;
    let (puts, gets) = counted(&|| assert_eq!(there.count().unwrap(), KEYS));
    assert!(puts == 0 && gets <= most, "{gets} gets to count {} buckets", there.buckets());
    let asked = all_requests(&other);
    assert_eq!(there.remove_expired(0, u64::MAX).unwrap(), 0);
    assert_eq!(all_requests(&other) - asked, 1, "the home looks through all buckets");
    assert_eq!(here.count().unwrap(), KEYS);
    // A call continues where the previous one ended.
    let mut watch = view_with_timeout(&there, Duration::from_millis(100)).watch_prefix(&[]);
    let ((_, gets), mut timeouts) = (settled_requests(&other), 0);
    for _ in 0..KEYS {
        while let Err(error) = watch.next_event() {
            assert!(error.kind() == ErrorKind::TimedOut && timeouts < 1000, "{error}, the time {timeouts}");
            timeouts += 1;
        }
    }
    let gets = settled_requests(&other).1 - gets;
    assert!(gets <= most + timeouts * (128 + around), "{gets} gets, {timeouts} calls ended at their deadline");
    // One deadline for all buckets.
    let hasty = view_with_timeout(&there, Duration::from_millis(1));
    assert!(hasty.count().unwrap_err().kind() == ErrorKind::TimedOut);
    assert!(hasty.get_many(&(0..KEYS).collect::<Vec<_>>()).unwrap_err().kind() == ErrorKind::TimedOut);
    for key in 0..KEYS {
        here.insert_for(&key, &key, Duration::from_millis(1)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    let asked = all_requests(&other);
    let freed = there.remove_expired(0, u64::MAX).unwrap();
    assert_eq!(all_requests(&other) - asked, 1, "the home frees all entries");
    // It frees some of them by itself if the test takes long.
    assert!(freed <= KEYS);
    let tasks = there_client.aio().unwrap();
    let of_tasks = block_on(aio::SharedMap::<u64, u64>::open(&tasks, "large")).unwrap();
    assert_eq!((block_on(of_tasks.count()).unwrap(), block_on(of_tasks.remove_expired(0, u64::MAX)).unwrap()), (0, 0));
}

/// Requests of all kinds that a node has completed, once it has published all of them.
fn all_requests(daemon: &Daemon) -> u64 {
    settled_requests(daemon);
    read_status(daemon.folder()).unwrap().operations().ended()
}

/// Opens a view of a map with another timeout of calls.
fn view_with_timeout(map: &SharedMap<u64, u64>, timeout: Duration) -> SharedMap<u64, u64> {
    retry(|| SharedMap::view(Table::new(map.table().segment().with_timeout(timeout))?))
}

/// Puts and gets of clients that a node has completed, once it has published all of them.
fn settled_requests(daemon: &Daemon) -> (u64, u64) {
    let mut last = requests(daemon);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = requests(daemon);
        if now == last {
            return now;
        }
        last = now;
    }
}
