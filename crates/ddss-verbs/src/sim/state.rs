//! State of the simulated network: packets, each with its time of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use crate::events::CloseReason;
use crate::iwarp::AtomicKind;
use crate::limits::{MESSAGE_BYTES_DEFAULT, is_message_limit};
use crate::terminate_code::TerminateCode;
use crate::work::SendMode;

/// Configuration of a simulated network.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// Seed of everything random.
    pub seed: u64,
    /// Minimum delay of a packet.
    pub delay_min: Duration,
    /// Maximum delay of a packet.
    pub delay_max: Duration,
    /// Reads up to this length are taken in one go; larger reads are torn into pieces of any size.
    pub snapshot_bytes: u64,
    /// Bytes of the longest message: a power of two from 512 to 65,536.
    pub message_bytes_max: usize,
    /// Time after which an unanswered connection request fails.
    pub handshake_timeout: Duration,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            delay_min: Duration::from_micros(2),
            delay_max: Duration::from_micros(50),
            snapshot_bytes: 4096,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            handshake_timeout: Duration::from_secs(2),
        }
    }
}

/// Packet from one end to the other.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Accept(Vec<u8>),
    Reject(Vec<u8>),
    Close(CloseReason),
    Write { key: u32, address: u64, data: Vec<u8> },
    Read { id: u64, sequence: u32, key: u32, address: u64, bytes: u64 },
    Data { id: u64, data: Vec<u8>, last: bool },
    Atomic { id: u64, sequence: u32, key: u32, address: u64, kind: AtomicKind },
    AtomicReply { id: u64, value: u64 },
    Send { data: Vec<u8>, mode: SendMode },
    Immediate { data: [u8; 8], solicited: bool },
    Terminate { fault: TerminateCode, named_segment: Option<u32> },
}

/// One end of a connection: its node, and the packets in flight to it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) inbox: VecDeque<(Duration, Packet)>,
    pub(super) is_closed: bool,
}

/// A connection request in flight.
#[derive(Debug)]
pub(super) struct ConnectRequest {
    pub(super) due: Duration,
    pub(super) link: usize,
    pub(super) from: SocketAddr,
    pub(super) hello: Vec<u8>,
}

/// Packets in flight, listeners and virtual time.
#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) config: SimConfig,
    pub(super) now: Duration,
    random: SplitMix64,
    pub(super) links: Vec<[End; 2]>,
    listeners: BTreeMap<SocketAddr, usize>,
    pub(super) connect_requests: BTreeMap<usize, VecDeque<ConnectRequest>>,
    nodes: usize,
    killed: Vec<usize>,
    port: u16,
}

/// The network's state, shared by its nodes.
#[derive(Clone, Debug)]
pub(super) struct SharedState(Arc<Mutex<NetworkState>>);

impl SharedState {
    pub(super) fn new(config: SimConfig) -> Self {
        assert!(is_message_limit(config.message_bytes_max), "message_bytes_max of {}", config.message_bytes_max);
        Self(Arc::new(Mutex::new(NetworkState::new(config))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkState {
    pub(super) fn new(config: SimConfig) -> Self {
        let random = SplitMix64::seed_from_u64(config.seed);
        Self {
            config,
            now: Duration::ZERO,
            random,
            links: Vec::new(),
            listeners: BTreeMap::new(),
            connect_requests: BTreeMap::new(),
            nodes: 0,
            killed: Vec::new(),
            port: 1024,
        }
    }

    /// Counts a new node; returns its index and seed.
    pub(super) fn add_node(&mut self) -> (usize, u64) {
        let node = self.nodes;
        self.nodes += 1;
        (node, self.random())
    }

    /// Breaks every connection of a node, and forgets what it listens to.
    pub(super) fn kill(&mut self, node: usize) {
        self.killed.push(node);
        self.listeners.retain(|_, owner| *owner != node);
        self.connect_requests.remove(&node);
        for link in 0..self.links.len() {
            if self.links[link].iter().any(|end| end.node == node) {
                self.break_link(link);
            }
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn delay(&mut self) -> Duration {
        let (min, max) = (self.config.delay_min, self.config.delay_max.max(self.config.delay_min));
        let span = (max - min).as_nanos() as u64 + 1;
        min + Duration::from_nanos(self.random() % span)
    }

    pub(super) fn listen(&mut self, node: usize, mut address: SocketAddr) -> std::io::Result<SocketAddr> {
        if address.port() == 0 {
            self.port += 1;
            address.set_port(self.port);
        }
        if self.listeners.contains_key(&address) {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        self.listeners.insert(address, node);
        Ok(address)
    }

    /// Creates a connection; returns its link. Without a listener the connecting end receives a refusal.
    pub(super) fn connect(&mut self, node: usize, address: SocketAddr, hello: &[u8]) -> usize {
        let link = self.links.len();
        let target = self.listeners.get(&address).copied();
        let end = |node| End { node, inbox: VecDeque::new(), is_closed: false };
        self.links.push([end(node), end(target.unwrap_or(usize::MAX))]);
        let due = self.now + self.delay();
        if let Some(target) = target {
            let from = SocketAddr::from((Ipv4Addr::LOCALHOST, node as u16 + 1));
            let connect_requests = self.connect_requests.entry(target).or_default();
            let due = connect_requests.back().map_or(due, |last| last.due.max(due));
            connect_requests.push_back(ConnectRequest { due, link, from, hello: hello.to_vec() });
        } else {
            let refused = CloseReason::Unreachable(std::io::ErrorKind::ConnectionRefused);
            self.links[link][0].inbox.push_back((due, Packet::Close(refused)));
            self.links[link][1].is_closed = true;
        }
        link
    }

    /// Takes the next connection request for a node, if it is due.
    pub(super) fn take_connect_request(&mut self, node: usize) -> Option<ConnectRequest> {
        let now = self.now;
        let connect_requests = self.connect_requests.get_mut(&node)?;
        if connect_requests.front()?.due > now {
            return None;
        }
        connect_requests.pop_front()
    }

    /// Sends to the other end, behind all packets in flight there.
    pub(super) fn send(&mut self, link: usize, to: usize, packet: Packet) {
        let due = self.now + self.delay();
        let end = &mut self.links[link][to];
        if end.is_closed {
            return;
        }
        let due = end.inbox.back().map_or(due, |last| last.0.max(due));
        end.inbox.push_back((due, packet));
    }

    /// Takes the next packet for an end, if it is due.
    pub(super) fn receive(&mut self, link: usize, end: usize) -> Option<Packet> {
        let now = self.now;
        let inbox = &mut self.links[link][end].inbox;
        if inbox.front()?.0 > now {
            return None;
        }
        inbox.pop_front().map(|packet| packet.1)
    }

    pub(super) fn break_link(&mut self, link: usize) {
        for end in 0..2 {
            let arrive = self.random() as usize;
            let inbox = &mut self.links[link][end].inbox;
            let arriving = arrive % (inbox.len() + 1);
            inbox.truncate(arriving);
            let reset = Packet::Close(CloseReason::Lost(std::io::ErrorKind::ConnectionReset));
            self.send(link, end, reset);
            if self.killed.contains(&self.links[link][end].node) {
                self.links[link][end].inbox.clear();
            }
        }
        for end in &mut self.links[link] {
            end.is_closed = true;
        }
    }
}
