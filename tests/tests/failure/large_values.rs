//! Large puts whose writer or home is killed: the segment has the complete old or new value, and no memory is lost.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, PutOptions, Segment, Spec, Storage, aio};
use ddss_testkit::{Daemon, DaemonOptions, binary, retry};
use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: usize = 12 << 20;
/// The share of one client is a quarter of the pool.
const POOL_BYTES: u64 = 4 * (BYTES as u64 + (1 << 20));

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

fn options(node: u16) -> DaemonOptions {
    DaemonOptions::new(node).unwrap().pool_bytes(POOL_BYTES)
}

fn pair() -> [Daemon; 2] {
    let (first, second) = (options(1), options(2));
    let first = first.peer(&second);
    let second = second.peer(&first);
    [first.start().unwrap(), second.start().unwrap()]
}

/// Returns a value that differs from that of another seed in every byte.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    vec![seed as u8 + 1; length]
}

/// Returns which of these patterns the segment holds.
fn seed_of(segment: &Segment, seeds: [u64; 2]) -> u64 {
    let value = segment.get(..).unwrap();
    let found = seeds.into_iter().find(|&seed| value[..] == pattern(seed, BYTES)[..]);
    found.unwrap_or_else(|| panic!("version {} is of no put", value.version()))
}

// If this failed, a crash of the daemon would leave the beginning of one large value and the end of another.
#[test]
fn home_killed_during_large_commit_recovers_old_or_new_value() {
    for storage in [Storage::Memory, Storage::File] {
        let mut daemon = options(1).start().unwrap();
        let spec = Spec::new(BYTES as u64).storage(storage);
        client(&daemon).segment("large").allocate(spec).unwrap().put(0, &pattern(0, BYTES)).unwrap();
        let (mut last, mut interrupted) = (0, 0);
        for round in 1..=8 {
            let (sender, sent) = mpsc::channel();
            let segment = client(&daemon).segment("large").open().unwrap();
            // Some daemons die while parts arrive, the others while they are committed.
            let parts = if round % 4 == 0 { 3 << 20 } else { BYTES as u64 };
            let ended = std::thread::scope(|scope| {
                let writer = scope.spawn(move || {
                    let mut progress = |done, _| {
                        if done == parts {
                            sender.send(()).unwrap();
                        }
                    };
                    let options = PutOptions::new().progress(&mut progress);
                    segment.put_with(&[(0, &pattern(last + 1, BYTES))], options)
                });
                sent.recv().unwrap();
                std::thread::sleep(Duration::from_millis(2 * (round % 4)));
                daemon.kill().unwrap();
                daemon.restart().unwrap();
                writer.join().unwrap()
            });
            let found = seed_of(&client(&daemon).segment("large").open().unwrap(), [last, last + 1]);
            assert!(ended.is_err() || found == last + 1, "an acknowledged put is lost");
            interrupted += u32::from(ended.is_err());
            last = found;
        }
        assert!(interrupted > 0, "no put was interrupted");
        // The next put finds all of the memory.
        client(&daemon).segment("large").open().unwrap().put(0, &pattern(99, BYTES)).unwrap();
    }
}

/// Puts a value with the command line, and kills the command after some time.
fn put_and_kill(folder: &Path, value: &[u8], after: Duration) {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["put", "large", "-", "--dir"]).arg(folder).stdin(Stdio::piped());
    let mut writer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(value).unwrap();
    std::thread::sleep(after);
    writer.kill().unwrap();
    writer.wait().unwrap();
}

// If this failed, a killed writer would leave half of a value, or memory that no later put can use.
#[test]
fn writer_killed_during_large_put_leaves_old_value_and_no_memory() {
    let [home, other] = pair();
    let segment =
        client(&home).segment("large").allocate(Spec::new(BYTES as u64).placement(ddss::Placement::Local)).unwrap();
    segment.put(0, &pattern(0, BYTES)).unwrap();
    let there = retry(|| client(&other).segment("large").open());
    let mut last = 0;
    for round in 1..=12u64 {
        let folder = if round % 2 == 0 { home.folder() } else { other.folder() };
        put_and_kill(folder, &pattern(round, BYTES), Duration::from_millis(9 * round));
        last = seed_of(&there, [last, round]);
    }
    // The share of all clients is half of the pool: it would be used up.
    for node in [&home, &other] {
        let ended = retry(|| match client(node).segment("large").open()?.put(0, &pattern(50, BYTES)) {
            // The home may not yet have seen the end of the last writer.
            Err(error) if error.kind() == ErrorKind::LimitReached => Err(error),
            ended => Ok(ended),
        });
        ended.unwrap();
    }
    assert!(segment.get(..).unwrap()[..] == pattern(50, BYTES)[..]);
}

// If this failed, a large value would be torn or lost between nodes, or under a model other than the default.
#[test]
fn large_value_from_another_node_is_whole_under_every_model() {
    let [home, other] = pair();
    let bytes = 2 * Segment::TRANSFER_BYTES_MAX + 100;
    let models = [ddss::Model::Strict, ddss::Model::Write, ddss::Model::Read, ddss::Model::Version, ddss::Model::Null];
    for (index, model) in models.into_iter().enumerate() {
        let name = format!("large-{index}");
        let spec = Spec::new(bytes as u64).model(model).placement(ddss::Placement::Local);
        let here = client(&home).segment(&name).allocate(spec).unwrap();
        let there = retry(|| client(&other).segment(&name).open());
        let mut seen = there.get(..).unwrap().version();
        for seed in 1..4 {
            let put = if seed % 2 == 0 { &here } else { &there }.put_if(seen, 0, &pattern(seed, bytes)).unwrap();
            let stale = there.put_if(seen, 0, &pattern(9, bytes)).unwrap_err();
            assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
            for reader in [&here, &there] {
                let value = reader.get(..).unwrap();
                assert!(value.stamp == put && value[..] == pattern(seed, bytes)[..], "{model:?}");
            }
            seen = put.version;
        }
        here.release().unwrap();
    }
}

// If this failed, a task that gives up would leave half of a value, or fill the home's memory with parts.
#[test]
fn large_put_of_a_task_that_is_dropped_half_way_leaves_old_value_and_no_memory() {
    let [home, other] = pair();
    let segment =
        client(&home).segment("large").allocate(Spec::new(BYTES as u64).placement(ddss::Placement::Local)).unwrap();
    segment.put(0, &pattern(0, BYTES)).unwrap();
    // Each node has one client, because the end of a client frees its parts.
    let writers = [&home, &other].map(|node| aio::Segment::from(&retry(|| client(node).segment("large").open())));
    for round in 1..=16u64 {
        let writer = &writers[round as usize % 2];
        let value = pattern(round, BYTES);
        let (parts, sent) = (round % 8 + 1, AtomicU64::new(0));
        let mut note = |done, _| sent.store(done >> 20, Ordering::Relaxed);
        let parts_of_value: [(u64, &[u8]); 1] = [(0, &value)];
        let mut put = Box::pin(writer.put_with(&parts_of_value, PutOptions::new().progress(&mut note)));
        let ended = ddss_testkit::block_on(std::future::poll_fn(|context| match put.as_mut().poll(context) {
            _ if sent.load(Ordering::Relaxed) >= parts => Poll::Ready(None),
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => Poll::Pending,
        }));
        assert!(ended.is_none(), "round {round} ended before it was dropped: {ended:?}");
        drop(put);
        // The client continues, with the channel that the put used.
        assert_eq!(ddss_testkit::block_on(writer.stat()).unwrap().len, BYTES as u64);
        // A busy machine may answer all parts between two polls: then the last poll has asked for the commit.
        let is_whole = sent.load(Ordering::Relaxed) == BYTES as u64 >> 20;
        let found = seed_of(&segment, [0, round]);
        assert!(found == 0 || is_whole, "a put was committed that lacks parts");
        if is_whole {
            segment.put(0, &pattern(0, BYTES)).unwrap();
        }
    }
    for writer in &writers {
        let ended = retry(|| match ddss_testkit::block_on(writer.put(0, &pattern(50, BYTES))) {
            // The home may not yet have seen the end of the last future.
            Err(error) if error.kind() == ErrorKind::LimitReached => Err(error),
            ended => Ok(ended),
        });
        ended.unwrap();
    }
    assert!(segment.get(..).unwrap()[..] == pattern(50, BYTES)[..]);
}

/// Returns how often the kernel has given this process a page.
fn page_faults(daemon: &Daemon) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    // The name may contain spaces; the eighth field after it counts faults without a disk.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(7).unwrap().parse().unwrap()
}

// If this failed, each large put would wait for fresh pages at its home: a fifth of its time.
#[test]
fn large_puts_in_a_row_use_the_same_memory() {
    /// Time for which the home keeps the memory.
    const KEPT: Duration = Duration::from_secs(1);
    const ROUNDS_MAX: usize = 50;
    let [home, other] = pair();
    let value = pattern(0, BYTES);
    client(&home).segment("large").allocate(Spec::new(BYTES as u64)).unwrap();
    let far = client(&other);
    let segment = retry(|| far.segment("large").open());
    // The home gives the memory back after a second without a large put: on a busy machine one put may take longer.
    let is_in_a_row = || {
        let faults = [(); 6].map(|()| {
            let (before, began) = (page_faults(&home), Instant::now());
            segment.put(0, &value).unwrap();
            (page_faults(&home) - before, began.elapsed())
        });
        let pages = (BYTES / 4096) as u64;
        let is_slow = faults.iter().any(|(_, took)| *took > KEPT / 2);
        let few = faults[2..].iter().map(|(faults, _)| faults).sum::<u64>() < pages;
        assert!(few || is_slow, "{faults:?}");
        few
    };
    assert!((0..ROUNDS_MAX).any(|_| is_in_a_row()), "no six puts were in a row");
}
