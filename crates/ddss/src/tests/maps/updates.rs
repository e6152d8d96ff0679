//! Tests of updates and expiries beside other changes of a bucket.

use super::calls::Calls;
use crate::testing::{TestNode, block_on};
use crate::{Client, Map, Update};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const FOREVER: Duration = Duration::from_secs(3600);

/// Returns keys of one bucket.
fn neighbours<V: FromBytes + IntoBytes + Immutable>(map: &Map<u64, V>, keys: usize) -> Vec<u64> {
    (0..).filter(|key: &u64| map.map.hash(key.as_bytes()).bucket == 0).take(keys).collect()
}

/// Returns the version of a key's bucket.
fn version<V>(map: &Map<u64, V>, key: u64) -> u64 {
    let bucket = map.map.hash(key.as_bytes()).bucket;
    let time = map.segment().time();
    map.map.read_bucket(time, bucket).unwrap().version.0
}

/// Counts how often an update runs its closure while another client changes a key of the same bucket.
fn runs_beside<V>(client: &Client, other: &Client, name: &str, value: V) -> (u32, u32)
where
    V: FromBytes + IntoBytes + Immutable + Copy + 'static,
{
    let map = client.map::<u64, V>(name).allocate(60).unwrap();
    let there = other.map::<u64, V>(name).open().unwrap();
    let keys = neighbours(&map, 4);
    keys.iter().for_each(|key| assert!(map.insert(key, &value).unwrap()));
    let count = |disturb: &dyn Fn(u32)| {
        let mut runs = 0;
        let change = |value: &mut V| {
            runs += 1;
            disturb(runs);
            value.as_mut_bytes()[0] += 1;
        };
        map.change(&keys[0], change).expect("the key is there");
        runs
    };
    // Each kind of change of a neighbour, at each run.
    let beside = count(&|run| {
        there.insert(&keys[1], &value).unwrap();
        there.remove(&keys[2]).unwrap();
        there.insert_for(&(1_000_000 + u64::from(run)), &value, FOREVER).unwrap();
        there.touch(&keys[3], FOREVER).unwrap();
    });
    let before = map.value(&keys[0]).unwrap().as_bytes()[0];
    let of_the_key = count(&|run| {
        if run == 1 {
            there.change(&keys[0], |value| value.as_mut_bytes()[0] += 10);
        }
        if run == 2 {
            there.touch(&keys[0], FOREVER).unwrap();
        }
    });
    let entry = there.get(&keys[0]).unwrap().unwrap();
    assert_eq!(entry.value.as_bytes()[0], before + 11, "a change of the key is lost");
    assert!(entry.ttl().is_some(), "the new expiry is lost");
    (beside, of_the_key)
}

#[test]
fn update_repeats_for_changes_of_its_own_key_only() {
    // If this broke, clients that update different keys of one bucket would make each other repeat.
    let node = TestNode::start();
    for (index, client) in [node.client(), node.local_read_client()].iter().enumerate() {
        let other = node.client();
        assert_eq!(runs_beside(client, &other, &format!("small-{index}"), [1u64; 8]), (1, 3));
        assert_eq!(runs_beside(client, &other, &format!("large-{index}"), [1u8; 3000]), (1, 3));
    }
}

#[test]
fn update_that_changes_nothing_writes_nothing() {
    // If this broke, a program that only looks at an entry would wake all watchers, and disturb all updates.
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    // The last key lies behind a link.
    let keys = neighbours(&map, 17);
    keys.iter().for_each(|key| assert!(map.insert_for(key, &[5; 8], FOREVER).unwrap()));
    for key in [keys[0], keys[16]] {
        let before = version(&map, key);
        assert_eq!(map.change(&key, |_| ()), Some([5; 8]));
        assert_eq!(map.change(&key, |value| value[0] = 5), Some([5; 8]));
        assert_eq!(version(&map, key), before);
        assert_eq!(map.update(&key, |_| Update::Keep).unwrap().map(|entry| entry.value), Some([5; 8]));
        assert_eq!(version(&map, key), before);
        assert!(map.touch(&key, 2 * FOREVER).unwrap());
        assert!(map.get(&key).unwrap().unwrap().ttl().unwrap() > FOREVER, "the expiry is a change");
    }
    assert_eq!(map.change(&1_000_000, |_| ()), None);
}

#[test]
fn sliding_expiry_loses_no_change_and_updates_lose_no_expiry() {
    // If this broke, a session would lose a change, or end although its user is there.
    const CHANGES: u64 = 2000;
    let node = TestNode::start();
    let map = node.client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    // The last key lies behind a link.
    let keys = neighbours(&map, 17);
    keys.iter().for_each(|key| assert!(map.insert_for(key, &[0; 8], FOREVER).unwrap()));
    let keys = [keys[0], keys[16]];
    std::thread::scope(|scope| {
        for index in 0..2 {
            let client = if index == 0 { node.client() } else { node.local_read_client() };
            let map = client.map::<u64, [u64; 8]>("map").open().unwrap();
            scope.spawn(move || {
                for turn in 0..CHANGES {
                    let (key, ttl) = (&keys[turn as usize % 2], FOREVER + Duration::from_secs(turn));
                    map.change(key, |value| value[index] += 1).expect("the session is there");
                    assert!(map.touch(key, ttl).unwrap());
                    map.change(key, |value| value[index] += 1).expect("the session is there");
                }
            });
        }
    });
    for key in keys {
        let entry = map.get(&key).unwrap().unwrap();
        assert_eq!(entry.value[..3], [CHANGES, CHANGES, 0], "a change is lost");
        assert!(entry.ttl().unwrap() > FOREVER);
    }
}

#[test]
fn touch_moves_the_expiry_of_a_present_key_only() {
    // If this broke, an expired session would come back, or a session would end too soon.
    let node = TestNode::start();
    let map = node.local_read_client().map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let keys = neighbours(&map, 18);
    for key in &keys[..17] {
        assert!(!map.touch(key, FOREVER).unwrap() && map.insert(key, &[1; 8]).unwrap());
        assert_eq!(map.get(key).unwrap().map(|entry| (entry.value, entry.ttl())), Some(([1; 8], None)));
    }
    for key in [keys[0], keys[16]] {
        assert!(map.touch(&key, FOREVER).unwrap());
        let ttl = map.get(&key).unwrap().unwrap().ttl().unwrap();
        assert!(ttl <= FOREVER && ttl > FOREVER / 2, "{ttl:?}");
        assert!(map.touch(&key, Duration::from_millis(1)).unwrap());
        let began = Instant::now();
        while map.get(&key).unwrap().is_some() {
            assert!(began.elapsed() < FOREVER, "it does not expire");
        }
        assert!(!map.touch(&key, FOREVER).unwrap(), "an expired key is absent");
        assert_eq!((map.change(&key, |_| ()), map.value(&key)), (None, None));
    }
    assert!(!map.touch(&keys[17], FOREVER).unwrap());
    let bytes = node.client().map::<[u8], [u8]>("map").open().unwrap();
    assert!(bytes.touch(keys[1].as_bytes(), FOREVER).unwrap() && bytes.touch(&[1; 7], FOREVER).is_err());
    let entry = bytes.get(keys[1].as_bytes()).unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.ttl().is_some()), ([1u64; 8].as_bytes(), true));
    block_on(async {
        let map = node.client().aio().unwrap().map::<[u8], [u8]>("map").open().await.unwrap();
        assert!(map.touch(keys[1].as_bytes(), FOREVER).await.unwrap());
        assert!(map.get(keys[1].as_bytes()).await.unwrap().unwrap().ttl().is_some());
    });
}
