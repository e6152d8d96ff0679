use crate::aio;
use crate::map::entry::Attempt;
use crate::testing::{TestNode, block_on};
use crate::{ByteMap, Client, Error, ErrorKind, MapEvent, PrefixWatch, SharedMap, Spec};
use ddss_core::limits::SWEEP_PAUSE_US;
use ddss_core::{BucketLayout, SlotWord};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const FOREVER: Duration = Duration::from_secs(60);

/// Returns keys of bucket 0: as many as its slots, and some that lie in later buckets.
fn crowd(map: &SharedMap<u64, [u64; 8]>, keys: usize) -> Vec<u64> {
    (0..).filter(|key: &u64| map.map.hash(key.as_bytes()).bucket == 0).take(keys).collect()
}

#[test]
fn map_equals_a_hash_map_on_every_path() {
    // If this broke, a key would have the value of another one, or be lost.
    let node = TestNode::start();
    let here = SharedMap::<u64, [u64; 8]>::allocate(&node.local_read_client(), "map", 60).unwrap();
    let there = SharedMap::<u64, [u64; 8]>::open(&node.client(), "map").unwrap();
    let (mut model, hasher) = (HashMap::new(), BuildHasherDefault::<DefaultHasher>::default());
    let keys: Vec<u64> = crowd(&here, 26).into_iter().chain(1_000_000..1_000_020).collect();
    for step in 0..6_000u64 {
        // The same steps in each run.
        let word = hasher.hash_one(step);
        let (map, key) = (if word >> 40 & 1 == 0 { &here } else { &there }, keys[word as usize % keys.len()]);
        let value = [step; 8];
        match (word >> 50) % 6 {
            0 | 1 => assert_eq!(map.insert(&key, &value).unwrap(), model.insert(key, value).is_none()),
            2 => {
                let is_new = !model.contains_key(&key);
                assert_eq!(map.insert_new(&key, &value).unwrap(), is_new);
                model.entry(key).or_insert(value);
            }
            3 => {
                let changed = model.get_mut(&key).map(|value| {
                    value[3] += 1;
                    *value
                });
                assert_eq!(map.update(&key, |value| value[3] += 1).unwrap(), changed);
            }
            4 => assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some()),
            _ => assert_eq!(map.get(&key).unwrap(), model.get(&key).copied()),
        }
    }
    for map in [&here, &there] {
        assert_eq!(map.count().unwrap(), model.len() as u64);
        let entries = (0..map.buckets()).flat_map(|bucket| map.bucket_entries(bucket).unwrap());
        let mut found: Vec<(u64, [u64; 8])> = entries.collect();
        found.sort_unstable();
        let mut wanted: Vec<_> = model.iter().map(|(&key, &value)| (key, value)).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let values = map.get_many(&keys).unwrap();
        assert!(keys.iter().zip(values).all(|(key, value)| value == model.get(key).copied()));
    }
}

/// Runs threads that each have a client and a view of the map of their own.
fn run_clients(node: &TestNode, run: impl Fn(usize, &SharedMap<u64, [u64; 8]>) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for index in 0..4 {
            let client = if index % 2 == 0 { node.client() } else { node.local_read_client() };
            let map = SharedMap::open(&client, "map").unwrap();
            scope.spawn(move || run(index, &map));
        }
    });
}

#[test]
fn one_of_several_clients_inserts_a_key_and_one_removes_it() {
    // If this broke, two sessions would have one key, or a removed key would come back.
    const ROUNDS: u64 = 40;
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    let keys = crowd(&map, 22);
    let (inserted, removed): (Vec<AtomicU32>, Vec<AtomicU32>) =
        keys.iter().map(|_| (AtomicU32::new(0), AtomicU32::new(0))).unzip();
    let all = Barrier::new(4);
    run_clients(&node, |index, map| {
        for round in 0..ROUNDS {
            // Half of the clients insert in another order, so that the clients meet at each key.
            let order: Vec<usize> = (0..keys.len()).collect();
            let order = if index < 2 { order } else { order.into_iter().rev().collect() };
            for &at in &order {
                let is_new = map.insert_new(&keys[at], &[round * 10 + index as u64; 8]).unwrap();
                inserted[at].fetch_add(is_new.into(), Ordering::Relaxed);
                assert!(map.get(&keys[at]).unwrap().is_some(), "a key that was inserted");
            }
            all.wait();
            if index == 0 {
                assert_eq!(map.count().unwrap(), keys.len() as u64, "a key lies at two places");
            }
            all.wait();
            for &at in &order {
                removed[at].fetch_add(map.remove(&keys[at]).unwrap().into(), Ordering::Relaxed);
                assert_eq!(map.get(&keys[at]).unwrap(), None);
            }
            all.wait();
        }
    });
    for counts in [&inserted, &removed] {
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == ROUNDS as u32), "{counts:?}");
    }
    map.remove_expired(0, u64::MAX).unwrap();
    assert_eq!((map.count().unwrap(), map.remove_expired(0, u64::MAX).unwrap()), (0, 0));
}

#[test]
fn no_update_is_lost_beside_inserts_and_removals() {
    // If this broke, a counter in a map would lose increments while other keys come and go.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    let keys = crowd(&map, 26);
    let (counters, others) = keys.split_at(20);
    for key in counters {
        assert!(map.insert_new(key, &[0; 8]).unwrap());
    }
    run_clients(&node, |index, map| {
        for turn in 0..600 {
            let (counter, other) = (&counters[turn % counters.len()], &others[(turn + index) % others.len()]);
            let written = map.update(counter, |value| value[index] += 1).unwrap();
            assert!(written.is_some(), "a counter is gone");
            if turn % 2 == 0 { map.insert(other, &[9; 8]).map(drop) } else { map.remove(other).map(drop) }.unwrap();
        }
    });
    for key in counters {
        assert_eq!(map.get(key).unwrap().unwrap()[..5], [30, 30, 30, 30, 0], "{key}");
    }
}

#[test]
fn expired_entries_are_absent_and_make_room() {
    // If this broke, a cache of sessions would serve old ones, or fill up with them.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.local_read_client(), "map", 20).unwrap();
    let keys = crowd(&map, 22);
    for key in &keys {
        assert!(map.insert_for(key, &[1; 8], FOREVER).unwrap());
        assert!(!map.insert_for(key, &[2; 8], Duration::from_millis(1)).unwrap());
    }
    let began = Instant::now();
    while map.get_many(&keys).unwrap().iter().any(Option::is_some) {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    assert_eq!((map.count().unwrap(), map.update(&keys[0], |_| ()).unwrap()), (0, None));
    assert!(!map.remove(&keys[20]).unwrap(), "an expired key is absent");
    // Live entries take the slots of expired ones, here and in the next bucket.
    for key in &keys {
        assert!(map.insert_new_for(key, &[3; 8], FOREVER).unwrap());
        assert!(!map.insert_new_for(key, &[9; 8], Duration::from_millis(1)).unwrap());
    }
    assert!(map.get_many(&keys).unwrap().iter().all(|value| *value == Some([3; 8])));
    assert_eq!(map.count().unwrap(), 22);
    for key in &keys {
        assert!(!map.insert_for(key, &[4; 8], Duration::from_millis(1)).unwrap());
    }
    while map.count().unwrap() > 0 {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    // The home frees some of them by itself if the test takes long.
    assert!(map.remove_expired(0, u64::MAX).unwrap() <= 22);
    assert_eq!(map.remove_expired(0, u64::MAX).unwrap(), 0);
    let time = map.table().segment().time().started();
    for bucket in 0..map.buckets() {
        assert_eq!(map.map.read_bucket(time, bucket).unwrap().used_slots().count(), 0, "{bucket}");
    }
}

#[test]
fn home_frees_expired_entries_without_any_call() {
    // If this broke, a cache of sessions would fill up unless its users sweep it, and a watcher would not see the end of one.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    map.insert_for(&1, &[1; 8], Duration::from_secs(5)).unwrap();
    map.insert(&2, &[2; 8]).unwrap();
    let mut watch = map.watch_prefix(&[]);
    for _ in 0..2 {
        assert!(watch.next_event().unwrap().value.is_some());
    }
    let began = Instant::now();
    let gone = loop {
        match watch.next_event() {
            Ok(event) if event.value.is_none() => break event.key,
            Ok(event) => assert_eq!(event.key, 1),
            Err(error) => assert!(error.kind() == ErrorKind::TimedOut && began.elapsed() < FOREVER, "{error}"),
        }
    };
    assert_eq!((gone, map.get(&2).unwrap()), (1, Some([2; 8])));
    let (time, hash) = (map.table().segment().time().started(), map.map.hash(1u64.as_bytes()));
    let home = map.map.read_bucket(time, hash.bucket).unwrap();
    assert_eq!(home.slot_of(hash.tag, 1u64.as_bytes()), None, "its slot is free");
}

#[test]
fn entry_of_a_client_that_died_before_the_link_is_not_visible_and_is_freed() {
    // If this broke, an insert that never completed would appear later, or take memory for ever.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    let keys = crowd(&map, 17);
    for key in &keys[..16] {
        assert!(map.insert_new(key, &[1; 8]).unwrap());
    }
    let time = map.table().segment().time().started();
    let (last, hash) = (keys[16], map.map.hash(keys[16].as_bytes()));
    let home = map.map.read_bucket(time, 0).unwrap();
    // The first of the two puts of `write_elsewhere`.
    let image = map.map.read_bucket(time, 1).unwrap();
    let word = SlotWord::new(hash.tag, 0).bytes();
    let head = map.map.layout.head_at(3);
    let put = map.map.put_bucket(time, 1, image.version, &[(head, &word), (head + 8, last.as_bytes())]).unwrap();
    assert!(matches!(put, Attempt::Done));
    assert_eq!((map.get(&last).unwrap(), map.count().unwrap()), (None, 16));
    assert_eq!(map.remove_expired(0, u64::MAX).unwrap(), 1);
    // The client was only slow: its second put comes too late.
    let late = map.map.put_bucket(time, 0, home.version, &[(map.map.layout.link_at(0), &[1; 4])]).unwrap();
    assert!(matches!(late, Attempt::Changed));
    assert!(map.map.read_bucket(time, 1).unwrap().word(3).is_none());
    assert!(map.insert_new(&last, &[2; 8]).unwrap());
    assert_eq!((map.get(&last).unwrap(), map.count().unwrap()), (Some([2; 8]), 17));
    assert_eq!(map.remove_expired(0, u64::MAX).unwrap(), 0, "a linked entry stays");
}

#[test]
fn link_to_an_expired_entry_stays_until_its_slot_is_free() {
    // If this broke, a value that another client puts in the place of an expired one meanwhile would be lost.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    let keys = crowd(&map, 17);
    for key in &keys {
        assert!(map.insert_for(key, &[1; 8], FOREVER).unwrap());
    }
    for key in &keys {
        assert!(!map.insert_for(key, &[2; 8], Duration::from_millis(1)).unwrap());
    }
    let began = Instant::now();
    while map.count().unwrap() > 0 {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    let time = map.table().segment().time().started();
    let home = map.map.read_bucket(time, 0).unwrap();
    let (_, link) = home.links().next().expect("17 entries have a link");
    let bucket = map.map.stepped(0, link.step);
    // The other client has found the expired entry, and puts after the links of bucket 0 were looked through.
    let image = map.map.read_bucket(time, bucket).unwrap();
    map.remove_expired(0, 1).unwrap();
    // The home frees that entry by itself if the test takes long.
    let is_late = began.elapsed() + Duration::from_secs(2) > Duration::from_micros(SWEEP_PAUSE_US);
    let word = SlotWord::new(map.map.hash(image.key(link.slot)).tag, 0).bytes();
    let head = map.map.layout.head_at(link.slot);
    let put = map.map.put_bucket(time, bucket, image.version, &[(head, &word)]).unwrap();
    if is_late && matches!(put, Attempt::Changed) {
        return;
    }
    assert!(matches!(put, Attempt::Done));
    let key = keys.iter().find(|key| key.as_bytes() == image.key(link.slot)).unwrap();
    assert_eq!(map.get(key).unwrap(), Some([2; 8]));
}

#[test]
fn full_map_names_its_limit_and_wrong_types_are_refused() {
    // If this broke, a map would lose keys instead of refusing them, or be read as values of another type.
    let node = TestNode::start();
    let client = node.client();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&client, "map", 25).unwrap();
    let refused = (0..100).find_map(|key| map.insert(&key, &[key; 8]).err().map(|error| (key, error)));
    let (keys, error) = refused.expect("a map of two buckets holds 32 keys");
    assert_eq!(keys, 32);
    assert!(error.to_string().contains("load limit 0.8"), "{error}");
    assert_eq!((error.kind(), error.is_indeterminate()), (ErrorKind::NoSpace, false));
    assert!((0..32).all(|key| map.get(&key).unwrap() == Some([key; 8])));
    assert!(!map.insert(&3, &[0; 8]).unwrap(), "a key that is present needs no room");
    assert!(map.remove(&3).unwrap() && map.insert(&77, &[7; 8]).unwrap());

    let of = |error: Error| error.kind();
    assert_eq!(of(SharedMap::<u64, u64>::open(&client, "map").unwrap_err()), ErrorKind::WrongShape);
    assert_eq!(of(SharedMap::<[u64; 2], [u64; 7]>::open(&client, "map").unwrap_err()), ErrorKind::WrongShape);
    let layout = BucketLayout::new(8, 64).unwrap();
    let table = client.table("table").allocate(Spec::new(10).row_len(layout.row_bytes() as u32)).unwrap();
    table.row(0).put(b"something else").unwrap();
    assert_eq!(of(SharedMap::<u64, [u64; 8]>::view(table).unwrap_err()), ErrorKind::WrongShape);
    let too_large = SharedMap::<u64, [u8; 65_537]>::allocate(&client, "large", 1).unwrap_err();
    assert_eq!(of(too_large), ErrorKind::BadArgument);
}

/// Inserts all keys that a map was allocated for.
fn fill<K, V>(client: &Client, name: &str, keys: &[K], value: &V)
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes + IntoBytes + Immutable + PartialEq + std::fmt::Debug,
{
    let map = SharedMap::<K, V>::allocate(client, name, keys.len() as u64).unwrap();
    for (at, key) in keys.iter().enumerate() {
        assert!(map.insert_new(key, value).unwrap(), "key {at} of {} in {name}", keys.len());
    }
    assert_eq!(map.count().unwrap(), keys.len() as u64);
    assert!(keys.iter().step_by(97).all(|key| map.get(key).unwrap().as_ref() == Some(value)));
    map.release().unwrap();
}

#[test]
fn map_takes_all_keys_that_it_was_allocated_for() {
    // If this broke, a map would refuse a key although it has fewer than it was allocated for.
    let node = TestNode::start_with(|config| config.pool_bytes = 32 << 20);
    let client = node.local_read_client();
    // Many keys of one bucket: its slots and links hold them all.
    let map = SharedMap::<u64, [u64; 8]>::allocate(&client, "map", 60).unwrap();
    let keys = crowd(&map, 16 + BucketLayout::LINKS);
    keys.iter().for_each(|key| assert!(map.insert_new(key, &[*key; 8]).unwrap()));
    assert!(keys.iter().all(|key| map.get(key).unwrap() == Some([*key; 8])));
    assert!(keys.iter().all(|key| map.remove(key).unwrap()));
    keys.iter().for_each(|key| assert!(map.insert_new(key, &[*key; 8]).unwrap()));
    for seed in 0..3u64 {
        let numbers: Vec<u64> = (0..3_000).map(|key| seed << 40 | key).collect();
        fill(&client, "numbers", &numbers, &[7u64; 8]);
        let far: Vec<u64> = (0..1_000).map(|key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * seed)).collect();
        fill(&client, "far", &far, &[7u8; 600]);
        let words: Vec<[u8; 16]> =
            (0..500).map(|key| format!("user-{key:011}").into_bytes().try_into().unwrap()).collect();
        fill(&client, "words", &words, &[7u8; 5_000]);
    }
}

/// Checks values of a size whose buckets are read in two parts.
fn check_large<const BYTES: usize>(client: &Client, name: &str) {
    let map = SharedMap::<[u8; 20], [u8; BYTES]>::allocate(client, name, 20).unwrap();
    for key in 0..20u8 {
        assert!(map.insert(&[key; 20], &[key; BYTES]).unwrap());
    }
    let changed = map.update(&[3; 20], |value| value[BYTES - 1] = 99).unwrap().unwrap();
    assert_eq!(map.get(&[3; 20]).unwrap(), Some(changed));
    for key in (0..20u8).filter(|&key| key != 3) {
        assert_eq!(map.get(&[key; 20]).unwrap(), Some([key; BYTES]));
    }
    assert_eq!(map.get(&[20; 20]).unwrap(), None);
}

#[test]
fn values_of_all_sizes_are_whole() {
    // If this broke, a large value would be of two versions or at a wrong place.
    let node = TestNode::start();
    for (index, client) in [node.client(), node.local_read_client()].iter().enumerate() {
        check_large::<500>(client, &format!("small-{index}"));
        check_large::<5_001>(client, &format!("large-{index}"));
    }
    check_large::<65_536>(&node.client(), "largest");
    let set = SharedMap::<u64, ()>::allocate(&node.client(), "set", 100).unwrap();
    assert!(set.insert(&5, &()).unwrap() && !set.insert(&5, &()).unwrap());
    assert_eq!((set.get(&5).unwrap(), set.get(&6).unwrap()), (Some(()), None));
}

#[test]
fn tasks_use_a_map() {
    // If this broke, the asynchronous map would differ from the blocking one.
    let node = TestNode::start();
    let client = node.client().aio().unwrap();
    block_on(async {
        let map = aio::SharedMap::<u64, u64>::allocate(&client, "map", 100).await.unwrap();
        assert!(map.insert_new(&1, &10).await.unwrap());
        assert_eq!(map.update(&1, |value| *value += 1).await.unwrap(), Some(11));
        assert_eq!(map.get_many(&[1, 2]).await.unwrap(), [Some(11), None]);
        assert!(map.remove(&1).await.unwrap());
        assert_eq!(map.count().await.unwrap(), 0);
        map.release().await.unwrap();
    });
}

#[test]
fn watcher_of_a_key_sees_each_kind_of_change() {
    // If this broke, a watcher would poll, or miss that its key was inserted, changed, removed or has expired.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    // The last keys lie behind links.
    let keys = crowd(&map, 20);
    for key in &keys[..15] {
        map.insert(key, &[1; 8]).unwrap();
    }
    for key in [keys[3], keys[15], keys[17]] {
        let (next, changes) = (Barrier::new(2), [Some([7; 8]), Some([8; 8]), None, Some([9; 8])]);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let map = SharedMap::<u64, [u64; 8]>::open(&node.client(), "map").unwrap();
                let mut seen = map.get(&key).unwrap();
                changes.map(|_| {
                    next.wait();
                    seen = map.wait_for_change(&key, seen.as_ref()).unwrap();
                    next.wait();
                    seen
                })
            });
            for change in &changes {
                next.wait();
                // Changes of other keys of the bucket wake the watcher, which waits on.
                map.update(&keys[0], |value| value[0] += 1).unwrap();
                match change {
                    Some(value) => drop(map.insert(&key, value).unwrap()),
                    None => assert!(map.remove(&key).unwrap()),
                }
                next.wait();
            }
            assert_eq!(watcher.join().unwrap(), changes);
        });
        // No put announces an expiry.
        assert!(!map.insert_for(&key, &[2; 8], Duration::from_millis(100)).unwrap());
        assert_eq!(map.wait_for_change(&key, Some(&[2; 8])).unwrap(), None);
        assert!(map.insert(&key, &[1; 8]).unwrap());
    }
    let hasty = SharedMap::<u64, [u64; 8]>::open(&node.short_timeout_client(), "map").unwrap();
    let same = hasty.wait_for_change(&keys[3], Some(&[1; 8])).unwrap_err();
    assert_eq!((same.kind(), same.kind() == ErrorKind::TimedOut), (ErrorKind::TimedOut, true));
}

#[test]
fn bytes_of_a_map_are_those_of_its_types() {
    // If this broke, a tool would show other values than the program has, or take any table for a map.
    let node = TestNode::start();
    let client = node.client();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&client, "map", 60).unwrap();
    let keys = crowd(&map, 20);
    for key in &keys {
        map.insert(key, &[*key; 8]).unwrap();
    }
    let bytes = ByteMap::open(&node.local_read_client(), "map").unwrap();
    assert_eq!((bytes.key_bytes(), bytes.value_bytes(), bytes.capacity()), (8, 64, map.capacity()));
    for key in &keys {
        assert_eq!(bytes.get(key.as_bytes()).unwrap().unwrap(), [*key; 8].as_bytes());
    }
    let entries: usize = (0..bytes.buckets()).map(|bucket| bytes.bucket_entries(bucket).unwrap().len()).sum();
    assert_eq!((entries, bytes.count().unwrap()), (20, 20));
    assert!(!bytes.insert(keys[19].as_bytes(), &[1; 64]).unwrap() && bytes.remove(keys[0].as_bytes()).unwrap());
    assert!(bytes.insert_new(keys[0].as_bytes(), &[2; 64]).unwrap());
    assert_eq!(map.get(&keys[19]).unwrap(), Some([0x0101_0101_0101_0101; 8]));
    let of = |error: Error| error.kind();
    assert_eq!(of(bytes.get(&[1; 7]).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(of(bytes.insert(&[1; 8], &[1; 65]).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(bytes.get(&[1; 8]).unwrap(), None);
    // A table whose first row was never written is no map, nor is a plain segment.
    client.table("table").allocate(ByteMap::spec(10, 8, 64).unwrap()).unwrap();
    assert_eq!(of(ByteMap::open(&client, "table").unwrap_err()), ErrorKind::WrongShape);
    client.table("small").allocate(Spec::new(10).row_len(8)).unwrap();
    assert_eq!(of(ByteMap::open(&client, "small").unwrap_err()), ErrorKind::WrongShape);
    client.segment("plain").allocate(Spec::new(64)).unwrap();
    assert_eq!(of(ByteMap::open(&client, "plain").unwrap_err()), ErrorKind::WrongShape);
    let made = ByteMap::allocate(&client, "made", 5, 3, 0).unwrap();
    assert!(made.insert_for(b"abc", b"", FOREVER).unwrap() && !made.insert(b"abc", b"").unwrap());
    assert_eq!(of(ByteMap::allocate(&client, "none", 5, 0, 8).unwrap_err()), ErrorKind::BadArgument);
    block_on(async {
        let client = client.aio().unwrap();
        let map = aio::ByteMap::open(&client, "made").await.unwrap();
        assert_eq!((map.get(b"abc").await.unwrap(), map.get(b"abd").await.unwrap()), (Some(Vec::new()), None));
    });
}

/// Applies events until the watcher's view equals the map.
fn follow(
    watch: &mut PrefixWatch<u64, [u64; 8]>,
    seen: &mut HashMap<u64, [u64; 8]>,
    map: &SharedMap<u64, [u64; 8]>,
    keys: &[u64],
) {
    let values = map.get_many(keys).unwrap();
    let wanted: HashMap<_, _> = keys.iter().zip(values).filter_map(|(&key, value)| Some((key, value?))).collect();
    while *seen != wanted {
        let event = watch.next_event().unwrap();
        match event.value {
            Some(value) => seen.insert(event.key, value),
            None => Some(seen.remove(&event.key).expect("a key that was there")),
        };
    }
}

#[test]
fn watcher_of_a_prefix_sees_every_key_wherever_its_entry_lies() {
    // If this broke, a watcher would miss a key behind a link, or a change that came while it was busy.
    let node = TestNode::start();
    let map = SharedMap::<u64, [u64; 8]>::allocate(&node.client(), "map", 60).unwrap();
    // Keys of one first byte; the last of them lie behind links. Others must not be reported.
    let bucket_of = |key: &u64| map.map.hash(key.as_bytes()).bucket;
    let keys: Vec<u64> = (0..1_000_000u64).map(|key| key << 8 | 7).filter(|key| bucket_of(key) == 0).take(22).collect();
    let others: Vec<u64> =
        (0..1_000_000u64).map(|key| key << 8 | 8).filter(|key| bucket_of(key) <= 1).take(6).collect();
    map.insert(&keys[0], &[1; 8]).unwrap();
    let watched = SharedMap::<u64, [u64; 8]>::open(&node.local_read_client(), "map").unwrap();
    let (mut watch, mut seen) = (watched.watch_prefix(&[7]), HashMap::new());
    assert_eq!(watch.next_event().unwrap(), MapEvent { key: keys[0], value: Some([1; 8]) });
    seen.insert(keys[0], [1; 8]);
    for (at, key) in keys.iter().enumerate() {
        map.insert(&others[at % others.len()], &[at as u64; 8]).unwrap();
        map.insert(key, &[at as u64; 8]).unwrap();
        follow(&mut watch, &mut seen, &map, &keys);
    }
    for key in [keys[21], keys[3], keys[18]] {
        map.update(&key, |value| value[2] += 1).unwrap();
        follow(&mut watch, &mut seen, &map, &keys);
        assert!(map.remove(&key).unwrap());
        follow(&mut watch, &mut seen, &map, &keys);
        assert!(map.insert_new(&key, &[9; 8]).unwrap());
        follow(&mut watch, &mut seen, &map, &keys);
    }
    // More changes than the home records.
    for round in 0..2 * ddss_core::limits::ROW_CHANGES_MAX as u64 {
        map.insert(&keys[round as usize % 5], &[round; 8]).unwrap();
    }
    assert!(map.remove(&keys[20]).unwrap());
    follow(&mut watch, &mut seen, &map, &keys);
    let hasty = SharedMap::<u64, [u64; 8]>::open(&node.short_timeout_client(), "map").unwrap();
    let mut idle = hasty.watch_prefix(&[9]);
    assert!(idle.next_event().unwrap_err().kind() == ErrorKind::TimedOut);
    map.insert(&(1 << 8 | 9), &[1; 8]).unwrap();
    assert_eq!(idle.next_event().unwrap().key, 1 << 8 | 9);
    block_on(async {
        let client = node.client().aio().unwrap();
        let bytes = aio::ByteMap::open(&client, "map").await.unwrap();
        let mut watch = bytes.watch_prefix(&[9]);
        assert_eq!(watch.next_event().await.unwrap().value.unwrap(), [1u64; 8].as_bytes());
        map.remove(&(1 << 8 | 9)).unwrap();
        assert_eq!(watch.next_event().await.unwrap().value, None);
    });
}
