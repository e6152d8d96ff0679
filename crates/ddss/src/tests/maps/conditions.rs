//! Tests of changes that depend on what the map has.

use super::calls::Calls;
use crate::testing::TestNode;
use crate::{EntryOptions, ErrorKind, Map, Update};
use std::time::Duration;
use zerocopy::IntoBytes;

const FOREVER: Duration = Duration::from_secs(3600);

/// Returns keys of one bucket; the last ones lie behind links.
fn neighbours(map: &Map<u64, [u64; 8]>) -> Vec<u64> {
    (0..).filter(|key: &u64| map.map.hash(key.as_bytes()).bucket == 0).take(18).collect()
}

#[test]
fn put_and_removal_of_a_version_leave_another_one() {
    // If this broke, of two clients that change what they have read, one would lose its change.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = neighbours(&map);
    for key in &keys[..17] {
        let written = map.put(key, &[1; 8]).unwrap();
        assert_eq!((written.is_new, map.get(key).unwrap().unwrap().version), (true, written.version));
    }
    for key in [keys[0], keys[16]] {
        let seen = map.get(&key).unwrap().unwrap();
        let put = map.put_if(&key, seen.version, &[2; 8]).unwrap();
        assert!(!put.is_new && put.version > seen.version);
        let found = map.get(&key).unwrap().unwrap();
        assert_eq!((found.value, found.version), ([2; 8], put.version));
        let late = map.put_if(&key, seen.version, &[3; 8]).unwrap_err();
        assert_eq!(
            (late.kind(), late.version(), late.is_conflict()),
            (ErrorKind::VersionMismatch, Some(put.version), true)
        );
        assert_eq!(map.remove_if(&key, seen.version).unwrap_err().kind(), ErrorKind::VersionMismatch);
        let ttl = EntryOptions::new().ttl(FOREVER).if_version(put.version);
        let put = map.put_with(&key, &[4; 8], ttl).unwrap();
        let entry = map.get(&key).unwrap().unwrap();
        assert_eq!((entry.value, entry.version, entry.ttl().is_some()), ([4; 8], put.version, true));
        assert!(map.remove_if(&key, put.version).unwrap());
        assert!(!map.remove_if(&key, put.version).unwrap(), "it is absent");
        let absent = map.put_if(&key, put.version, &[5; 8]).unwrap_err();
        assert_eq!((absent.kind(), absent.version(), map.value(&key)), (ErrorKind::VersionMismatch, None, None));
    }
}

#[test]
fn update_puts_keeps_and_removes() {
    // If this broke, a counter would not begin, or a session that ends in its last request would stay.
    let node = TestNode::start();
    for (index, client) in [node.client(), node.local_read_client()].iter().enumerate() {
        let map = client.map::<u64, [u64; 8]>(&format!("map-{index}")).allocate(60).unwrap();
        let keys = neighbours(&map);
        for key in &keys[..17] {
            assert_eq!(map.update(key, |old| if old.is_none() { Update::Keep } else { Update::Remove }).unwrap(), None);
            let put = map.update(key, |old| Update::Put(old.map_or([1; 8], |_| [9; 8]))).unwrap().unwrap();
            assert_eq!((put.value, map.get(key).unwrap()), ([1; 8], Some(put)));
        }
        for key in [keys[0], keys[16]] {
            let seen = map.get(&key).unwrap();
            assert_eq!(map.update(&key, |_| Update::Keep).unwrap(), seen);
            let put = map.update(&key, |old| Update::Put(old.unwrap().map(|word| word + 1))).unwrap();
            assert_eq!((put.map(|entry| entry.value), put), (Some([2; 8]), map.get(&key).unwrap()));
            assert_eq!(map.update(&key, |_| Update::Remove).unwrap(), None);
            assert_eq!((map.value(&key), map.len().unwrap()), (None, 16));
            assert!(map.put(&key, &[1; 8]).unwrap().is_new);
        }
    }
}

#[test]
fn update_that_removes_repeats_when_its_key_changes() {
    // If this broke, an update that ends a session would end the one that has just begun.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let other = node.client().map::<u64, [u64; 8]>("map").open().unwrap();
    map.put(&1, &[0; 8]).unwrap();
    let mut runs = 0;
    let end = |old: Option<&crate::Entry<[u64; 8]>>| {
        runs += 1;
        if runs == 1 {
            other.put(&1, &[7; 8]).unwrap();
        }
        if old.unwrap().value == [0; 8] { Update::Remove } else { Update::Keep }
    };
    assert_eq!(map.update(&1, end).unwrap().unwrap().value, [7; 8]);
    assert_eq!((runs, map.value(&1)), (2, Some([7; 8])));
}

#[test]
fn key_is_put_once_and_its_first_value_stays() {
    // If this broke, two clients would both own what a key stands for.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    for key in neighbours(&map) {
        let (mine, is_mine) = map.get_or_put(&key, &[1; 8]).unwrap();
        assert_eq!((mine.value, is_mine, map.get(&key).unwrap()), ([1; 8], true, Some(mine)));
        let (found, is_mine) = map.get_or_put(&key, &[2; 8]).unwrap();
        assert_eq!((found, is_mine), (mine, false));
        let error = map.put_with(&key, &[3; 8], EntryOptions::new().if_absent()).unwrap_err();
        assert_eq!(
            (error.kind(), error.is_conflict(), error.is_indeterminate()),
            (ErrorKind::AlreadyExists, true, false)
        );
        assert!(error.to_string().contains("the key is present"), "{error}");
    }
}

#[test]
fn many_puts_end_each_by_itself() {
    // If this broke, one entry that is refused would take the others with it, or their results would be mixed up.
    let node = TestNode::start();
    let map: Map = node.client().map("map").allocate(crate::Spec::new(1000).entry_len(8, 8)).unwrap();
    let keys: Vec<[u8; 8]> = (0..600u64).map(u64::to_le_bytes).collect();
    map.put(&keys[7], &[0; 8]).unwrap();
    let entries: Vec<(&[u8], &[u8])> =
        keys.iter().map(|key| (&key[..], &key[..if key[0] == 9 { 7 } else { 8 }])).collect();
    for (at, (key, written)) in keys.iter().zip(map.put_many(&entries)).enumerate() {
        if key[0] == 9 {
            assert_eq!(written.unwrap_err().kind(), ErrorKind::BadArgument);
            continue;
        }
        let written = written.unwrap();
        let entry = map.get(key).unwrap().unwrap();
        assert_eq!((written.is_new, &entry.value[..]), (at != 7, &key[..]));
        assert!(entry.version >= written.version, "later puts of neighbours");
    }
    assert_eq!(map.len().unwrap(), 597);
    // Keys of one bucket, more than it has slots and links.
    let small = node.client().map::<u64, [u64; 8]>("small").allocate(25).unwrap();
    let keys: Vec<u64> = (0..100).collect();
    let entries: Vec<(&u64, &[u64; 8])> = keys.iter().map(|key| (key, &[5; 8])).collect();
    let ended = small.put_many(&entries);
    assert_eq!(ended.iter().filter(|written| written.is_ok()).count() as u64, small.len().unwrap());
    assert!(ended.iter().flatten().all(|written| written.is_new));
    assert!(ended.into_iter().filter_map(Result::err).all(|error| error.kind() == ErrorKind::NoSpace));
}

#[test]
fn lock_of_a_map_stops_changes_of_its_entries() {
    // If this broke, a client that holds the lock of a map would see its entries change.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let hasty = node.short_timeout_client().map::<u64, [u64; 8]>("map").open().unwrap();
    map.put(&1, &[1; 8]).unwrap();
    let held = map.segment().lock().unwrap();
    let change = |_: Option<&crate::Entry<[u64; 8]>>| Update::Put([2; 8]);
    for error in [map.update(&1, change).unwrap_err(), map.put(&1, &[2; 8]).unwrap_err(), map.remove(&1).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OwnLock);
    }
    let late = [hasty.update(&1, change).unwrap_err(), hasty.put(&1, &[2; 8]).unwrap_err()];
    assert!(late.iter().all(|error| error.kind() == ErrorKind::TimedOut), "{late:?}");
    assert_eq!(map.value(&1), Some([1; 8]));
    held.unlock().unwrap();
    // On a busy machine the home may hear of a late call only now.
    assert!(map.value(&1) == Some([1; 8]) || late.iter().any(crate::Error::is_indeterminate), "{late:?}");
    assert_eq!(hasty.update(&1, change).unwrap().unwrap().value, [2; 8]);
}

#[test]
fn put_of_the_present_value_ends_its_version() {
    // If this broke, two clients that put by one version would both believe that theirs was the put.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    map.put(&1, &[1; 8]).unwrap();
    let seen = map.get(&1).unwrap().unwrap();
    assert!(map.put_if(&1, seen.version, &[1; 8]).unwrap().version > seen.version);
    assert_eq!(map.put_if(&1, seen.version, &[1; 8]).unwrap_err().kind(), ErrorKind::VersionMismatch);
    let both = EntryOptions::new().if_absent().if_version(seen.version);
    assert_eq!(map.put_with(&2, &[1; 8], both).unwrap_err().kind(), ErrorKind::BadArgument);
}

#[test]
fn versions_of_an_entry_at_two_places_differ() {
    // If this broke, a client could remove an entry that it has never seen: one that was put again, in another bucket.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = neighbours(&map);
    for key in &keys[..17] {
        map.put(key, &[1; 8]).unwrap();
    }
    let linked = map.get(&keys[16]).unwrap().unwrap();
    assert!(map.remove(&keys[16]).unwrap() && map.remove(&keys[0]).unwrap());
    // The versions of the own bucket pass those of the other one.
    for _ in 0..100 {
        let again = map.put(&keys[16], &[2; 8]).unwrap();
        assert!(again.version != linked.version);
        assert_eq!(map.remove_if(&keys[16], linked.version).unwrap_err().kind(), ErrorKind::VersionMismatch);
        assert!(map.remove_if(&keys[16], again.version).unwrap());
    }
}
