//! What every test of a fabric needs: memory to transfer, nodes that remember what they saw, and deadlines.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of this")]

mod loopback;
mod other;

pub(crate) use loopback::Loopback;
pub(crate) use other::{Other, look_for, say, task};

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ddss_verbs::{CloseReason, Event, Events, Fabric, PeerId, RegionId, Rights, Trust, Window, WorkError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// What a test waits for at the most. It is never reached unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Memory that can be registered, and looked at from outside.
pub(crate) struct Memory {
    pub(crate) fd: OwnedFd,
    pub(crate) bytes: u64,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Self {
        let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        Self { fd, bytes }
    }

    pub(crate) fn set(&self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            done += rustix::io::pwrite(&self.fd, &data[done..], offset + done as u64).unwrap();
        }
    }

    pub(crate) fn get(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let mut done = 0;
        while done < bytes {
            let count = rustix::io::pread(&self.fd, &mut out[done..], offset + done as u64).unwrap();
            assert!(count > 0, "a read past the end of the memory");
            done += count;
        }
        out
    }

    pub(crate) fn word(&self, offset: u64) -> u64 {
        u64::from_ne_bytes(self.get(offset, 8).try_into().unwrap())
    }
}

/// Bytes that are different everywhere and the same in each run.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// An event that can be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Asked { peer: PeerId, hello: Vec<u8> },
    Connected { peer: PeerId, hello: Vec<u8> },
    Closed { peer: PeerId, reason: CloseReason, hello: Vec<u8> },
    Done { peer: PeerId, tag: u64, outcome: Result<u64, WorkError> },
    Message { peer: PeerId, bytes: Vec<u8>, solicited: bool, invalidated: Option<u32> },
    Immediate { peer: PeerId, data: [u8; 8], solicited: bool },
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Asked { peer, hello, .. } => Seen::Asked { peer, hello: hello.to_vec() },
            Event::Connected { peer, hello } => Seen::Connected { peer, hello: hello.to_vec() },
            Event::Closed { peer, reason, hello } => Seen::Closed { peer, reason, hello: hello.to_vec() },
            Event::Done { peer, tag, outcome } => Seen::Done { peer, tag, outcome },
            Event::Message { peer, bytes, solicited, invalidated } => {
                Seen::Message { peer, bytes: bytes.to_vec(), solicited, invalidated }
            }
            Event::Immediate { peer, data, solicited } => Seen::Immediate { peer, data, solicited },
            other => panic!("an event that the tests do not know: {other:?}"),
        }
    }
}

/// A fabric and what it told.
pub(crate) struct Node<F: Fabric> {
    pub(crate) fabric: F,
    events: Events,
    pub(crate) seen: Vec<Seen>,
    /// As what its memory is registered.
    pub(crate) trust: Trust,
}

impl<F: Fabric> Node<F> {
    pub(crate) fn new(fabric: F) -> Self {
        Self { fabric, events: Events::new(), seen: Vec::new(), trust: Trust::Sealed }
    }

    /// One poll; what happened is appended to `seen`.
    pub(crate) fn poll(&mut self) -> usize {
        let count = self.fabric.poll(&mut self.events);
        assert_eq!(count, self.events.len(), "a poll says how many events it appended");
        self.seen.extend(self.events.iter().map(Seen::from));
        self.events.clear();
        count
    }

    pub(crate) fn take(&mut self, mut wanted: impl FnMut(&Seen) -> bool) -> Option<Seen> {
        let position = self.seen.iter().position(&mut wanted)?;
        Some(self.seen.remove(position))
    }

    pub(crate) fn done(&mut self, tag: u64) -> Option<Result<u64, WorkError>> {
        match self.take(|seen| matches!(seen, Seen::Done { tag: other, .. } if *other == tag)) {
            Some(Seen::Done { outcome, .. }) => Some(outcome),
            _ => None,
        }
    }

    pub(crate) fn closed(&mut self, id: PeerId) -> Option<CloseReason> {
        match self.take(|seen| matches!(seen, Seen::Closed { peer, .. } if *peer == id)) {
            Some(Seen::Closed { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn message(&mut self) -> Option<Vec<u8>> {
        match self.take(|seen| matches!(seen, Seen::Message { .. })) {
            Some(Seen::Message { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn register(&mut self, memory: &Memory) -> RegionId {
        self.fabric.register(memory.fd.as_fd(), self.trust, 0, memory.bytes).unwrap()
    }
}

/// How to make fabrics of one kind, and how time goes by for them.
pub(crate) trait Lab {
    type Fabric: Fabric;
    fn fabric(&mut self) -> Self::Fabric;
    fn address(&mut self) -> SocketAddr;
    /// The tests change memory between two polls, and never during one.
    fn trust(&self) -> Trust {
        Trust::Sealed
    }
    /// Soft-iWARP lets a peer read a window that is open for writing only.
    fn checks_reads(&self) -> bool {
        true
    }
    /// Somebody else's iWARP has no atomics and no immediates.
    fn has_extensions(&self) -> bool {
        true
    }
    fn pass(&mut self) {
        // No yield: beside threads that never do it each one costs a whole slice, and this one would hardly poll at all.
        std::hint::spin_loop();
    }
}

/// Two nodes and a connection from `a` to `b`.
pub(crate) struct Pair<L: Lab> {
    pub(crate) lab: L,
    pub(crate) a: Node<L::Fabric>,
    pub(crate) b: Node<L::Fabric>,
    pub(crate) address: SocketAddr,
}

impl<L: Lab> Pair<L> {
    pub(crate) fn new(mut lab: L) -> Self {
        let mut a = Node::new(lab.fabric());
        let mut b = Node::new(lab.fabric());
        (a.trust, b.trust) = (lab.trust(), lab.trust());
        let address = lab.address();
        let address = b.fabric.listen(address).unwrap();
        Self { lab, a, b, address }
    }

    pub(crate) fn step(&mut self) {
        self.a.poll();
        self.b.poll();
        self.lab.pass();
    }

    pub(crate) fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(self) {
                return found;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}; a saw {:?}, b saw {:?}",
                self.a.seen,
                self.b.seen
            );
            self.step();
        }
    }

    /// Connects; returns who `b` is for `a`, and who `a` is for `b`.
    pub(crate) fn connect(&mut self) -> (PeerId, PeerId) {
        let address = self.address;
        let there = self.a.fabric.connect(address, b"from a").unwrap();
        let asked = self.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, Seen::Asked { .. })));
        let Seen::Asked { peer: here, hello } = asked else { unreachable!() };
        assert_eq!(hello, b"from a");
        self.b.fabric.accept(here, b"from b").unwrap();
        let connected =
            self.wait("a to be connected", |pair| pair.a.take(|seen| matches!(seen, Seen::Connected { .. })));
        assert_eq!(connected, Seen::Connected { peer: there, hello: b"from b".to_vec() });
        let connected =
            self.wait("b to be connected", |pair| pair.b.take(|seen| matches!(seen, Seen::Connected { .. })));
        assert_eq!(connected, Seen::Connected { peer: here, hello: Vec::new() });
        (there, here)
    }

    /// Whether `a` is told what `b` refuses: one has to say it and the other to listen.
    pub(crate) fn names_refusals(&self) -> bool {
        self.a.fabric.capabilities().refusals_named && self.b.fabric.capabilities().refusals_named
    }

    /// `a` did what it may not: both lose the connection, and know why if the fabric can tell.
    pub(crate) fn both_closed_for_cause(&mut self, there: PeerId, here: PeerId, what: &str) {
        let lost = |reason| matches!(reason, CloseReason::Lost(_) | CloseReason::Gone);
        let unnamed = !self.names_refusals();
        let reason = self.wait("b to be closed", |pair| pair.b.closed(here));
        assert!(unnamed && lost(reason) || matches!(reason, CloseReason::Broken(_)), "{what}: {reason:?}");
        let reason = self.wait("a to be closed", |pair| pair.a.closed(there));
        assert!(unnamed && lost(reason) || matches!(reason, CloseReason::Terminated(_)), "{what}: {reason:?}");
    }

    pub(crate) fn a_done(&mut self, tag: u64) -> Result<u64, WorkError> {
        self.wait("a's completion", |pair| pair.a.done(tag))
    }

    pub(crate) fn b_done(&mut self, tag: u64) -> Result<u64, WorkError> {
        self.wait("b's completion", |pair| pair.b.done(tag))
    }

    /// All of `memory` of `b`, open to `a`.
    pub(crate) fn open(&mut self, memory: &Memory, here: PeerId, rights: Rights) -> (RegionId, Window) {
        let region = self.b.register(memory);
        let window = self.b.fabric.expose(here, region, 0, memory.bytes, rights).unwrap();
        (region, window)
    }
}

pub(crate) const ALL: Rights = Rights::READ.and(Rights::WRITE).and(Rights::ATOMIC);

/// Two addresses of RDMA adapters of this machine, if there are any; else the test says that it is skipped.
pub(crate) fn addresses() -> Option<(std::net::IpAddr, std::net::IpAddr)> {
    let find = |name| std::env::var(name).ok().map(|address: String| address.parse().unwrap());
    let found = find("DDSS_RDMA_A").zip(find("DDSS_RDMA_B"));
    if found.is_none() {
        let name = std::thread::current().name().unwrap_or("adapter").to_owned();
        let line = format!("skipped: {name}: no rdma adapter (DDSS_RDMA_A, DDSS_RDMA_B); scripts/vm has some\n");
        drop(std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes()));
    }
    found
}
