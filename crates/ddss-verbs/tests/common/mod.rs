//! Helpers of the fabric tests: memory to transfer, nodes that record events, and deadlines.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses its own part of this")]

#[cfg(feature = "rdma")]
mod adapter_pair;
mod endpoint;
mod endpoint_stream;
pub(crate) mod forward;
mod helper_process;
mod loopback;
mod sealed;
mod simulated;

#[cfg(feature = "rdma")]
pub(crate) use adapter_pair::AdapterPair;
pub(crate) use endpoint::{Endpoint, EndpointError};
pub(crate) use endpoint_stream::EndpointStream;
pub(crate) use forward::{Forward, forward_fabric};
pub(crate) use helper_process::{HelperProcess, helper_task, print_line, wait_until};
pub(crate) use loopback::Loopback;
pub(crate) use sealed::{SealedLoopback, session};
pub(crate) use simulated::Simulated;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ddss_verbs::{CloseReason, Event, Events, Fabric, PeerId, RegionId, Rights, Trust, Window, WorkError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Longest wait of a test, reached only in case of an error.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// Memory that can be registered, and accessed through its descriptor.
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

/// Returns deterministic pseudo-random bytes.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    SplitMix64::seed_from_u64(seed).fill_bytes(&mut out);
    out
}

/// An owned copy of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedEvent {
    ConnectRequest { peer: PeerId, hello: Vec<u8> },
    Connected { peer: PeerId, hello: Vec<u8> },
    Closed { peer: PeerId, reason: CloseReason, hello: Vec<u8> },
    Done { peer: PeerId, tag: u64, outcome: Result<u64, WorkError> },
    Message { peer: PeerId, bytes: Vec<u8>, solicited: bool, invalidated: Option<u32> },
    Immediate { peer: PeerId, data: [u8; 8], solicited: bool },
}

impl From<Event<'_>> for OwnedEvent {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::ConnectRequest { peer, hello, .. } => OwnedEvent::ConnectRequest { peer, hello: hello.to_vec() },
            Event::Connected { peer, hello } => OwnedEvent::Connected { peer, hello: hello.to_vec() },
            Event::Closed { peer, reason, hello } => OwnedEvent::Closed { peer, reason, hello: hello.to_vec() },
            Event::Done { peer, tag, outcome } => OwnedEvent::Done { peer, tag, outcome },
            Event::Message { peer, bytes, solicited, invalidated } => {
                OwnedEvent::Message { peer, bytes: bytes.to_vec(), solicited, invalidated }
            }
            Event::Immediate { peer, data, solicited } => OwnedEvent::Immediate { peer, data, solicited },
            other => panic!("an event that the tests do not know: {other:?}"),
        }
    }
}

/// A fabric with a record of its events.
pub(crate) struct Node<F: Fabric> {
    pub(crate) fabric: F,
    events: Events,
    pub(crate) seen: Vec<OwnedEvent>,
    /// Guarantee with which memory is registered.
    pub(crate) trust: Trust,
}

impl<F: Fabric> Node<F> {
    pub(crate) fn new(fabric: F) -> Self {
        Self { fabric, events: Events::new(), seen: Vec::new(), trust: Trust::Sealed }
    }

    /// Polls once and appends the events to `seen`.
    pub(crate) fn poll(&mut self) -> usize {
        let count = self.fabric.poll(&mut self.events);
        assert_eq!(count, self.events.len(), "a poll says how many events it appended");
        self.seen.extend(self.events.iter().map(OwnedEvent::from));
        self.events.clear();
        count
    }

    pub(crate) fn take(&mut self, mut wanted: impl FnMut(&OwnedEvent) -> bool) -> Option<OwnedEvent> {
        let position = self.seen.iter().position(&mut wanted)?;
        Some(self.seen.remove(position))
    }

    pub(crate) fn done(&mut self, tag: u64) -> Option<Result<u64, WorkError>> {
        match self.take(|seen| matches!(seen, OwnedEvent::Done { tag: other, .. } if *other == tag)) {
            Some(OwnedEvent::Done { outcome, .. }) => Some(outcome),
            _ => None,
        }
    }

    pub(crate) fn closed(&mut self, id: PeerId) -> Option<CloseReason> {
        match self.take(|seen| matches!(seen, OwnedEvent::Closed { peer, .. } if *peer == id)) {
            Some(OwnedEvent::Closed { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn message(&mut self) -> Option<Vec<u8>> {
        match self.take(|seen| matches!(seen, OwnedEvent::Message { .. })) {
            Some(OwnedEvent::Message { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn register(&mut self, memory: &Memory) -> RegionId {
        self.fabric.register(memory.fd.as_fd(), self.trust, 0, memory.bytes).unwrap()
    }
}

/// Makes fabrics of one kind, and advances their time.
pub(crate) trait FabricFactory {
    type Fabric: Fabric;
    fn fabric(&mut self) -> Self::Fabric;
    fn address(&mut self) -> SocketAddr;
    /// Guarantee for memory: the tests change it between two polls, and never during one.
    fn trust(&self) -> Trust {
        Trust::Sealed
    }
    /// Returns false for Soft-iWARP, which lets a peer read a write-only window.
    fn checks_read_rights(&self) -> bool {
        true
    }
    /// Returns false for foreign iWARP, which has no atomics and no immediates.
    fn has_extensions(&self) -> bool {
        true
    }
    fn advance(&mut self) {
        // Without a yield: beside threads that never yield each one costs a whole time slice, and this thread would
        // hardly poll.
        std::hint::spin_loop();
    }
}

/// Two nodes and a connection from `a` to `b`.
pub(crate) struct Pair<L: FabricFactory> {
    pub(crate) factory: L,
    pub(crate) a: Node<L::Fabric>,
    pub(crate) b: Node<L::Fabric>,
    pub(crate) address: SocketAddr,
}

impl<L: FabricFactory> Pair<L> {
    pub(crate) fn new(mut factory: L) -> Self {
        let mut a = Node::new(factory.fabric());
        let mut b = Node::new(factory.fabric());
        (a.trust, b.trust) = (factory.trust(), factory.trust());
        let address = factory.address();
        let address = b.fabric.listen(address).unwrap();
        Self { factory, a, b, address }
    }

    pub(crate) fn step(&mut self) {
        self.a.poll();
        self.b.poll();
        self.factory.advance();
    }

    pub(crate) fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(self) {
                return found;
            }
            assert!(
                start.elapsed() < WAIT_MAX,
                "waited in vain for {what}; a saw {:?}, b saw {:?}",
                self.a.seen,
                self.b.seen
            );
            self.step();
        }
    }

    /// Connects; returns the id of `b` at `a`, and of `a` at `b`.
    pub(crate) fn connect(&mut self) -> (PeerId, PeerId) {
        let address = self.address;
        let there = self.a.fabric.connect(address, b"from a").unwrap();
        let asked =
            self.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
        let OwnedEvent::ConnectRequest { peer: here, hello } = asked else { unreachable!() };
        assert_eq!(hello, b"from a");
        self.b.fabric.accept(here, b"from b").unwrap();
        let connected =
            self.wait("a to be connected", |pair| pair.a.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
        assert_eq!(connected, OwnedEvent::Connected { peer: there, hello: b"from b".to_vec() });
        let connected =
            self.wait("b to be connected", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
        assert_eq!(connected, OwnedEvent::Connected { peer: here, hello: Vec::new() });
        (there, here)
    }

    /// Returns true if `a` learns of refusals by `b`: both fabrics have to support that.
    pub(crate) fn reports_refusals(&self) -> bool {
        self.a.fabric.capabilities().can_report_refusals && self.b.fabric.capabilities().can_report_refusals
    }

    /// Checks that both sides close after a violation by `a`, with the reason if the fabric reports it.
    pub(crate) fn assert_both_closed_for_cause(&mut self, there: PeerId, here: PeerId, what: &str) {
        let lost = |reason| matches!(reason, CloseReason::Lost(_) | CloseReason::ClosedByPeer);
        let unnamed = !self.reports_refusals();
        let reason = self.wait("b to be closed", |pair| pair.b.closed(here));
        assert!(unnamed && lost(reason) || matches!(reason, CloseReason::ProtocolViolation(_)), "{what}: {reason:?}");
        let reason = self.wait("a to be closed", |pair| pair.a.closed(there));
        assert!(unnamed && lost(reason) || matches!(reason, CloseReason::Terminated(_)), "{what}: {reason:?}");
    }

    pub(crate) fn a_done(&mut self, tag: u64) -> Result<u64, WorkError> {
        self.wait("a's completion", |pair| pair.a.done(tag))
    }

    /// Waits for `a`'s completion of `tag`. Panics with both ends' view of the connection if it was not successful.
    pub(crate) fn a_succeeds(&mut self, tag: u64) -> u64 {
        let outcome = self.a_done(tag);
        outcome.unwrap_or_else(|error| {
            for _ in 0..1000 {
                self.step();
            }
            let is_end = |seen: &&OwnedEvent| matches!(seen, OwnedEvent::Closed { .. });
            let (a, b) = (self.a.seen.iter().find(is_end), self.b.seen.iter().find(is_end));
            panic!("operation {tag} ended with {error}; a says {a:?}, b says {b:?}")
        })
    }

    pub(crate) fn b_done(&mut self, tag: u64) -> Result<u64, WorkError> {
        self.wait("b's completion", |pair| pair.b.done(tag))
    }

    /// Exposes all of `memory` of `b` to `a`.
    pub(crate) fn expose(&mut self, memory: &Memory, here: PeerId, rights: Rights) -> (RegionId, Window) {
        let region = self.b.register(memory);
        let window = self.b.fabric.expose(here, region, 0, memory.bytes, rights).unwrap();
        (region, window)
    }
}

pub(crate) const ALL: Rights = Rights::READ.union(Rights::WRITE).union(Rights::ATOMIC);

/// Returns two addresses of RDMA adapters of this machine, if there are any; otherwise reports that the test is
/// skipped.
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
