//! A host that vanishes silently: its connections, also idle ones, end by timeout.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ddss_testkit::{LinkFault, NetworkNamespaces, skipped};
use ddss_verbs::{
    CloseReason, Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Rights, Trust,
    Work, WorkError,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Time limit. The kernel gives up a silent host after ten seconds, with or without data in flight.
const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: u64 = 1 << 16;

/// A fabric in a network namespace of its own, with its events.
struct Host {
    fabric: Iwarp,
    region: RegionId,
    key: Option<RemoteRange>,
    connected: Option<PeerId>,
    done: Vec<(u64, Result<u64, WorkError>)>,
    closed: Vec<(PeerId, CloseReason)>,
}

impl Host {
    fn new() -> Host {
        let memory = memfd_create("half-open", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, BYTES).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        let mut fabric = Iwarp::new(IwarpConfig::default()).unwrap();
        let region = fabric.register(memory.as_fd(), Trust::Sealed, 0, BYTES).unwrap();
        Host { fabric, region, key: None, connected: None, done: Vec::new(), closed: Vec::new() }
    }

    fn step(&mut self) {
        let mut events = Events::new();
        self.fabric.poll(&mut events);
        for event in events.iter() {
            match event {
                Event::ConnectRequest { peer, .. } => {
                    let window = self.fabric.expose(peer, self.region, 0, BYTES, Rights::READ).unwrap();
                    let hello = [&window.key.to_le_bytes()[..], &window.base.to_le_bytes()].concat();
                    self.fabric.accept(peer, &hello).unwrap();
                }
                Event::Connected { peer, hello } => {
                    self.connected = Some(peer);
                    self.key = hello.split_first_chunk::<4>().map(|(key, base)| RemoteRange {
                        key: u32::from_le_bytes(*key),
                        address: u64::from_le_bytes(base.try_into().unwrap()),
                    });
                }
                Event::Done { tag, outcome, .. } => self.done.push((tag, outcome)),
                Event::Closed { peer, reason, .. } => self.closed.push((peer, reason)),
                other => panic!("nobody asked for {other:?}"),
            }
        }
    }

    fn read(&mut self, tag: u64) {
        let (peer, remote) = (self.connected.unwrap(), self.key.unwrap());
        let local = LocalRange { region: self.region, offset: 0, bytes: 8 };
        self.fabric.post(&[Work::Read { peer, tag, local, remote }]).unwrap();
    }
}

fn enter(network: &NetworkNamespaces, node: u8) {
    let namespace = File::open(format!("/run/netns/{}", network.inside(node))).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

fn until(hosts: &mut [Host; 3], what: &str, wanted: impl Fn(&[Host; 3]) -> bool) {
    let begin = Instant::now();
    while !wanted(hosts) {
        hosts.iter_mut().for_each(Host::step);
        std::thread::yield_now();
        let closed = hosts.each_ref().map(|host| host.closed.clone());
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}; closed were {closed:?}");
    }
}

#[test]
fn vanished_host_is_detected() {
    // If this failed, connections to a node without power would stay for years.
    let network = match NetworkNamespaces::new(3) {
        Ok(network) => network,
        Err(error) => {
            skipped("vanished_host_is_detected", &format!("it needs root and network namespaces: {error}"));
            return;
        }
    };
    // A socket belongs to the namespace that created it; any thread may poll it.
    let mut hosts = [Host::new(), Host::new(), Host::new()];
    enter(&network, 1);
    let address = hosts[0].fabric.listen(SocketAddr::new(network.address(1), 7500)).unwrap();
    for node in [2, 3] {
        enter(&network, node);
        let index = usize::from(node) - 1;
        // A bridge that was just made may lose the first packets, and a handshake has two seconds.
        while hosts[index].key.is_none() {
            hosts[index].fabric.connect(address, b"").unwrap();
            until(&mut hosts, "a connection", |hosts| hosts[index].key.is_some() || !hosts[index].closed.is_empty());
            hosts[index].closed.clear();
        }
    }
    // The first host may have seen the end of a handshake that came too late.
    until(&mut hosts, "no half-open connection", |hosts| hosts[0].fabric.open_socket_count() == 2);
    hosts[0].closed.clear();
    hosts[1].read(1);
    hosts[2].read(1);
    until(&mut hosts, "a read over the bridge", |hosts| hosts[1..].iter().all(|host| host.done == [(1, Ok(0))]));

    network.cut(1, LinkFault::Both).unwrap();
    // The second host sends no more requests; the third one does.
    hosts[2].read(2);
    until(&mut hosts, "the ends", |hosts| hosts[1].closed.len() + hosts[2].closed.len() + hosts[0].closed.len() == 4);
    for host in &hosts {
        for (peer, reason) in &host.closed {
            assert!(matches!(reason, CloseReason::Lost(std::io::ErrorKind::TimedOut)), "{peer:?}: {reason:?}");
        }
        assert_eq!(host.fabric.open_socket_count(), 0);
    }
    assert_eq!(hosts[1].done, [(1, Ok(0))]);
    assert_eq!(hosts[2].done, [(1, Ok(0)), (2, Err(WorkError::Indeterminate))], "it may have been read, or not");
}
