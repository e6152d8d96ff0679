//! Tests of handles of maps: how a map is allocated, described and read.

use super::calls::Calls;
use crate::testing::TestNode;
use crate::{ErrorKind, LockOptions, Map, Mode, Model, Permissions, Spec, Table};
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn allocation_that_ends_behind_its_segment_may_have_taken_effect() {
    // If this broke, a program would allocate again, and take its own map for one of another process.
    let node = TestNode::start();
    let (client, other) = (node.client().with_timeout(Duration::from_millis(300)), node.client());
    let end = Instant::now() + PATIENCE;
    for round in 0.. {
        assert!(Instant::now() < end, "no other process has locked the new segment in time");
        let name = format!("map/{round}");
        let (over, is_over) = sync_channel::<()>(0);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_over = is_over;
                loop {
                    if let Ok(found) = other.segment(&name).open() {
                        let _held = found.lock_with(LockOptions::new().lease(PATIENCE));
                        return is_over.recv().unwrap_err();
                    }
                }
            });
            let ended = client.map::<u64, u64>(&name).allocate(8);
            drop(over);
            ended
        });
        let Err(error) = ended else { continue };
        assert!(error.is_indeterminate() && !error.is_retryable(), "{error}");
        assert_eq!((error.kind(), other.segment(&name).open().is_ok()), (ErrorKind::TimedOut, true), "{error}");
        return;
    }
}

#[test]
fn client_that_may_only_read_waits_for_the_description() {
    // If this broke, a reader that starts beside the owner of a new map would want a right that it need not have.
    let node = TestNode::start_with(|config| config.socket_mode = 0o666);
    let client = node.client();
    let folder = client.socket().parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711)).unwrap();
    let reader = std::thread::scope(|scope| {
        let connect = || {
            if rustix::process::geteuid().is_root() {
                // The node permits root everything.
                set_thread_uid(Uid::from_raw(65534)).unwrap();
            }
            node.client()
        };
        scope.spawn(connect).join().unwrap()
    });
    let model = client.map::<u64, u64>("model").allocate(8).unwrap();
    let (len, row_len) = (model.segment().len(), model.map.table.row_len());
    let readable = Spec::new(len).row_len(row_len as u32).mode(Mode(0o444));
    let table: Table<[u8]> = client.table("map").allocate(readable).unwrap();
    let error = reader.map::<u64, u64>("map").open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongShape, "{error}");
    let info = table.segment().stat().unwrap();
    let allow = |mode| table.segment().set_permissions(Permissions { mode: Mode(mode), ..info.permissions }).unwrap();
    allow(0o644);
    client.map::<u64, u64>("map").open().unwrap().put(&1, &2).unwrap();
    allow(0o444);
    assert_eq!(reader.map::<u64, u64>("map").open().unwrap().value(&1), Some(2));
}

#[test]
fn map_without_a_model_returns_whole_entries() {
    // If this broke, a get would return a value of two puts, or take a key that is there for absent.
    const WORDS: usize = 1000;
    let node = TestNode::start();
    let there: Map<u64, [u64; WORDS]> = node.client().map("map").allocate(Spec::new(8).model(Model::Null)).unwrap();
    let here: Map<u64, [u64; WORDS]> = node.local_read_client().map("map").open().unwrap();
    there.put(&7, &[0; WORDS]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..3000).for_each(|turn| _ = there.put(&7, &[turn; WORDS]).unwrap()));
        while !writer.is_finished() {
            let value = here.value(&7).expect("the key is never absent");
            assert!(value.iter().all(|word| *word == value[0]), "{} and {}", value[0], value[WORDS - 1]);
            assert_eq!(here.entries().count(), 1);
        }
    });
}
