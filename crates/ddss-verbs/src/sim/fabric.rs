//! A node of a simulated network.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::peer::{Context, Peer, Pending, Stage, draw_piece_bytes};
use super::state::{NetworkState, Packet, SharedState, SimConfig};
use crate::events::{CloseReason, Events, WorkError};
use crate::fabric::{AtomicScope, Capabilities, Fabric, FabricError, Rights, Trust, Window};
use crate::id::{PeerId, RegionId};
use crate::iwarp::AtomicKind;
use crate::limits::{BACKLOG_MAX, HELLO_BYTES_MAX, PEERS_MAX, WORK_BYTES_MAX};
use crate::memory::{KeySource, RegionTable, Windows};
use crate::parts::Parts;
use crate::work::{LocalRange, PostError, PostErrorKind, RemoteRange, Work};

/// A node of a simulated network.
pub struct Sim {
    net: SharedState,
    node: usize,
    start: Instant,
    /// Always readable: a simulation never waits.
    descriptor: OwnedFd,
    memory: RegionTable,
    keys: KeySource,
    peers: Vec<Peer>,
    closing: Vec<(usize, CloseReason)>,
    abandoned: Vec<(PeerId, u64)>,
    ids: u64,
}

impl Sim {
    pub(super) fn new(net: SharedState, node: usize, seed: u64) -> Self {
        let descriptor = eventfd(1, EventfdFlags::CLOEXEC).expect("a test has a descriptor left");
        Self {
            net,
            node,
            start: Instant::now(),
            descriptor,
            memory: RegionTable::default(),
            keys: KeySource::seeded(seed),
            peers: Vec::new(),
            closing: Vec::new(),
            abandoned: Vec::new(),
            ids: 0,
        }
    }

    pub(super) fn node(&self) -> usize {
        self.node
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(id.index as usize)?;
        (peer.id == id && peer.stage != Stage::Closed).then_some(peer)
    }

    fn add(&mut self, link: usize, end: usize, stage: Stage, net: &NetworkState) -> PeerId {
        let id = PeerId { index: self.peers.len() as u32, generation: 1 };
        let deadline = Some(net.now + net.config.handshake_timeout);
        self.peers.push(Peer {
            id,
            link,
            end,
            stage,
            windows: Windows::default(),
            pending: Default::default(),
            sent: Default::default(),
            sequence: 0,
            deadline,
        });
        id
    }

    fn post_one(&mut self, work: &Work<'_>) -> Result<(), PostErrorKind> {
        let id = work.peer();
        let closing = self.closing.iter().any(|(index, _)| *index == id.index as usize);
        let peer = self
            .peers
            .get_mut(id.index as usize)
            .filter(|peer| peer.id == id && peer.stage != Stage::Closed && !closing)
            .ok_or(PostErrorKind::UnknownPeer)?;
        if peer.stage != Stage::Open {
            return Err(PostErrorKind::NotConnected);
        }
        let mut net = self.net.lock();
        if net.links[peer.link][1 - peer.end].inbox.len() >= 2 * BACKLOG_MAX || peer.pending.len() >= BACKLOG_MAX {
            return Err(PostErrorKind::Busy);
        }
        self.ids += 1;
        peer.post(work, self.ids, &mut net, &mut self.memory)
    }
}

impl Peer {
    fn post(
        &mut self,
        work: &Work<'_>,
        id: u64,
        net: &mut NetworkState,
        memory: &mut RegionTable,
    ) -> Result<(), PostErrorKind> {
        match *work {
            Work::Read { tag, local, remote, .. } => {
                check(local, remote, memory)?;
                memory.hold(local.region);
                let sequence = self.expect(id, tag, Some(local.region), local.offset);
                let RemoteRange { key, address } = remote;
                self.send(Packet::Read { id, sequence, key, address, bytes: local.bytes }, net);
            }
            Work::Write { tag, local, remote, .. } => {
                check(local, remote, memory)?;
                let mut data = vec![0; local.bytes as usize];
                memory.mapping(local.region).copy_out(local.offset as usize, &mut data);
                let mut at = 0;
                while at < data.len() {
                    let bytes = draw_piece_bytes((data.len() - at) as u64, net) as usize;
                    let (key, address) = (remote.key, remote.address + at as u64);
                    self.send(Packet::Write { key, address, data: data[at..at + bytes].to_vec() }, net);
                    at += bytes;
                }
                self.sent.push_back(tag);
            }
            Work::CompareSwap { tag, remote, compare, swap, .. } => {
                let ones = u64::MAX;
                let kind = AtomicKind::CompareSwap { swap, swap_mask: ones, compare, compare_mask: ones };
                self.post_atomic(id, tag, remote, kind, net)?;
            }
            Work::FetchAdd { tag, remote, add, .. } => {
                self.post_atomic(id, tag, remote, AtomicKind::FetchAdd { add, mask: 0 }, net)?;
            }
            Work::Send { tag, message, mode, .. } => {
                if message.len() > net.config.message_bytes_max {
                    return Err(PostErrorKind::TooLong);
                }
                self.send(Packet::Send { data: message.to_vec(), mode }, net);
                self.sent.push_back(tag);
            }
            Work::Immediate { tag, data, solicited, .. } => {
                self.send(Packet::Immediate { data, solicited }, net);
                self.sent.push_back(tag);
            }
        }
        Ok(())
    }

    fn post_atomic(
        &mut self,
        id: u64,
        tag: u64,
        remote: RemoteRange,
        kind: AtomicKind,
        net: &mut NetworkState,
    ) -> Result<(), PostErrorKind> {
        if !remote.address.is_multiple_of(8) {
            return Err(PostErrorKind::Unaligned);
        }
        let sequence = self.expect(id, tag, None, 0);
        self.send(Packet::Atomic { id, sequence, key: remote.key, address: remote.address, kind }, net);
        Ok(())
    }

    fn expect(&mut self, id: u64, tag: u64, region: Option<RegionId>, offset: u64) -> u32 {
        self.sequence += 1;
        self.pending.push_back(Pending { id, tag: Some(tag), sequence: self.sequence, region, offset });
        self.sequence
    }
}

fn check(local: LocalRange, remote: RemoteRange, memory: &RegionTable) -> Result<(), PostErrorKind> {
    if local.bytes > WORK_BYTES_MAX {
        return Err(PostErrorKind::TooLong);
    }
    match memory.covers(local.region, local.offset, local.bytes) {
        None => return Err(PostErrorKind::UnknownRegion),
        Some(false) => return Err(PostErrorKind::OutOfBounds),
        Some(true) => {}
    }
    remote.address.checked_add(local.bytes).map(|_| ()).ok_or(PostErrorKind::OutOfBounds)
}

impl Fabric for Sim {
    fn capabilities(&self) -> Capabilities {
        let SimConfig { message_bytes_max, snapshot_bytes, .. } = self.net.lock().config;
        Capabilities {
            name: "sim",
            work_bytes_max: WORK_BYTES_MAX,
            message_bytes_max,
            hello_bytes_max: HELLO_BYTES_MAX,
            reads_outstanding_max: BACKLOG_MAX,
            snapshot_bytes,
            has_atomic_words: true,
            atomics: AtomicScope::Thread,
            can_abandon_reads: true,
            reads_overlap: true,
            has_remote_write_completion: false,
            can_report_refusals: true,
            has_admission_filter: false,
            can_seal: false,
            parts: Parts::of_simulation(),
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.net.lock().listen(self.node, address)
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        if hello.len() > HELLO_BYTES_MAX {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        if self.peers.iter().filter(|peer| peer.stage != Stage::Closed).count() >= PEERS_MAX {
            return Err(FabricError::Full("peer"));
        }
        let net = self.net.clone();
        let mut net = net.lock();
        let link = net.connect(self.node, address, hello);
        Ok(self.add(link, 0, Stage::Connecting, &net))
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        if hello.len() > HELLO_BYTES_MAX {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        let net = self.net.clone();
        let found = self.peer(peer).ok_or(FabricError::UnknownPeer(peer))?;
        if found.stage != Stage::AwaitAccept || found.deadline.is_none() {
            return Err(FabricError::WrongState(peer));
        }
        found.deadline = None;
        found.send(Packet::Accept(hello.to_vec()), &mut net.lock());
        Ok(())
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        if reason.len() > HELLO_BYTES_MAX {
            return Err(FabricError::HelloTooLong(reason.len()));
        }
        let net = self.net.clone();
        let found = self.peer(peer).ok_or(FabricError::UnknownPeer(peer))?;
        if found.stage != Stage::AwaitAccept || found.deadline.is_none() {
            return Err(FabricError::WrongState(peer));
        }
        found.send(Packet::Reject(reason.to_vec()), &mut net.lock());
        self.closing.push((peer.index as usize, CloseReason::Local));
        Ok(())
    }

    fn close(&mut self, peer: PeerId) {
        if self.peer(peer).is_some() {
            self.closing.push((peer.index as usize, CloseReason::Local));
        }
    }

    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.memory.register(memory, trust, offset, bytes)
    }

    fn deregister(&mut self, region: RegionId) {
        self.memory.deregister(region);
    }

    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let found = self
            .peers
            .get_mut(peer.index as usize)
            .filter(|found| found.id == peer && found.stage != Stage::Closed)
            .ok_or(FabricError::UnknownPeer(peer))?;
        found.windows.expose(&self.memory, &mut self.keys, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        if let Some(found) = self.peer(peer) {
            found.windows.withdraw(key);
        }
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        for (index, work) in work.iter().enumerate() {
            self.post_one(work).map_err(|kind| PostError { index, kind })?;
        }
        Ok(())
    }

    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool {
        let Some(found) = self.peer(peer) else { return false };
        let read = found.pending.iter_mut().find(|pending| pending.tag == Some(tag) && pending.region.is_some());
        let Some(read) = read else { return false };
        read.tag = None;
        if let Some(region) = read.region.take() {
            self.memory.release(region);
        }
        self.abandoned.push((peer, tag));
        true
    }

    fn poll(&mut self, events: &mut Events) -> usize {
        let before = events.len();
        let net = self.net.clone();
        let mut net = net.lock();
        for (peer, tag) in self.abandoned.drain(..) {
            events.push_done(peer, tag, Err(WorkError::Abandoned));
        }
        for (index, reason) in std::mem::take(&mut self.closing) {
            let peer = &mut self.peers[index];
            peer.send(Packet::Close(CloseReason::ClosedByPeer), &mut net);
            peer.close(reason, &[], None, &mut Context { net: &mut net, memory: &mut self.memory, events });
        }
        while let Some(request) = net.take_connect_request(self.node) {
            let id = self.add(request.link, 1, Stage::AwaitAccept, &net);
            events.push_connect_request(id, request.from, &request.hello);
        }
        for peer in &mut self.peers {
            let cx = &mut Context { net: &mut net, memory: &mut self.memory, events };
            peer.step(cx);
        }
        events.len() - before
    }

    fn arm(&mut self) -> bool {
        if !self.closing.is_empty() || !self.abandoned.is_empty() {
            return false;
        }
        let net = self.net.lock();
        let asked = net
            .connect_requests
            .get(&self.node)
            .and_then(|connect_requests| connect_requests.front())
            .is_some_and(|request| request.due <= net.now);
        let due = |peer: &Peer| {
            let inbox = &net.links[peer.link][peer.end].inbox;
            !peer.sent.is_empty() || inbox.front().is_some_and(|packet| packet.0 <= net.now)
        };
        !asked && !self.peers.iter().any(due)
    }

    fn disarm(&mut self) {}

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let net = self.net.lock();
        let packets = self.peers.iter().filter_map(|peer| net.links[peer.link][peer.end].inbox.front().map(|p| p.0));
        let connect_requests = net
            .connect_requests
            .get(&self.node)
            .and_then(|connect_requests| connect_requests.front())
            .map(|request| request.due);
        let open = self.peers.iter().filter(|peer| peer.stage != Stage::Closed);
        packets.chain(connect_requests).chain(open.filter_map(|peer| peer.deadline)).min().map(|due| self.start + due)
    }
}

impl Peer {
    /// Processes everything that is due.
    fn step(&mut self, cx: &mut Context<'_>) {
        if self.stage == Stage::Closed {
            return;
        }
        if self.stage == Stage::AwaitAccept && self.deadline.is_none() {
            self.stage = Stage::Open;
            cx.events.push_connected(self.id, &[]);
        }
        for tag in self.sent.drain(..) {
            cx.events.push_done(self.id, tag, Ok(0));
        }
        if self.deadline.is_some_and(|deadline| deadline <= cx.net.now) {
            self.send(Packet::Close(CloseReason::ClosedByPeer), cx.net);
            self.close(CloseReason::TimedOut, &[], None, cx);
        }
        while self.stage != Stage::Closed
            && let Some(packet) = cx.net.receive(self.link, self.end)
        {
            self.receive(packet, cx);
        }
    }
}
