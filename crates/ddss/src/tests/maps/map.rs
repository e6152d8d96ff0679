use super::calls::Calls;
use crate::map::entry::Attempt;
use crate::testing::{TestNode, block_on};
use crate::{Client, Encoding, Entry, Error, ErrorKind, Map, MapEvent, Spec, Update};
use ddss_core::limits::SWEEP_PAUSE_US;
use ddss_core::{BucketLayout, SlotWord};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const FOREVER: Duration = Duration::from_secs(60);

/// Returns keys of bucket 0: as many as its slots, and some that lie in later buckets.
pub(super) fn crowd(map: &Map<u64, [u64; 8]>, keys: usize) -> Vec<u64> {
    (0..).filter(|key: &u64| map.map.hash(key.as_bytes()).bucket == 0).take(keys).collect()
}

#[test]
fn map_equals_a_hash_map_on_every_path() {
    // If this broke, a key would have the value of another one, or be lost.
    let node = TestNode::start();
    let here = node.local_read_client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let there = node.client().map::<u64, [u64; 8]>("map").open().unwrap();
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
                assert_eq!(map.change(&key, |value| value[3] += 1), changed);
            }
            4 => assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some()),
            _ => assert_eq!(map.value(&key), model.get(&key).copied()),
        }
    }
    for map in [&here, &there] {
        assert_eq!(map.len().unwrap(), model.len() as u64);
        let mut found: Vec<(u64, [u64; 8])> = map.entries().collect::<Result<_, _>>().unwrap();
        found.sort_unstable();
        let mut wanted: Vec<_> = model.iter().map(|(&key, &value)| (key, value)).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let values = map.values(&keys);
        assert!(keys.iter().zip(values).all(|(key, value)| value == model.get(key).copied()));
    }
}

/// Runs threads that each have a client and a view of the map of their own.
fn run_clients(node: &TestNode, run: impl Fn(usize, &Map<u64, [u64; 8]>) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for index in 0..4 {
            let client = if index % 2 == 0 { node.client() } else { node.local_read_client() };
            let map = client.map("map").open().unwrap();
            scope.spawn(move || run(index, &map));
        }
    });
}

#[test]
fn one_of_several_clients_inserts_a_key_and_one_removes_it() {
    // If this broke, two sessions would have one key, or a removed key would come back.
    const ROUNDS: u64 = 40;
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
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
                assert!(map.value(&keys[at]).is_some(), "a key that was inserted");
            }
            all.wait();
            if index == 0 {
                assert_eq!(map.len().unwrap(), keys.len() as u64, "a key lies at two places");
            }
            all.wait();
            for &at in &order {
                removed[at].fetch_add(map.remove(&keys[at]).unwrap().into(), Ordering::Relaxed);
                assert_eq!(map.value(&keys[at]), None);
            }
            all.wait();
        }
    });
    for counts in [&inserted, &removed] {
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == ROUNDS as u32), "{counts:?}");
    }
    map.sweep(0, u64::MAX);
    assert_eq!((map.len().unwrap(), map.sweep(0, u64::MAX)), (0, 0));
}

#[test]
fn no_update_is_lost_beside_inserts_and_removals() {
    // If this broke, a counter in a map would lose increments while other keys come and go.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = crowd(&map, 26);
    let (counters, others) = keys.split_at(20);
    for key in counters {
        assert!(map.insert_new(key, &[0; 8]).unwrap());
    }
    run_clients(&node, |index, map| {
        for turn in 0..600 {
            let (counter, other) = (&counters[turn % counters.len()], &others[(turn + index) % others.len()]);
            let written = map.change(counter, |value| value[index] += 1);
            assert!(written.is_some(), "a counter is gone");
            if turn % 2 == 0 { map.insert(other, &[9; 8]).map(drop) } else { map.remove(other).map(drop) }.unwrap();
        }
    });
    for key in counters {
        assert_eq!(map.value(key).unwrap()[..5], [30, 30, 30, 30, 0], "{key}");
    }
}

#[test]
fn expired_entries_are_absent_and_make_room() {
    // If this broke, a cache of sessions would serve old ones, or fill up with them.
    let node = TestNode::start();
    let map = node.local_read_client().map::<u64, [u64; 8]>("map").allocate(20).unwrap();
    let keys = crowd(&map, 22);
    for key in &keys {
        assert!(map.insert_for(key, &[1; 8], FOREVER).unwrap());
        assert!(!map.insert_for(key, &[2; 8], Duration::from_millis(1)).unwrap());
    }
    let began = Instant::now();
    while map.values(&keys).iter().any(Option::is_some) {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    assert_eq!((map.len().unwrap(), map.change(&keys[0], |_| ())), (0, None));
    assert!(!map.remove(&keys[20]).unwrap(), "an expired key is absent");
    // Live entries take the slots of expired ones, here and in the next bucket.
    for key in &keys {
        assert!(map.insert_new_for(key, &[3; 8], FOREVER).unwrap());
        assert!(!map.insert_new_for(key, &[9; 8], Duration::from_millis(1)).unwrap());
    }
    assert!(map.values(&keys).iter().all(|value| *value == Some([3; 8])));
    assert_eq!(map.len().unwrap(), 22);
    for key in &keys {
        assert!(!map.insert_for(key, &[4; 8], Duration::from_millis(1)).unwrap());
    }
    while map.len().unwrap() > 0 {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    // The home frees some of them by itself if the test takes long.
    assert!(map.sweep(0, u64::MAX) <= 22);
    assert_eq!(map.sweep(0, u64::MAX), 0);
    let time = map.segment().time().started();
    for bucket in 0..map.map.buckets() {
        assert_eq!(map.map.read_bucket(time, bucket).unwrap().used_slots().count(), 0, "{bucket}");
    }
}

#[test]
fn home_frees_expired_entries_without_any_call() {
    // If this broke, a cache of sessions would fill up unless its users sweep it, and a watcher would not see the end of one.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    map.insert_for(&1, &[1; 8], Duration::from_secs(5)).unwrap();
    map.insert(&2, &[2; 8]).unwrap();
    let mut watch = map.watch(&[]);
    for _ in 0..2 {
        assert!(matches!(watch.next(), Some(Ok(MapEvent::Put { .. }))));
    }
    let gone = watch.next_within(FOREVER).unwrap();
    assert_eq!((gone, map.value(&2)), (Some(MapEvent::Removed { key: 1 }), Some([2; 8])));
    let (time, hash) = (map.segment().time().started(), map.map.hash(1u64.as_bytes()));
    let home = map.map.read_bucket(time, hash.bucket).unwrap();
    assert_eq!(home.slot_of(hash.tag, 1u64.as_bytes()), None, "its slot is free");
}

#[test]
fn entry_of_a_client_that_died_before_the_link_is_not_visible_and_is_freed() {
    // If this broke, an insert that never completed would appear later, or take memory for ever.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = crowd(&map, 17);
    for key in &keys[..16] {
        assert!(map.insert_new(key, &[1; 8]).unwrap());
    }
    let time = map.segment().time().started();
    let (last, hash) = (keys[16], map.map.hash(keys[16].as_bytes()));
    let home = map.map.read_bucket(time, 0).unwrap();
    // The first of the two puts of `write_elsewhere`.
    let image = map.map.read_bucket(time, 1).unwrap();
    let word = SlotWord::new(hash.tag, 0).bytes();
    let head = map.map.layout.head_at(3);
    let put = map.map.put_bucket(time, 1, image.version, &[(head, &word), (head + 8, last.as_bytes())]).unwrap();
    assert!(matches!(put, Attempt::Done(_)));
    assert_eq!((map.value(&last), map.len().unwrap()), (None, 16));
    assert_eq!(map.sweep(0, u64::MAX), 1);
    // The client was only slow: its second put comes too late.
    let late = map.map.put_bucket(time, 0, home.version, &[(map.map.layout.link_at(0), &[1; 4])]).unwrap();
    assert!(matches!(late, Attempt::Changed));
    assert!(map.map.read_bucket(time, 1).unwrap().word(3).is_none());
    assert!(map.insert_new(&last, &[2; 8]).unwrap());
    assert_eq!((map.value(&last), map.len().unwrap()), (Some([2; 8]), 17));
    assert_eq!(map.sweep(0, u64::MAX), 0, "a linked entry stays");
}

#[test]
fn link_to_an_expired_entry_stays_until_its_slot_is_free() {
    // If this broke, a value that another client puts in the place of an expired one meanwhile would be lost.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = crowd(&map, 17);
    for key in &keys {
        assert!(map.insert_for(key, &[1; 8], FOREVER).unwrap());
    }
    for key in &keys {
        assert!(!map.insert_for(key, &[2; 8], Duration::from_millis(1)).unwrap());
    }
    let began = Instant::now();
    while map.len().unwrap() > 0 {
        assert!(began.elapsed() < FOREVER, "nothing expires");
    }
    let time = map.segment().time().started();
    let home = map.map.read_bucket(time, 0).unwrap();
    let (_, link) = home.links().next().expect("17 entries have a link");
    let bucket = map.map.stepped(0, link.step);
    // The other client has found the expired entry, and puts after the links of bucket 0 were looked through.
    let image = map.map.read_bucket(time, bucket).unwrap();
    map.sweep(0, 1);
    // The home frees that entry by itself if the test takes long.
    let is_late = began.elapsed() + Duration::from_secs(2) > Duration::from_micros(SWEEP_PAUSE_US);
    let word = SlotWord::new(map.map.hash(image.key(link.slot)).tag, 0).bytes();
    let head = map.map.layout.head_at(link.slot);
    let put = map.map.put_bucket(time, bucket, image.version, &[(head, &word)]).unwrap();
    if is_late && matches!(put, Attempt::Changed) {
        return;
    }
    assert!(matches!(put, Attempt::Done(_)));
    let key = keys.iter().find(|key| key.as_bytes() == image.key(link.slot)).unwrap();
    assert_eq!(map.value(key), Some([2; 8]));
}

#[test]
fn full_map_names_its_limit_and_wrong_types_are_refused() {
    // If this broke, a map would lose keys instead of refusing them, or be read as values of another type.
    let node = TestNode::start();
    let client = node.client();
    let map = client.map::<u64, [u64; 8]>("map").allocate(25).unwrap();
    let refused = (0..100).find_map(|key| map.insert(&key, &[key; 8]).err().map(|error| (key, error)));
    let (keys, error) = refused.expect("a map of two buckets holds 32 keys");
    assert_eq!(keys, 32);
    assert!(error.to_string().contains("load limit 0.8"), "{error}");
    assert_eq!((error.kind(), error.is_indeterminate()), (ErrorKind::NoSpace, false));
    assert!((0..32).all(|key| map.value(&key) == Some([key; 8])));
    assert!(!map.insert(&3, &[0; 8]).unwrap(), "a key that is present needs no room");
    assert!(map.remove(&3).unwrap() && map.insert(&77, &[7; 8]).unwrap());

    let of = |error: Error| error.kind();
    assert_eq!(of(client.map::<u64, u64>("map").open().unwrap_err()), ErrorKind::WrongShape);
    assert_eq!(of(client.map::<[u64; 2], [u64; 7]>("map").open().unwrap_err()), ErrorKind::WrongShape);
    let layout = BucketLayout::new(8, 64).unwrap();
    let table = client.table::<[u8]>("table").allocate(Spec::new(10).row_len(layout.row_bytes() as u32)).unwrap();
    table.row(0).put(b"something else").unwrap();
    assert_eq!(of(client.map::<u64, [u64; 8]>("table").open().unwrap_err()), ErrorKind::WrongShape);
    let too_large = client.map::<u64, [u8; 65_537]>("large").allocate(1).unwrap_err();
    assert_eq!(of(too_large), ErrorKind::BadArgument);
}

/// Inserts all keys that a map was allocated for.
fn fill<K, V>(client: &Client, name: &str, keys: &[K], value: &V)
where
    K: Encoding<Input = K>,
    V: Encoding<Input = V, Output = V> + Clone + PartialEq + std::fmt::Debug,
{
    let map = client.map::<K, V>(name).allocate(keys.len() as u64).unwrap();
    for (at, key) in keys.iter().enumerate() {
        assert!(map.insert_new(key, value).unwrap(), "key {at} of {} in {name}", keys.len());
    }
    assert_eq!(map.len().unwrap(), keys.len() as u64);
    assert!(keys.iter().step_by(97).all(|key| map.value(key).as_ref() == Some(value)));
    map.segment().release().unwrap();
}

#[test]
fn map_takes_all_keys_that_it_was_allocated_for() {
    // If this broke, a map would refuse a key although it has fewer than it was allocated for.
    let node = TestNode::start_with(|config| config.pool_bytes = 32 << 20);
    let client = node.local_read_client();
    // Many keys of one bucket: its slots and links hold them all.
    let map = client.map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = crowd(&map, 16 + BucketLayout::LINKS);
    keys.iter().for_each(|key| assert!(map.insert_new(key, &[*key; 8]).unwrap()));
    assert!(keys.iter().all(|key| map.value(key) == Some([*key; 8])));
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
    let map = client.map::<[u8; 20], [u8; BYTES]>(name).allocate(20).unwrap();
    for key in 0..20u8 {
        assert!(map.insert(&[key; 20], &[key; BYTES]).unwrap());
    }
    let changed = map.change(&[3; 20], |value| value[BYTES - 1] = 99).unwrap();
    assert_eq!(map.value(&[3; 20]), Some(changed));
    for key in (0..20u8).filter(|&key| key != 3) {
        assert_eq!(map.value(&[key; 20]), Some([key; BYTES]));
    }
    assert_eq!(map.value(&[20; 20]), None);
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
    let set = node.client().map::<u64, ()>("set").allocate(100).unwrap();
    assert!(set.insert(&5, &()).unwrap() && !set.insert(&5, &()).unwrap());
    assert_eq!((set.value(&5), set.value(&6)), (Some(()), None));
}

#[test]
fn tasks_use_a_map() {
    // If this broke, the asynchronous map would differ from the blocking one.
    let node = TestNode::start();
    let client = node.client().aio().unwrap();
    block_on(async {
        let map = client.map::<u64, u64>("map").allocate(100).await.unwrap();
        assert!(map.get_or_put(&1, &10).await.unwrap().1);
        let add = |old: Option<&Entry<u64>>| old.map_or(Update::Keep, |old| Update::Put(old.value + 1));
        assert_eq!(map.update(&1, add).await.unwrap().map(|entry| entry.value), Some(11));
        let found = map.get_many(&[&1, &2]).await.unwrap();
        assert_eq!([0, 1].map(|at| found[at].map(|entry| entry.value)), [Some(11), None]);
        let mut entries = map.entries();
        assert_eq!(entries.next().await.transpose().unwrap(), Some((1, 11)));
        assert!(entries.next().await.is_none());
        assert!(map.remove(&1).await.unwrap());
        assert_eq!(map.len().await.unwrap(), 0);
        map.segment().release().await.unwrap();
    });
}

#[test]
fn bytes_of_a_map_are_those_of_its_types() {
    // If this broke, a tool would show other values than the program has, or take any table for a map.
    let node = TestNode::start();
    let client = node.client();
    let map = client.map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = crowd(&map, 20);
    for key in &keys {
        map.insert(key, &[*key; 8]).unwrap();
    }
    let bytes: Map = node.local_read_client().map("map").open().unwrap();
    assert_eq!((bytes.entry_len(), map.entry_len()), ((8, 64), (8, 64)));
    for key in &keys {
        assert_eq!(bytes.get(key.as_bytes()).unwrap().unwrap()[..], *[*key; 8].as_bytes());
    }
    assert_eq!((bytes.entries().count() as u64, bytes.len().unwrap()), (20, 20));
    assert!(!bytes.put(keys[19].as_bytes(), &[1; 64]).unwrap().is_new && bytes.remove(keys[0].as_bytes()).unwrap());
    assert!(bytes.get_or_put(keys[0].as_bytes(), &[2; 64]).unwrap().1);
    assert_eq!(map.value(&keys[19]), Some([0x0101_0101_0101_0101; 8]));
    let of = |error: Error| error.kind();
    assert_eq!(of(bytes.get(&[1; 7]).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(of(bytes.put(&[1; 8], &[1; 65]).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(bytes.get(&[1; 8]).unwrap(), None);
    // A table whose first row was never written is no map, nor is a plain segment.
    let open = |name: &str| client.map::<[u8], [u8]>(name).open();
    client.segment("table").allocate(Spec::new(10).entry_len(8, 64)).unwrap();
    assert_eq!(of(open("table").unwrap_err()), ErrorKind::WrongShape);
    client.table::<[u8]>("small").allocate(Spec::new(10).row_len(8)).unwrap();
    assert_eq!(of(open("small").unwrap_err()), ErrorKind::WrongShape);
    client.segment("plain").allocate(Spec::new(64)).unwrap();
    assert_eq!(of(open("plain").unwrap_err()), ErrorKind::WrongShape);
    let allocate = |name: &str, spec: Spec| client.map::<[u8], [u8]>(name).allocate(spec);
    let made = allocate("made", Spec::new(5).entry_len(3, 0)).unwrap();
    assert!(made.put(b"abc", b"").unwrap().is_new && !made.put(b"abc", b"").unwrap().is_new);
    for spec in [Spec::new(5).entry_len(0, 8), Spec::new(5), Spec::new(5).entry_len(8, 8).row_len(64)] {
        assert_eq!(of(allocate("none", spec).unwrap_err()), ErrorKind::BadArgument);
    }
    let of_types = client.map::<u64, u64>("none").allocate(Spec::new(5).entry_len(8, 16));
    assert_eq!(of(of_types.unwrap_err()), ErrorKind::BadArgument);
    block_on(async {
        let map: crate::aio::Map = client.aio().unwrap().map("made").open().await.unwrap();
        assert!(map.get(b"abc").await.unwrap().is_some_and(|entry| entry.value.is_empty()));
        assert_eq!(map.get(b"abd").await.unwrap(), None);
    });
}

#[test]
fn texts_of_a_map_come_back_as_they_were_put() {
    // If this broke, a text would come back with zeroes, cut off, or as that of another key.
    let node = TestNode::start();
    let client = node.client();
    let spec = Spec::new(100).entry_len(8, 12);
    let map: Map<str, str> = client.map("texts").allocate(spec).unwrap();
    for (key, value) in [
        ("", "empty"),
        ("a", ""),
        ("a\0b", "zero inside"),
        ("\u{e4}\u{f6}\u{fc}", "bytes: 6"),
        ("12345678", "123456789012"),
    ] {
        assert!(map.put(key, value).unwrap().is_new, "{key:?}");
        assert_eq!(map.get(key).unwrap().unwrap().value, value);
        assert_eq!(
            node.local_read_client().map::<str, str>("texts").open().unwrap().get(key).unwrap().unwrap().value,
            value
        );
    }
    for (key, value) in [("123456789", ""), ("zero\0", ""), ("long", "1234567890123")] {
        assert_eq!(map.put(key, value).unwrap_err().kind(), ErrorKind::BadArgument, "{key:?} {value:?}");
    }
    let mut keys: Vec<String> = map.entries().map(|entry| entry.unwrap().0).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["", "12345678", "a", "a\0b", "\u{e4}\u{f6}\u{fc}"]);
    // Bytes that are no text.
    let bytes: Map<str> = client.map("texts").open().unwrap();
    bytes.put("a", &[0xff; 12]).unwrap();
    assert_eq!(map.get("a").unwrap_err().kind(), ErrorKind::WrongShape);
    assert_eq!(map.update("a", |_| Update::Keep).unwrap_err().kind(), ErrorKind::WrongShape);
    assert!(map.entries().any(|entry| entry.is_err_and(|error| error.kind() == ErrorKind::WrongShape)));
    assert!(map.put("a", "text").is_ok(), "it may be replaced");
}
