//! Latency of an 8-byte read over an RDMA adapter, printed: `scripts/vm` compares it with perftest in the same boot.
//!
//! No latency makes this test fail. Skipped without an adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Instant;

use common::{AdapterPair, Memory, OwnedEvent, Pair, addresses};
use ddss_verbs::{Event, Events, Fabric};
use ddss_verbs::{LocalRange, RemoteRange, Rights, Work};

/// Measured reads, as many as perftest measures, and warm-up reads.
const READS: u64 = 2000;
const READS_BEFORE: u64 = 200;

#[test]
fn reads_of_eight_bytes() {
    // If this failed, a read would not complete, or could not be compared with the adapter's own speed.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(AdapterPair::new(a, b));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    theirs.set(0, b"8 bytes!");
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, Rights::READ);
    pair.wait("the greeting", |pair| (pair.b.seen.is_empty() && pair.a.seen.is_empty()).then_some(()));
    for _ in 0..100 {
        pair.step();
    }
    let local = LocalRange { region, offset: 0, bytes: 8 };
    let remote = RemoteRange { key: window.key, address: window.base };
    let mut events = Events::new();
    let mut times = Vec::with_capacity(READS as usize);
    // The clock is read once for each read, as perftest reads the processor's counter.
    let mut start = Instant::now();
    for tag in 0..READS_BEFORE + READS {
        pair.a.fabric.post(&[Work::Read { peer: there, tag, local, remote }]).unwrap();
        let mut polls = 0_u32;
        while pair.a.fabric.poll(&mut events) == 0 {
            // A polling thread does not read the clock in each round, and perftest never does.
            polls += 1;
            assert!(!polls.is_multiple_of(1 << 16) || start.elapsed().as_secs() < 20, "no answer to read {tag}");
        }
        assert!(
            matches!(events.get(0), Some(Event::Done { outcome: Ok(0), .. })),
            "{:?}",
            events.get(0).map(OwnedEvent::from)
        );
        events.clear();
        let now = Instant::now();
        if tag >= READS_BEFORE {
            times.push((now - start).as_nanos());
        }
        start = now;
    }
    assert_eq!(mine.get(0, 8), b"8 bytes!");
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100] as f64 / 1000.0;
    let begin = Instant::now();
    let clock = (0..1000).map(|_| begin.elapsed()).max().unwrap().as_nanos() as f64 / 1000.0 / 1000.0;
    let line =
        format!("read of 8 bytes: p50 {:.2} us, p99 {:.2} us, a look at the clock {clock:.2} us\n", at(50), at(99));
    drop(std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes()));
}
