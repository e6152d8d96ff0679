//! Zero-copy transfers over an RDMA adapter: only the adapter moves the bytes. The conformance suite covers access
//! rights. Skipped without an adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Instant;

use common::{
    AdapterPair, HelperProcess, Memory, Pair, WAIT_MAX, addresses, helper_task, pattern, print_line, wait_until,
};
use ddss_verbs::{Fabric, LocalRange, PeerId, RegionId, RemoteRange, Rights, Window, Work};

fn read(peer: PeerId, tag: u64, region: RegionId, bytes: u64, window: &Window) -> Work<'static> {
    let remote = RemoteRange { key: window.key, address: window.base };
    Work::Read { peer, tag, local: LocalRange { region, offset: 0, bytes }, remote }
}

/// Bytes of the memory that another process maps.
const MEMORY_BYTES: usize = 8 << 20;

/// Starts another process that has a memory's descriptor and waits for the bytes of a pattern.
fn start_holder(memory: &Memory, seed: u64) -> HelperProcess {
    let mut holder = HelperProcess::start("holder", &seed.to_string(), memory);
    holder.wait_for_line("holder waits");
    holder
}

/// Body of the process that [`start_holder`] runs, no test of its own. It reports when all bytes of its memory are
/// there.
#[test]
fn holder() {
    let Some((seed, memory)) = helper_task(MEMORY_BYTES as u64) else { return };
    print_line("holder waits");
    let wanted = pattern(seed.parse().unwrap(), MEMORY_BYTES);
    wait_until("the bytes", || memory.get(0, MEMORY_BYTES) == wanted);
    print_line("bytes arrived");
}

#[test]
fn adapter_transfers_bypass_both_processes() {
    // If this failed, the progress thread would copy every get and put over an adapter once more.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(AdapterPair::new(a, b));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(MEMORY_BYTES as u64), Memory::new(MEMORY_BYTES as u64));
    let (_, window) = pair.expose(&theirs, here, Rights::READ.union(Rights::WRITE));
    let region = pair.a.register(&mine);
    for _ in 0..100 {
        pair.step();
    }
    // Read bytes land in the requester's memory; its fabric is polled once, to send the request, and then no more.
    theirs.set(0, &pattern(7, MEMORY_BYTES));
    let mut asked = start_holder(&mine, 7);
    pair.a.fabric.post(&[read(there, 1, region, MEMORY_BYTES as u64, &window)]).unwrap();
    assert_eq!(pair.a.poll(), 0, "the read cannot complete before it was sent");
    asked.wait_for_line("bytes arrived");
    assert_eq!(pair.a_done(1), Ok(0));
    // Written bytes land in memory whose fabric is not polled at all.
    mine.set(0, &pattern(8, MEMORY_BYTES));
    let mut owner = start_holder(&theirs, 8);
    let local = LocalRange { region, offset: 0, bytes: MEMORY_BYTES as u64 };
    let remote = RemoteRange { key: window.key, address: window.base };
    pair.a.fabric.post(&[Work::Write { peer: there, tag: 2, local, remote }]).unwrap();
    let start = Instant::now();
    while pair.a.done(2).is_none() {
        assert!(start.elapsed() < WAIT_MAX, "the write does not end");
        pair.a.poll();
    }
    owner.wait_for_line("bytes arrived");
}
