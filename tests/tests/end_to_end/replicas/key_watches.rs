//! Watches of keys of a map with two copies.

use super::{PATIENCE, in_sync, until, until_alive};
use ddss::{Client, ConnectOptions, MapEvent, Spec, Watch};
use ddss_testkit::{Daemon, DaemonOptions};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

type Map = ddss::Map<[u8; 8], u64>;

const KEYS: u64 = 20;
/// Key whose values end a part of the test. It has the prefix of all others.
const MARK: u64 = KEYS;
const PREFIX: &[u8] = b"stock";

fn key(number: u64) -> [u8; 8] {
    let mut key = [0; 8];
    key[..PREFIX.len()].copy_from_slice(PREFIX);
    key[PREFIX.len()] = number as u8;
    key
}

fn open(daemon: &Daemon) -> Map {
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(3))).unwrap();
    let mut found = None;
    until("open", || {
        found = Some(client.map("watched").open().map_err(|error| error.to_string())?);
        Ok(())
    });
    found.unwrap()
}

/// Waits for an event; `None` if none comes for a while. Waits during a failover end with an error.
fn next(watch: &mut Watch<MapEvent<[u8; 8], u64>>) -> Option<MapEvent<[u8; 8], u64>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match watch.next_within(Duration::from_secs(3)) {
            Ok(event) => return event,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// Follows all keys until the last mark and the end of changes; reports each mark, and returns the last known values.
fn follow_prefix(map: &Map, marks: &Sender<u64>, last: u64) -> HashMap<[u8; 8], u64> {
    let (mut watch, mut newest, mut present) = (map.watch(PREFIX), HashMap::new(), HashMap::new());
    let mut begin = Instant::now();
    loop {
        match next(&mut watch) {
            // A watcher that was away reads bucket by bucket, so the last mark may come before older changes.
            None if present.get(&key(MARK)) == Some(&last) => return present,
            None => assert!(begin.elapsed() < PATIENCE, "no event comes"),
            Some(MapEvent::Put { key: changed, value }) => {
                begin = Instant::now();
                let before = newest.insert(changed, value);
                assert!(before.is_none_or(|before| before < value), "{changed:?} became {value} after {before:?}");
                present.insert(changed, value);
                if changed == key(MARK) {
                    marks.send(value).unwrap();
                }
            }
            Some(MapEvent::Removed { key: changed }) => {
                assert!(present.remove(&changed).is_some(), "{changed:?} was removed before it came");
            }
            Some(event) => panic!("{event:?}"),
        }
    }
}

/// Follows one key until the last mark.
fn follow_key(map: &Map, number: u64, marks: &Sender<u64>, last: u64) {
    let (mut watch, mut seen, begin) = (map.watch(&key(number)), 0, Instant::now());
    while seen != last {
        assert!(begin.elapsed() < 4 * PATIENCE, "the last mark does not come");
        if let Some(event) = next(&mut watch) {
            let MapEvent::Put { value, .. } = event else { panic!("{event:?}") };
            assert!(value > seen, "{value:?} came after {seen:?}");
            seen = value;
            marks.send(value).unwrap();
        }
    }
}

fn until_marked(marks: &[Receiver<u64>], wanted: u64) {
    for (watcher, marks) in marks.iter().enumerate() {
        let end = Instant::now() + PATIENCE;
        while marks.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("watcher {watcher} knows of no mark {wanted}"))
            < wanted
        {
            assert!(Instant::now() < end, "watcher {watcher} knows of no mark {wanted}");
        }
    }
}

// If this failed, a watcher would act on old values forever after the death of a node, without an error.
#[test]
fn watchers_of_keys_live_through_the_death_of_their_home() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let first = Client::connect_with(ConnectOptions::new().directory(daemons[0].folder())).unwrap();
    first.map::<[u8; 8], u64>("watched").allocate(Spec::new(4 * KEYS).copies(2)).unwrap();
    drop(first);
    assert_eq!(in_sync(&daemons[0], "watched").0, 1);
    const LAST: u64 = 1_000_000;
    let (mut marks, mut watchers) = (Vec::new(), Vec::new());
    // On the node with the replica, and on the one without.
    for daemon in &daemons[1..] {
        let ((tell, told), map) = (channel(), open(daemon));
        watchers.push(std::thread::spawn(move || Some(follow_prefix(&map, &tell, LAST))));
        marks.push(told);
        let ((tell, told), map) = (channel(), open(daemon));
        watchers.push(std::thread::spawn(move || {
            follow_key(&map, MARK, &tell, LAST);
            None
        }));
        marks.push(told);
    }
    let (map, mut expected) = (open(&daemons[1]), HashMap::new());
    let mut change = |number: u64, value: Option<u64>| {
        // A repetition after an unknown outcome is the same change.
        until("change", || {
            let ended = match value {
                Some(value) => map.put(&key(number), &value).map(drop),
                None => map.remove(&key(number)).map(drop),
            };
            ended.map_err(|error| error.to_string())
        });
        match value {
            Some(value) => drop(expected.insert(key(number), value)),
            None => drop(expected.remove(&key(number))),
        }
    };
    let mut changes = 0..;
    let mut some_changes = |change: &mut dyn FnMut(u64, Option<u64>)| {
        for step in changes.by_ref().take(60) {
            change(step * 7 % KEYS, (step % 5 > 0).then_some(step));
        }
    };
    some_changes(&mut change);
    change(MARK, Some(1000));
    until_marked(&marks, 1000);
    // All watchers wait at the home.
    daemons[0].kill().unwrap();
    some_changes(&mut change);
    change(MARK, Some(2000));
    until_marked(&marks, 2000);
    // The same beside a new replica, without a death.
    daemons[0].restart().unwrap();
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    in_sync(&daemons[1], "watched");
    some_changes(&mut change);
    change(MARK, Some(LAST));
    until_marked(&marks, LAST);
    for watcher in watchers {
        if let Some(known) = watcher.join().unwrap() {
            assert_eq!(known, expected);
        }
    }
}
