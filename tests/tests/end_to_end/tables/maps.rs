//! Maps with real daemons: keys over two nodes, and the death of clients and daemons in the middle of changes.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Batch, Client, ConnectOptions, Encoding, EntryOptions, ErrorKind, MapEvent, Spec, Storage, Table};
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

type Map = ddss::Map<u64, [u64; 64]>;

fn client(daemon: &Daemon) -> Client {
    client_within(daemon, PATIENCE)
}

fn client_within(daemon: &Daemon, timeout: Duration) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(timeout)).expect("the daemon serves")
}

fn value<V: Encoding>(map: &ddss::Map<u64, V>, key: &u64) -> Option<V::Output> {
    map.get(key).unwrap().map(|entry| entry.value)
}

/// Puts a value if the key is new, and returns true then.
fn put_new(map: &Map, key: &u64, value: &[u64; 64]) -> bool {
    match map.put_with(key, value, EntryOptions::new().if_absent()) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        written => written.unwrap().is_new,
    }
}

/// Checks that each key occurs once with a complete value of its own; returns the number of keys.
fn check(map: &Map) -> u64 {
    let list = || {
        let mut all: Vec<(u64, [u64; 64])> = map.entries().collect::<Result<_, _>>().unwrap();
        all.sort_unstable();
        all
    };
    // The last calls of a killed client may still be executed.
    let (mut found, end) = (list(), Instant::now() + PATIENCE);
    loop {
        let (keys, again) = (map.len().unwrap(), list());
        if again == found && keys == found.len() as u64 {
            break;
        }
        assert!(Instant::now() < end, "{keys} keys, and {} are listed", found.len());
        found = again;
    }
    for (key, content) in &found {
        assert!(content.iter().all(|word| word == &content[0]) && content[0] % KEYS == *key, "a mix of values");
        assert_eq!(value(map, key), Some(*content));
    }
    assert!(found.windows(2).all(|pair| pair[0].0 != pair[1].0), "a key is there twice");
    found.len() as u64
}

// If this failed, a map would have different values on another node.
#[test]
fn keys_of_a_map_are_read_and_changed_on_both_nodes() {
    let [home, other] = Daemon::pair().unwrap();
    let here = client(&home).map::<u64, [u64; 64]>("map").allocate(KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, [u64; 64]>("map").open());
    for key in 0..KEYS {
        let (writer, reader) = if key % 2 == 0 { (&here, &there) } else { (&there, &here) };
        assert!(put_new(writer, &key, &[key; 64]));
        assert!(!put_new(reader, &key, &[0; 64]));
        assert_eq!(value(reader, &key), Some([key; 64]));
    }
    assert_eq!((check(&here), check(&there)), (KEYS, KEYS));
    for key in (0..KEYS).step_by(3) {
        assert!(there.remove(&key).unwrap() && !here.remove(&key).unwrap());
    }
    assert_eq!((check(&here), check(&there)), (66, 66));
    there.segment().release().unwrap();
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
    let here = client(&home).map::<u64, [u64; 64]>("map").allocate(KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, [u64; 64]>("map").open());
    for (daemon, map) in [(&home, &here), (&other, &there)] {
        let before = requests(daemon);
        for key in 0..10 {
            assert!(map.put(&key, &[1; 64]).unwrap().is_new && !put_new(map, &key, &[2; 64]));
            assert!(!map.put_with(&key, &[3; 64], EntryOptions::new().ttl(PATIENCE)).unwrap().is_new);
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
    let here = client(&home).map::<u64, u64>("many").allocate(MANY).unwrap();
    for key in 0..MANY {
        here.put(&key, &(key * 3)).unwrap();
    }
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, u64>("many").open());
    there.get(&0).unwrap();
    let counted = || {
        let status = read_status(other.folder()).unwrap();
        (status.counter(Counter::FabricReads), status.operation(Kind::GetMany).ended(), requests(&other).1)
    };
    let (before, mut batches) = (counted(), 0);
    // Absent keys are asked for, too.
    for first in (0..MANY + 256).step_by(128) {
        let keys: Vec<u64> = (first..first + 128).collect();
        let found = there.get_many(&keys.iter().collect::<Vec<_>>()).unwrap();
        let values = found.into_iter().map(|entry| entry.map(|entry| entry.value));
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
    assert_eq!(there.len().unwrap(), MANY);
}

// If this failed, a batch from another node would cost as many round trips as it has keys behind links.
#[test]
fn batch_on_a_map_of_another_node_is_one_request_each_and_one_more_behind_links() {
    const MANY: u64 = 600;
    let [home, other] = Daemon::pair().unwrap();
    let here = client(&home).map::<u64, u64>("many").allocate(MANY).unwrap();
    for key in 0..MANY {
        here.put(&key, &(key * 3)).unwrap();
    }
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, u64>("many").open());
    let before = settled_requests(&other);
    let (mut batch, mut found, mut removed) = (Batch::new(), Vec::new(), Vec::new());
    for key in 0..MANY {
        found.push(batch.map_get(&there, &key).unwrap());
        removed.push(batch.map_remove(&there, &(key + MANY)).unwrap());
    }
    let mut replies = there_client.run(batch).unwrap();
    for (key, (found, removed)) in (0..).zip(found.into_iter().zip(removed)) {
        assert_eq!(replies.take(found).unwrap().map(|entry| entry.value), Some(key * 3));
        assert!(!replies.take(removed).unwrap(), "an absent key");
    }
    let after = settled_requests(&other);
    let (puts, gets) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(puts, MANY, "requests of {MANY} removals");
    // Of some hundred keys, a few lie behind links: 32 of them are one request.
    assert!((MANY..=MANY + MANY / 32).contains(&gets), "{gets} gets for {MANY} keys");
}

// If this failed, many keys that are present would be reported as absent: their values lie outside of what one read brings.
#[test]
fn many_keys_with_large_values_are_found_from_another_node() {
    let [home, other] = Daemon::pair().unwrap();
    let here = client(&home).map::<u64, [u8; 1000]>("large").allocate(200).unwrap();
    for key in 0..200 {
        here.put(&key, &[key as u8; 1000]).unwrap();
    }
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, [u8; 1000]>("large").open());
    let keys: Vec<u64> = (0..201).collect();
    let found = there.get_many(&keys.iter().collect::<Vec<_>>()).unwrap();
    let wanted = keys.iter().map(|&key| (key < 200).then_some([key as u8; 1000]));
    assert!(found.into_iter().map(|entry| entry.map(|entry| entry.value)).eq(wanted));
}

// If this failed, the death of one application would leave half of an entry, or a key twice, to all others.
#[test]
fn map_stays_whole_when_its_clients_are_killed() {
    let [home, other] = Daemon::pair().unwrap();
    let map = client(&home).map::<u64, [u64; 64]>("churn").allocate(KEYS).unwrap();
    let far_client = client(&other);
    let far = retry(|| far_client.map::<u64, [u64; 64]>("churn").open());
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
        assert!(map.put(&round, &[round; 64]).is_ok() && value(&far, &round) == Some([round; 64]));
    }
    assert!(keys > 0, "no client changed the map");
    // Unlinked entries do not take space forever.
    assert_eq!(check(&map), far.len().unwrap());
    for key in 0..KEYS {
        far.put(&key, &[key; 64]).unwrap();
    }
    assert_eq!(check(&map), KEYS);
}

// If this failed, an acknowledged insert would be lost with its daemon, or a key would occur twice.
#[test]
fn acknowledged_inserts_survive_the_death_of_the_daemon() {
    for storage in [Storage::Memory, Storage::File] {
        let mut daemon = Daemon::start(1).unwrap();
        let map: Map = client(&daemon).map("map").allocate(Spec::new(5_000).storage(storage)).unwrap();
        let mut next = 0u64;
        for round in 0..4 {
            let soon = client_within(&daemon, Duration::from_secs(1));
            let (writer, first) = (soon.map::<u64, [u64; 64]>("map").open().unwrap(), next);
            let inserts = std::thread::spawn(move || {
                let mut key = first;
                // The last insert waits a second for the dead daemon. It may or may not have taken effect.
                while key < 5_000 && writer.put(&key, &[key; 64]).is_ok() {
                    key += 1;
                }
                key
            });
            std::thread::sleep(Duration::from_millis(30 + 7 * round));
            daemon.kill().unwrap();
            next = inserts.join().unwrap();
            daemon.restart().unwrap();
            for key in 0..next {
                assert_eq!(value(&map, &key), Some([key; 64]), "{storage:?}: an acknowledged insert was lost");
            }
            let count = map.len().unwrap();
            assert!([next, next + 1].contains(&count), "{storage:?}: {count} keys after {next} inserts");
        }
        assert!(next > 0, "nothing was inserted");
    }
}

// If this failed, a client that died after it allocated the table would leave a map that no other client can open.
#[test]
fn map_without_description_is_completed_by_the_next_client() {
    let daemon = Daemon::start(1).unwrap();
    client(&daemon).segment("map").allocate(Spec::new(50).entry_len(8, 512)).unwrap();
    let map = client(&daemon).map::<u64, [u64; 64]>("map").open().unwrap();
    assert!(map.put(&1, &[1; 64]).unwrap().is_new);
    assert_eq!(value(&client(&daemon).map::<u64, [u64; 64]>("map").open().unwrap(), &1), Some([1; 64]));
}

// If this failed, a watcher on another node would poll, miss a change, or end with the daemon of the home.
#[test]
fn watcher_of_a_prefix_follows_from_another_node_and_over_a_restart() {
    let [mut home, other] = Daemon::pair().unwrap();
    let here = client(&home).map::<u64, [u64; 64]>("map").allocate(KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, [u64; 64]>("map").open());
    // Keys whose first byte is 3; the others are not reported.
    let key_of = |number: u64| number << 8 | 3;
    let mut watch = there.watch(&[3]);
    let before = requests(&other);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..40 {
                assert!(here.put(&key_of(number), &[number; 64]).unwrap().is_new);
                assert!(here.put(&(number << 8 | 4), &[number; 64]).unwrap().is_new);
            }
            for number in 0..20 {
                assert!(here.remove(&key_of(number)).unwrap());
            }
        });
        // Changes that follow each other quickly may be merged.
        let (mut seen, last) = (BTreeMap::new(), (20..40).map(|number| (key_of(number), [number; 64])).collect());
        while seen != last {
            match watch.next().unwrap().unwrap() {
                MapEvent::Put { key, value } => {
                    assert_eq!(key & 0xff, 3);
                    seen.insert(key, value);
                }
                MapEvent::Removed { key } => {
                    assert!(seen.remove(&key).is_some(), "a key that was never there is removed");
                }
                event => panic!("{event:?}"),
            }
        }
        writer.join().unwrap();
    });
    // An idle watcher sends no gets.
    let gets = requests(&other).1;
    let mut quiet = there.watch(&[9]);
    assert_eq!(quiet.next_within(Duration::from_millis(300)).unwrap(), None);
    let asked = requests(&other).1 - gets;
    assert_eq!(quiet.next_within(Duration::from_millis(300)).unwrap(), None);
    // The daemon counts a request after its answer.
    assert!(requests(&other).1 - gets <= asked + 1 && gets >= before.1, "{asked} gets while nothing changes");
    // The next daemon does not know the earlier changes, so the watcher reads the map again.
    home.kill().unwrap();
    home.restart().unwrap();
    retry(|| here.put(&key_of(5), &[77; 64]));
    let end = Instant::now() + PATIENCE;
    loop {
        match watch.next().unwrap() {
            Ok(event) => {
                assert_eq!(event, MapEvent::Put { key: key_of(5), value: [77; 64] }, "it has not changed");
                break;
            }
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

// If this failed, calls over a large map would take a hundred times the timeout of their callers.
#[test]
fn calls_over_a_whole_map_have_one_deadline_and_few_requests() {
    const KEYS: u64 = 10_000;
    let [home, other] = Daemon::pair().unwrap();
    let here = client(&home).map::<u64, u64>("large").allocate(KEYS).unwrap();
    let there_client = client(&other);
    let there = retry(|| there_client.map::<u64, u64>("large").open());
    for key in 0..KEYS {
        here.put_with(&key, &key, EntryOptions::new().ttl(PATIENCE * 60)).unwrap();
    }
    let counted = |call: &dyn Fn()| {
        let before = settled_requests(&other);
        call();
        let after = settled_requests(&other);
        (after.0 - before.0, after.1 - before.1)
    };
    // A call reads buckets on both sides of a part, since their entries may belong to it.
    let buckets = <Table>::try_from(there.segment().clone()).unwrap().len() - 1;
    let around = 2 * BucketLayout::link_offsets(buckets).into_iter().max().unwrap();
    let most = buckets + around;
    // Buckets that are read together, and those around them, are one request.
    let windows = buckets.div_ceil(128) + 1;
    let (puts, gets) = counted(&|| assert_eq!(there.len().unwrap(), KEYS));
    assert!(puts == 0 && gets <= windows, "{gets} gets to count {buckets} buckets");
    let (puts, gets) = counted(&|| assert_eq!(there.entries().count() as u64, KEYS));
    assert!(puts == 0 && gets <= windows, "{gets} gets to list {buckets} buckets");
    assert_eq!(here.len().unwrap(), KEYS);
    // A call continues where the previous one ended.
    let mut watch = there.watch(&[]);
    let ((_, gets), mut timeouts) = (settled_requests(&other), 0);
    for _ in 0..KEYS {
        while watch.next_within(Duration::from_millis(100)).unwrap().is_none() {
            assert!(timeouts < 1000, "an event is missing");
            timeouts += 1;
        }
    }
    let gets = settled_requests(&other).1 - gets;
    assert!(gets <= most + timeouts * (128 + around), "{gets} gets, {timeouts} calls ended at their deadline");
    // One deadline for all buckets.
    let hasty_client = client_within(&other, Duration::from_millis(1));
    let hasty = retry(|| hasty_client.map::<u64, u64>("large").open());
    assert!(hasty.len().unwrap_err().kind() == ErrorKind::TimedOut);
    let keys: Vec<u64> = (0..KEYS).collect();
    assert!(hasty.get_many(&keys.iter().collect::<Vec<_>>()).unwrap_err().kind() == ErrorKind::TimedOut);
    // The first entry of a map without entries is behind all its buckets.
    client(&home).map::<u64, u64>("empty").allocate(20 * KEYS).unwrap();
    let empty = retry(|| hasty_client.map::<u64, u64>("empty").open());
    let first = empty.entries().next().expect("a list that was read in part is no empty list");
    assert!(first.unwrap_err().kind() == ErrorKind::TimedOut);
    for key in 0..KEYS {
        here.put_with(&key, &key, EntryOptions::new().ttl(Duration::from_millis(1))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    let tasks = there_client.aio().unwrap();
    let of_tasks = block_on(tasks.map::<u64, u64>("large").open()).unwrap();
    assert_eq!(block_on(of_tasks.len()).unwrap(), 0);
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
