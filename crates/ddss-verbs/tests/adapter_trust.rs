//! Who has to be there when bytes move over an RDMA adapter: nobody but the adapter. Who may reach which memory is a matter of
//! the suite of every fabric. Skipped without an adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use common::{Lab, Memory, Other, PATIENCE, Pair, addresses, look_for, pattern, say, task};
use ddss_verbs::rdma::{Rdma, RdmaConfig};
use ddss_verbs::{Fabric, LocalRange, PeerId, RegionId, RemoteRange, Rights, Window, Work};

struct Two(IpAddr, IpAddr, bool);

impl Lab for Two {
    type Fabric = Rdma;

    fn fabric(&mut self) -> Rdma {
        let mut config = RdmaConfig::default();
        config.address = Some(if std::mem::replace(&mut self.2, false) { self.0 } else { self.1 });
        Rdma::new(config).unwrap()
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.1, 0)
    }
}

fn read(peer: PeerId, tag: u64, region: RegionId, bytes: u64, window: &Window) -> Work<'static> {
    let remote = RemoteRange { key: window.key, address: window.base };
    Work::Read { peer, tag, local: LocalRange { region, offset: 0, bytes }, remote }
}

/// How long the memory is that another process holds.
const HELD_BYTES: usize = 8 << 20;

/// Another process that holds a memory's descriptor, and waits for the bytes of a pattern.
fn holder_of(memory: &Memory, seed: u64) -> Other {
    let mut holder = Other::start("holder", &seed.to_string(), memory);
    holder.hears("it waits");
    holder
}

/// Not a test by itself: what [`holder_of`] runs. It says when all bytes of its memory are there.
#[test]
fn holder() {
    let Some((seed, memory)) = task(HELD_BYTES as u64) else { return };
    say("it waits");
    let wanted = pattern(seed.parse().unwrap(), HELD_BYTES);
    look_for("the bytes", || memory.get(0, HELD_BYTES) == wanted);
    say("it came");
}

#[test]
fn bytes_land_where_a_client_holds_them_and_nobody_carries_them() {
    // If this failed, every get and put over an adapter would be copied once more by the progress thread.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(Two(a, b, true));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(HELD_BYTES as u64), Memory::new(HELD_BYTES as u64));
    let (_, window) = pair.open(&theirs, here, Rights::READ.and(Rights::WRITE));
    let region = pair.a.register(&mine);
    for _ in 0..100 {
        pair.step();
    }
    // What is read lands in the memory of whoever asked: his fabric is polled once, to send it out, and then no more.
    theirs.set(0, &pattern(7, HELD_BYTES));
    let mut asked = holder_of(&mine, 7);
    pair.a.fabric.post(&[read(there, 1, region, HELD_BYTES as u64, &window)]).unwrap();
    assert_eq!(pair.a.poll(), 0, "it cannot be over before it has begun");
    asked.hears("it came");
    assert_eq!(pair.a_done(1), Ok(0));
    // What is written lands in the memory of somebody whose fabric is not polled at all.
    mine.set(0, &pattern(8, HELD_BYTES));
    let mut owner = holder_of(&theirs, 8);
    let local = LocalRange { region, offset: 0, bytes: HELD_BYTES as u64 };
    let remote = RemoteRange { key: window.key, address: window.base };
    pair.a.fabric.post(&[Work::Write { peer: there, tag: 2, local, remote }]).unwrap();
    let start = Instant::now();
    while pair.a.done(2).is_none() {
        assert!(start.elapsed() < PATIENCE, "the write does not end");
        pair.a.poll();
    }
    owner.hears("it came");
}
