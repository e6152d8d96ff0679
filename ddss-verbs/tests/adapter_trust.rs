//! Who has to be there when bytes move over an RDMA adapter: nobody but the adapter. Who may reach which memory is a matter of
//! the suite of every fabric. Skipped without an adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Lab, Memory, PATIENCE, Pair, addresses, pattern};
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

/// Another process that holds a memory's descriptor, and nothing else: neither a fabric nor a connection.
struct Holder {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// How long the memory is that it holds, and of which pattern it waits for the bytes.
const HELD_BYTES: usize = 8 << 20;

impl Holder {
    fn of(memory: &Memory, seed: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder", "--nocapture", "--test-threads=1"])
            .env("DDSS_RDMA_HOLDER", seed.to_string())
            .stdin(Stdio::from(memory.fd.as_fd().try_clone_to_owned().unwrap()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut holder = Self { process, lines };
        holder.hears("it waits");
        holder
    }

    fn hears(&mut self, word: &str) {
        assert!(self.lines.by_ref().map(Result::unwrap).any(|line| line.contains(word)), "it ended without: {word}");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test by itself: what [`Holder`] runs. It says when all bytes of its memory are there.
#[test]
fn holder() {
    let Ok(seed) = std::env::var("DDSS_RDMA_HOLDER") else { return };
    let memory = Memory { fd: std::io::stdin().as_fd().try_clone_to_owned().unwrap(), bytes: HELD_BYTES as u64 };
    let say = |word: &str| writeln!(std::io::stdout().lock(), "{word}").unwrap();
    say("it waits");
    let (wanted, start) = (pattern(seed.parse().unwrap(), HELD_BYTES), Instant::now());
    while memory.get(0, HELD_BYTES) != wanted {
        assert!(start.elapsed() < PATIENCE, "the bytes did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
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
    let mut asked = Holder::of(&mine, 7);
    pair.a.fabric.post(&[read(there, 1, region, HELD_BYTES as u64, &window)]).unwrap();
    assert_eq!(pair.a.poll(), 0, "it cannot be over before it has begun");
    asked.hears("it came");
    assert_eq!(pair.a_done(1), Ok(0));
    // What is written lands in the memory of somebody whose fabric is not polled at all.
    mine.set(0, &pattern(8, HELD_BYTES));
    let mut owner = Holder::of(&theirs, 8);
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
