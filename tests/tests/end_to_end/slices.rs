//! Long operations of a node run in time slices, so that other calls are served in between.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Mode, Permissions, Spec};
use ddss_testkit::{DaemonOptions, SetOnDrop, skipped};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LARGE: u64 = 512 << 20;
/// Least number of calls during the operation. It takes two thousand slices with calls between them; without slices
/// there would be one or two, far less even on a busy machine.
const CALLS_MIN: u64 = 10;

// If this failed, all calls would stall during an allocation or release of a gigabyte.
#[test]
fn calls_stay_fast_during_large_allocate_and_release() {
    let test = "calls_stay_fast_during_large_allocate_and_release";
    let room = rustix::fs::statvfs("/dev/shm").map_or(0, |found| found.f_bavail * found.f_frsize);
    if room < 2 * LARGE {
        return skipped(test, "it needs 1 GiB in /dev/shm");
    }
    let options = DaemonOptions::new(1).unwrap().pool_bytes(LARGE + (1 << 20));
    let daemon = options.argument("--core").argument("none").start().unwrap();
    let connect = || {
        let options = ConnectOptions::new().directory(daemon.folder()).local_reads(false);
        Client::connect_with(options.timeout(Duration::from_secs(60))).unwrap()
    };
    let (calls, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let neighbour = connect();
    let small = neighbour.segment("small").allocate(Spec::new(64)).unwrap();
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&end);
        scope.spawn(|| {
            while !end.load(Ordering::Acquire) {
                small.put(0, &[1; 64]).unwrap();
                calls.fetch_add(1, Ordering::AcqRel);
            }
        });
        let client = connect();
        let counted = |what: &str, work: &mut dyn FnMut()| {
            let before = calls.load(Ordering::Acquire);
            work();
            let made = calls.load(Ordering::Acquire) - before;
            eprintln!("{what}: {made} calls of somebody else");
            made
        };
        let mut made = None;
        let meanwhile =
            counted("allocate", &mut || made = Some(client.segment("large").allocate(Spec::new(LARGE - 4096))));
        let released = made.unwrap().unwrap().release();
        // The memory is freed after the release, and the next allocation waits for it.
        let again = counted("release and allocate", &mut || {
            while client.segment("next").allocate(Spec::new(LARGE - 4096)).is_err() {}
        });
        end.store(true, Ordering::Release);
        released.unwrap();
        assert!(meanwhile >= CALLS_MIN, "only {meanwhile} calls went in between");
        assert!(again >= CALLS_MIN, "only {again} calls went in between");
    });
}

// If this failed, all calls would stall during a permission change of a gigabyte.
#[test]
fn calls_stay_fast_during_large_permission_change() {
    let test = "calls_stay_fast_during_large_permission_change";
    let room = rustix::fs::statvfs("/dev/shm").map_or(0, |found| found.f_bavail * found.f_frsize);
    if room < 2 * LARGE {
        return skipped(test, "it needs 1 GiB in /dev/shm");
    }
    let options = DaemonOptions::new(1).unwrap().pool_bytes(LARGE + LARGE / 2 + (2 << 20));
    let daemon = options.argument("--core").argument("none").start().unwrap();
    let connect = || {
        let options = ConnectOptions::new().directory(daemon.folder()).local_reads(false);
        Client::connect_with(options.timeout(Duration::from_secs(60))).unwrap()
    };
    let bytes = LARGE / 2 - 8192;
    let owner = connect();
    let large = owner.segment("large").allocate(Spec::new(bytes)).unwrap();
    // Puts known bytes at both ends.
    large.put(0, &[7; 64]).unwrap();
    let last = large.put(bytes - 64, &[8; 64]).unwrap();
    let small = owner.segment("small").allocate(Spec::new(64)).unwrap();
    let (calls, reads, puts, end) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let counts = || [&calls, &reads, &puts].map(|count| count.load(Ordering::Acquire));
    let [reader, writer] = [(); 2].map(|()| connect().segment("large").open().unwrap());
    let work = |count: &AtomicU64, call: &dyn Fn()| {
        while !end.load(Ordering::Acquire) {
            call();
            count.fetch_add(1, Ordering::AcqRel);
        }
    };
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&end);
        scope.spawn(|| work(&calls, &|| _ = small.put(0, &[1; 64]).unwrap()));
        // The segment is read while it moves, at its old and its new place.
        scope.spawn(|| work(&reads, &|| assert_eq!(reader.get(0..64).unwrap()[..], [7; 64])));
        scope.spawn(|| work(&puts, &|| _ = writer.word(128).fetch_add(1).unwrap()));
        while counts().contains(&0) {
            std::thread::yield_now();
        }
        for mode in [0o644, 0o600] {
            let before = counts();
            large.set_permissions(Permissions { mode: Mode(mode), ..large.stat().unwrap().permissions }).unwrap();
            let after = counts();
            let [calls, reads, puts] = std::array::from_fn(|index| after[index] - before[index]);
            eprintln!(
                "{mode:o}: {calls} calls of somebody else, {reads} gets and {puts} atomics of the segment itself"
            );
            assert!(calls >= CALLS_MIN && reads >= CALLS_MIN, "only {calls} calls and {reads} gets went in between");
        }
        end.store(true, Ordering::Release);
    });
    // No atomic is lost on either side of the move, and the earlier content stays.
    let made = puts.load(Ordering::Acquire);
    assert_eq!(large.get(128..136).unwrap()[..], made.to_le_bytes());
    assert_eq!(large.get(bytes - 64..bytes).unwrap()[..], [8; 64]);
    assert_eq!(large.get(0..8).unwrap().version().0, last.version.0 + made);
    let (one, two) = (large.lock().unwrap(), connect());
    assert!(two.segment("large").open().unwrap().lock_with(ddss::LockOptions::new().timeout(Duration::ZERO)).is_err());
    drop(one);
}
