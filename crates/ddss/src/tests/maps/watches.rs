//! Tests of watches of a map.

use super::calls::Calls;
use super::map::crowd;
use crate::testing::{TestNode, block_on, poll_once};
use crate::{ErrorKind, Map, MapEvent, Watch};
use std::collections::HashMap;
use std::sync::Barrier;
use std::time::Duration;
use zerocopy::IntoBytes;

#[test]
fn watcher_of_a_key_sees_each_kind_of_change() {
    // If this broke, a watcher would poll, or miss that its key was inserted, changed, removed or has expired.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    // The last keys lie behind links.
    let keys = crowd(&map, 20);
    for key in &keys[..15] {
        map.insert(key, &[1; 8]).unwrap();
    }
    for key in [keys[3], keys[15], keys[17]] {
        let (next, changes) = (Barrier::new(2), [Some([7; 8]), Some([8; 8]), None, Some([9; 8])]);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let map = node.client().map::<u64, [u64; 8]>("map").open().unwrap();
                let mut watch = map.watch(key.as_bytes());
                if let Some(value) = map.value(&key) {
                    assert_eq!(watch.next().unwrap().unwrap(), MapEvent::Put { key, value });
                }
                changes.map(|_| {
                    next.wait();
                    let event = watch.next().unwrap().unwrap();
                    next.wait();
                    event
                })
            });
            for change in &changes {
                next.wait();
                // Changes of other keys of the bucket wake the watcher, which waits on.
                map.change(&keys[0], |value| value[0] += 1);
                match change {
                    Some(value) => drop(map.insert(&key, value).unwrap()),
                    None => assert!(map.remove(&key).unwrap()),
                }
                next.wait();
            }
            let event = |change| match change {
                Some(value) => MapEvent::Put { key, value },
                None => MapEvent::Removed { key },
            };
            assert_eq!(watcher.join().unwrap(), changes.map(event));
        });
        // No put announces an expiry.
        assert!(!map.insert_for(&key, &[2; 8], Duration::from_millis(100)).unwrap());
        let mut watch = map.watch(key.as_bytes());
        assert_eq!(watch.next().unwrap().unwrap(), MapEvent::Put { key, value: [2; 8] });
        assert_eq!(watch.next().unwrap().unwrap(), MapEvent::Removed { key });
        assert!(map.insert(&key, &[1; 8]).unwrap());
    }
    // Longer than the timeout of its calls.
    let hasty = node.short_timeout_client().map::<u64, [u64; 8]>("map").open().unwrap();
    let mut watch = hasty.watch(keys[3].as_bytes());
    assert!(watch.next_within(Duration::from_millis(900)).unwrap().is_some());
    assert_eq!(watch.next_within(Duration::from_millis(900)).unwrap(), None, "the same value");
}

#[test]
fn watches_and_lists_end_with_their_map() {
    // If this broke, a watcher of a released map would report errors for ever.
    let node = TestNode::start();
    let client = node.client();
    let map = client.map::<u64, u64>("map").allocate(60).unwrap();
    let tasks = block_on(client.aio().unwrap().map::<u64, u64>("map").open()).unwrap();
    map.insert(&1, &10).unwrap();
    let (mut all, mut one, mut of_tasks) = (map.watch(&[]), map.watch(1u64.as_bytes()), tasks.watch(&[1]));
    let put = MapEvent::Put { key: 1, value: 10 };
    assert_eq!([&mut all, &mut one].map(|watch| watch.next().unwrap().unwrap()), [put.clone(), put.clone()]);
    assert_eq!(block_on(of_tasks.next()).unwrap().unwrap(), put);
    // A dropped future loses no event.
    assert!(poll_once(&mut Box::pin(of_tasks.next())).is_pending());
    map.remove(&1).unwrap();
    assert_eq!(block_on(of_tasks.next()).unwrap().unwrap(), MapEvent::Removed { key: 1 });
    assert_eq!(all.next().unwrap().unwrap(), MapEvent::Removed { key: 1 });
    assert_eq!(one.next().unwrap().unwrap(), MapEvent::Removed { key: 1 });
    let mut entries = map.entries();
    map.segment().release().unwrap();
    assert!(all.next().is_none() && one.next().is_none() && all.next().is_none());
    assert_eq!(all.next_within(Duration::from_millis(1)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(block_on(of_tasks.next()).is_none());
    assert_eq!(entries.next().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(entries.next().is_none(), "one error ends it");
}

/// Applies events until the watcher's view equals the map.
fn follow(
    watch: &mut Watch<MapEvent<u64, [u64; 8]>>,
    seen: &mut HashMap<u64, [u64; 8]>,
    map: &Map<u64, [u64; 8]>,
    keys: &[u64],
) {
    let values = map.values(keys);
    let wanted: HashMap<_, _> = keys.iter().zip(values).filter_map(|(&key, value)| Some((key, value?))).collect();
    while *seen != wanted {
        match watch.next().unwrap().unwrap() {
            MapEvent::Put { key, value } => seen.insert(key, value),
            MapEvent::Removed { key } => Some(seen.remove(&key).expect("a key that was there")),
        };
    }
}

#[test]
fn watcher_of_a_prefix_sees_every_key_wherever_its_entry_lies() {
    // If this broke, a watcher would miss a key behind a link, or a change that came while it was busy.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    // Keys of one first byte; the last of them lie behind links. Others must not be reported.
    let bucket_of = |key: &u64| map.map.hash(key.as_bytes()).bucket;
    let keys: Vec<u64> = (0..1_000_000u64).map(|key| key << 8 | 7).filter(|key| bucket_of(key) == 0).take(22).collect();
    let others: Vec<u64> =
        (0..1_000_000u64).map(|key| key << 8 | 8).filter(|key| bucket_of(key) <= 1).take(6).collect();
    map.insert(&keys[0], &[1; 8]).unwrap();
    let watched = node.local_read_client().map::<u64, [u64; 8]>("map").open().unwrap();
    let (mut watch, mut seen) = (watched.watch(&[7]), HashMap::new());
    assert_eq!(watch.next().unwrap().unwrap(), MapEvent::Put { key: keys[0], value: [1; 8] });
    seen.insert(keys[0], [1; 8]);
    for (at, key) in keys.iter().enumerate() {
        map.insert(&others[at % others.len()], &[at as u64; 8]).unwrap();
        map.insert(key, &[at as u64; 8]).unwrap();
        follow(&mut watch, &mut seen, &map, &keys);
    }
    for key in [keys[21], keys[3], keys[18]] {
        map.change(&key, |value| value[2] += 1);
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
    let hasty = node.short_timeout_client().map::<u64, [u64; 8]>("map").open().unwrap();
    let mut idle = hasty.watch(&[9]);
    assert_eq!(idle.next_within(Duration::from_millis(900)).unwrap(), None, "longer than the timeout of its calls");
    let key = 1 << 8 | 9;
    map.insert(&key, &[1; 8]).unwrap();
    assert_eq!(idle.next().unwrap().unwrap(), MapEvent::Put { key, value: [1; 8] });
    block_on(async {
        let client = node.client().aio().unwrap();
        let bytes = client.map::<[u8], [u8]>("map").open().await.unwrap();
        let (mut watch, key) = (bytes.watch(&[9]), key.as_bytes().to_vec());
        let value = [1u64; 8].as_bytes().to_vec();
        assert_eq!(watch.next().await.unwrap().unwrap(), MapEvent::Put { key: key.clone(), value });
        map.remove(&(1 << 8 | 9)).unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap(), MapEvent::Removed { key });
    });
}

#[test]
fn watch_reports_a_value_of_another_shape_and_goes_on() {
    // If this broke, a cache before the map would keep an old value for ever.
    let node = TestNode::start();
    let texts: Map<u64, str> = node.client().map("map").allocate(crate::Spec::new(8).entry_len(8, 16)).unwrap();
    let bytes: Map = node.client().map("map").open().unwrap();
    let key = 7u64;
    texts.put(&key, "first").unwrap();
    for prefix in [key.as_bytes(), b""] {
        let mut watch = texts.watch(prefix);
        let put = |value: &str| MapEvent::Put { key, value: value.to_owned() };
        assert_eq!(watch.next().unwrap().unwrap(), put("first"));
        bytes.put(key.as_bytes(), &[0xff; 16]).unwrap();
        assert_eq!(watch.next().unwrap().unwrap_err().kind(), ErrorKind::WrongShape);
        texts.put(&key, "first").unwrap();
        assert_eq!(watch.next().unwrap().unwrap(), put("first"));
    }
}
