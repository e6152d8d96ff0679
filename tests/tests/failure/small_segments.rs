//! Small segments share pages: each keeps its own bytes through releases and restarts, and empty pages are given back.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Batch, Client, ConnectOptions, Segment};
use ddss_testkit::{Daemon, DaemonOptions, TempNode, pattern};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: usize = 2000;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Returns the pages that the areas of a node have.
fn pages(memory: &Path) -> u64 {
    let mut pages = 0;
    for entry in std::fs::read_dir(memory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages += self::pages(&path);
        } else if path.file_name().unwrap().to_str().unwrap().contains("area") {
            pages += path.metadata().unwrap().blocks() / 8;
        }
    }
    pages
}

/// Calls of one batch, which share a deadline.
const TOGETHER: usize = 1024;

fn bytes_of(number: usize) -> usize {
    1 + number * 7 % 300
}

fn allocate(client: &Client, numbers: impl Iterator<Item = usize>) -> Vec<(usize, Segment)> {
    let numbers: Vec<usize> = numbers.collect();
    let names: Vec<String> = numbers.iter().map(|number| format!("small/{number}")).collect();
    let mut made = Vec::new();
    for (names, numbers) in names.chunks(TOGETHER).zip(numbers.chunks(TOGETHER)) {
        let mut batch = Batch::new();
        let named = names.iter().zip(numbers);
        let tickets: Vec<_> =
            named.map(|(name, &number)| batch.allocate(name, bytes_of(number) as u64).unwrap()).collect();
        let mut replies = client.run(batch).unwrap();
        made.extend(numbers.iter().copied().zip(tickets.into_iter().map(|ticket| replies.take(ticket).unwrap())));
    }
    made
}

fn release(client: &Client, segments: &[(usize, Segment)]) {
    for segments in segments.chunks(TOGETHER) {
        let mut batch = Batch::new();
        for (_, segment) in segments {
            batch.release(segment).unwrap();
        }
        client.run(batch).unwrap().ok().unwrap();
    }
}

fn check(segments: &[(usize, Segment)]) {
    for (number, segment) in segments {
        let value = segment.get(..).unwrap();
        assert!(value[..] == pattern(*number as u64, bytes_of(*number))[..], "small/{number} has other bytes");
    }
}

// If this failed, a release would take the page of a neighbour, a segment would begin with the bytes of a released one,
// or the memory of released segments would stay with the daemon.
#[test]
fn small_segments_share_pages_which_are_given_back() {
    let folder = TempNode::new().unwrap();
    let memory = folder.path().join("memory");
    let mut daemon = DaemonOptions::new(1).unwrap().argument("--memory-dir").argument(&memory).start().unwrap();
    let before = client(&daemon);
    let made = allocate(&before, 0..COUNT);
    for (number, segment) in &made {
        segment.put(0, &pattern(*number as u64, bytes_of(*number))).unwrap();
    }
    check(&made);
    let full = pages(&memory);
    assert!(full < COUNT as u64 / 8, "{full} pages for {COUNT} segments of at most 512 bytes");
    // Each second one goes; its neighbours keep their bytes, before and after the daemon's death.
    let (kept, released): (Vec<_>, Vec<_>) = made.into_iter().partition(|(number, _)| number % 2 == 0);
    release(&before, &released);
    check(&kept);
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let after = client(&daemon);
    let kept: Vec<_> =
        kept.iter().map(|(number, _)| (*number, after.segment(&format!("small/{number}")).open().unwrap())).collect();
    check(&kept);
    let again = allocate(&after, (0..COUNT).filter(|number| number % 2 == 1));
    for (number, segment) in &again {
        assert!(segment.get(..).unwrap().iter().all(|&byte| byte == 0), "small/{number} is not new");
        segment.put(0, &pattern(*number as u64, bytes_of(*number))).unwrap();
    }
    check(&kept);
    check(&again);
    release(&after, &kept);
    release(&after, &again);
    let deadline = Instant::now() + PATIENCE;
    while pages(&memory) > 0 {
        assert!(Instant::now() < deadline, "{} pages without a segment", pages(&memory));
        std::thread::sleep(Duration::from_millis(10));
    }
}
