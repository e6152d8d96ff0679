//! Tests of a batch's calls on maps.

use super::map::crowd;
use crate::testing::{TestNode, block_on};
use crate::{Batch, EntryOptions, ErrorKind, Map, Version};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

enum Call {
    Get(crate::Ticket<Option<crate::Entry<[u64; 8]>>>),
    Put(crate::Ticket<crate::Written>),
    Insert(crate::Ticket<crate::Written>),
    Remove(crate::Ticket<bool>),
}

#[test]
fn calls_of_batches_equal_a_hash_map_on_every_path() {
    // If this broke, a call of a batch would find or change another entry than the same call by itself.
    let node = TestNode::start();
    let (local, far) = (node.local_read_client(), node.client());
    let here = local.map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let there = far.map::<u64, [u64; 8]>("map").open().unwrap();
    let tasks = far.aio().unwrap();
    let (mut model, hasher) = (HashMap::new(), BuildHasherDefault::<DefaultHasher>::default());
    // Keys of one bucket, of which many lie behind links, and others.
    let keys: Vec<u64> = crowd(&here, 24).into_iter().chain(1_000_000..1_000_010).collect();
    for step in 0..300u64 {
        let (mut batch, mut calls) = (Batch::new(), Vec::new());
        let map = if step % 3 == 0 { &here } else { &there };
        for &key in &keys {
            // The same calls in each run.
            let (word, value) = (hasher.hash_one((step, key)), [step; 8]);
            let call = match word >> 40 & 7 {
                0 | 1 => Call::Put(batch.map_put(map, &key, &value, EntryOptions::new()).unwrap()),
                2 => Call::Insert(batch.map_put(map, &key, &value, EntryOptions::new().if_absent()).unwrap()),
                3 => Call::Remove(batch.map_remove(map, &key).unwrap()),
                4 | 5 => Call::Get(batch.map_get(map, &key).unwrap()),
                _ => continue,
            };
            calls.push((key, value, call));
        }
        let mut replies = match step % 3 {
            0 => local.run(batch).unwrap(),
            1 => far.run(batch).unwrap(),
            _ => block_on(tasks.run(batch)).unwrap(),
        };
        for (key, value, call) in calls {
            match call {
                Call::Get(ticket) => {
                    let found = replies.take(ticket).unwrap().map(|entry| entry.value);
                    assert_eq!(found, model.get(&key).copied(), "key {key} in step {step}");
                }
                Call::Put(ticket) => {
                    assert_eq!(replies.take(ticket).unwrap().is_new, model.insert(key, value).is_none());
                }
                Call::Insert(ticket) if model.contains_key(&key) => {
                    assert_eq!(replies.take(ticket).unwrap_err().kind(), ErrorKind::AlreadyExists);
                }
                Call::Insert(ticket) => {
                    assert!(replies.take(ticket).unwrap().is_new);
                    model.insert(key, value);
                }
                Call::Remove(ticket) => assert_eq!(replies.take(ticket).unwrap(), model.remove(&key).is_some()),
            }
        }
    }
    assert_eq!(there.len().unwrap(), model.len() as u64);
}

#[test]
fn batch_puts_entries_by_their_versions() {
    // If this broke, of two clients that change by batches what they have read, one would lose its change.
    let node = TestNode::start();
    let client = node.client();
    let map = client.map::<u64, [u64; 8]>("map").allocate(60).unwrap();
    let (keys, alone) = (crowd(&map, 18), 1_000_000);
    for key in keys[..17].iter().chain([&alone]) {
        map.put(key, &[1; 8]).unwrap();
    }
    let by = |version| EntryOptions::new().if_version(version).ttl(Duration::from_secs(3600));
    // The first lies in its own bucket, the second behind a link.
    for key in [alone, keys[16]] {
        let seen = map.get(&key).unwrap().unwrap();
        let mut batch = Batch::new();
        let put = batch.map_put(&map, &key, &[2; 8], by(seen.version)).unwrap();
        let absent = batch.map_put(&map, &keys[17], &[2; 8], by(seen.version)).unwrap();
        let mut replies = client.run(batch).unwrap();
        let put = replies.take(put).unwrap();
        assert_eq!(replies.take(absent).unwrap_err().kind(), ErrorKind::VersionMismatch);
        let found = map.get(&key).unwrap().unwrap();
        assert_eq!((found.value, found.version, put.is_new, found.ttl().is_some()), ([2; 8], put.version, false, true));
        let mut batch = Batch::new();
        let late = batch.map_put(&map, &key, &[3; 8], by(seen.version)).unwrap();
        let late = client.run(batch).unwrap().take(late).unwrap_err();
        assert!(late.is_conflict() && late.version() == Some(put.version), "{late}");
        assert_eq!(map.get(&key).unwrap().unwrap().value, [2; 8]);
    }
    assert_eq!(map.get(&keys[17]).unwrap(), None);
}

#[test]
fn batch_refuses_entries_that_a_map_cannot_have() {
    // If this broke, a batch would write beyond a slot, or hide a mistake until it runs.
    let node = TestNode::start();
    let client = node.client();
    let map: Map = client.map("bytes").allocate(crate::Spec::new(60).entry_len(4, 4)).unwrap();
    let mut batch = Batch::new();
    let both = EntryOptions::new().if_absent().if_version(Version(1));
    let refused = [
        batch.map_get(&map, b"key").map(drop),
        batch.map_remove(&map, b"long key").map(drop),
        batch.map_put(&map, b"key1", b"val", EntryOptions::new()).map(drop),
        batch.map_put(&map, b"key1", b"val1", both).map(drop),
    ];
    assert!(refused.iter().all(|end| end.as_ref().is_err_and(|error| error.kind() == ErrorKind::BadArgument)));
    client.run(batch).unwrap().ok().unwrap();
    // The entry of a map whose values are of another type.
    map.put(b"key1", b"val1").unwrap();
    let floats = client.map::<[u8; 4], f32>("bytes").open().unwrap();
    let mut batch = Batch::new();
    let found = batch.map_get(floats, b"key1").unwrap();
    assert_eq!(client.run(batch).unwrap().take(found).unwrap().unwrap().value.to_le_bytes(), *b"val1");
}

#[test]
fn batch_reads_large_values_of_a_map() {
    // If this broke, keys whose values lie outside of what one read brings would seem absent.
    let node = TestNode::start();
    for client in [node.local_read_client(), node.client()] {
        let map = client.map::<u64, [u8; 9000]>("large").open_or_allocate(20).unwrap();
        let (mut puts, mut gets, mut tickets) = (Batch::new(), Batch::new(), Vec::new());
        for key in 0..20 {
            puts.map_put(&map, &key, &[key as u8; 9000], EntryOptions::new()).unwrap();
            tickets.push(gets.map_get(&map, &key).unwrap());
        }
        client.run(puts).unwrap().ok().unwrap();
        let mut replies = client.run(gets).unwrap();
        for (key, ticket) in tickets.into_iter().enumerate() {
            assert!(replies.take(ticket).unwrap().unwrap().value == [key as u8; 9000]);
        }
    }
}
