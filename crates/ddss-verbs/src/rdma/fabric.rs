//! The fabric over one adapter: its state, and the `Fabric` methods.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ddss_core::limits::{HELLO_BYTES_MAX, MESSAGE_BYTES_MAX};
use rustix::event::epoll;

use super::config::RdmaConfig;
use super::connect;
use super::error::RdmaError;
use super::frame::{AtomicOp, Frame, PREAMBLE_BYTES, REQUEST_BYTES};
use super::peer::{Peer, Scratch, Stage};
use super::peer_resources::locked;
use super::peer_table::PeerTable;
use super::regions::Regions;
use super::send_queue::PendingWork;
use crate::events::Events;
use crate::fabric::{AtomicScope, Capabilities, Fabric, FabricError, PeerId, RegionId, Rights, Trust, Window};
use crate::limits::WORK_BYTES_MAX;
use crate::sys::rdma_core::{Adapter, AdapterFacts, Channel, CmEventChannel, Endpoint, PortFacts};
use crate::work::{LocalRange, PostError, PostErrorKind, RemoteRange, Work};

/// Private data of a request over iWARP: Soft-iWARP counts it, and four bytes of its own, in eight bits.
const REQUEST_BYTES_IWARP: usize = 251;

/// Fabric over one RDMA adapter. The crate documentation shows the use of a fabric.
pub struct Rdma {
    pub(super) peers: PeerTable,
    pub(super) listeners: Vec<Endpoint>,
    pub(super) regions: Regions,
    pub(super) channel: Arc<Channel>,
    pub(super) hub: Arc<CmEventChannel>,
    pub(super) adapter: Adapter,
    pub(super) facts: AdapterFacts,
    port: PortFacts,
    pub(super) config: RdmaConfig,
    /// Local address of outgoing connections.
    pub(super) source: Option<IpAddr>,
    epoll: OwnedFd,
    pub(super) scratch: Scratch,
    /// Peers that the next poll closes.
    pub(super) closing: Vec<PeerId>,
    pub(super) half_open: usize,
    pub(super) polls: u32,
    /// The next poll checks the clock, the connections and the device.
    pub(super) look: bool,
    /// Work was posted since the last poll.
    posted: bool,
    /// Reads of one batch are ordered by fences.
    fences: bool,
}

impl Rdma {
    /// Creates a fabric without peers, over the configured adapter, or over the first one with an active link.
    ///
    /// # Errors
    /// There is no such adapter; the message lists the existing ones.
    pub fn new(config: RdmaConfig) -> Result<Self, RdmaError> {
        super::regions::raise_lock_limit();
        let hub = CmEventChannel::new()?;
        let adapter = connect::choose(&hub, &config)?;
        let name = adapter.name();
        let refused = |what| {
            let device = name.clone();
            move |source: io::Error| RdmaError::System { what, device, source: locked(source) }
        };
        let facts = adapter.facts().map_err(refused("ask for the limits"))?;
        let port = connect::active_port(&adapter, &facts).ok_or_else(|| RdmaError::LinkDown(name.clone()))?;
        if config.atomics == AtomicScope::Adapter && !facts.has_atomics {
            return Err(RdmaError::NoAtomics(name));
        }
        let fences = config.fence_reads.unwrap_or(!facts.is_software);
        if fences && facts.is_software && facts.is_iwarp {
            return Err(RdmaError::NoFences(name));
        }
        let channel = Channel::new(&adapter).map_err(refused("make a completion channel"))?;
        let epoll = (|| -> io::Result<OwnedFd> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for descriptor in [channel.descriptor(), hub.descriptor(), adapter.descriptor()?] {
                epoll::add(&epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            Ok(epoll)
        })()
        .map_err(refused("watch the descriptors"))?;
        Ok(Self {
            peers: PeerTable::default(),
            listeners: Vec::new(),
            regions: Regions::default(),
            channel,
            hub,
            adapter,
            facts,
            port,
            source: config.address,
            config,
            epoll,
            scratch: Scratch::default(),
            closing: Vec::new(),
            half_open: 0,
            polls: 0,
            look: true,
            posted: false,
            fences,
        })
    }

    /// Returns the adapter's name.
    #[must_use]
    pub fn device(&self) -> String {
        self.adapter.name()
    }

    /// Returns true if the adapter uses iWARP; otherwise InfiniBand or RoCE.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.facts.is_iwarp
    }

    /// Returns the number of connections, including those being established or closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn adapter_atomics(&self) -> bool {
        self.config.atomics == AtomicScope::Adapter
    }

    pub(super) fn hello_bytes_max(&self) -> usize {
        let bytes = if self.facts.is_iwarp { REQUEST_BYTES_IWARP - PREAMBLE_BYTES } else { REQUEST_BYTES };
        bytes.min(HELLO_BYTES_MAX)
    }

    fn work_bytes_max(&self) -> u64 {
        WORK_BYTES_MAX.min(u64::from(self.port.message_bytes_max))
    }

    /// Posts one operation to the adapter, or queues it.
    fn take(&mut self, work: &Work<'_>, fenced: bool) -> Result<(), PostErrorKind> {
        let bytes_max = self.work_bytes_max();
        let peer = self.peers.get_mut(work.peer()).filter(|peer| !peer.closing).ok_or(PostErrorKind::UnknownPeer)?;
        match peer.stage {
            Stage::Up if peer.leaving.is_none() => {}
            Stage::Up | Stage::Ending(_) => return Err(PostErrorKind::UnknownPeer),
            _ => return Err(PostErrorKind::NotConnected),
        }
        if peer.traffic.is_full() {
            return Err(PostErrorKind::Busy);
        }
        let step = match *work {
            Work::Read { local, remote, .. } => {
                let local = prepare(peer, &self.regions, local, remote, bytes_max)?;
                PendingWork::Read { local, key: remote.key, address: remote.address, fenced }
            }
            Work::Write { local, remote, .. } => {
                let local = prepare(peer, &self.regions, local, remote, bytes_max)?;
                PendingWork::Write { local, key: remote.key, address: remote.address }
            }
            Work::CompareSwap { remote, compare, swap, .. } => {
                atomic(peer, remote, AtomicOp::CompareSwap { compare, swap })?
            }
            Work::FetchAdd { remote, add, .. } => atomic(peer, remote, AtomicOp::FetchAdd { add })?,
            Work::Send { tag, message, mode, .. } => {
                if message.len() > MESSAGE_BYTES_MAX {
                    return Err(PostErrorKind::TooLong);
                }
                if peer.traffic.plain && mode.invalidate.is_some() {
                    return Err(PostErrorKind::Unsupported);
                }
                let (solicited, invalidate) = (mode.solicited, mode.invalidate);
                let (queue, holdings) =
                    peer.endpoint.queue().zip(peer.holdings.as_ref()).ok_or(PostErrorKind::NotConnected)?;
                if peer.traffic.is_clear() && peer.traffic.can_send(queue) {
                    peer.traffic.send(queue, holdings, tag, Frame::Message { bytes: message, solicited, invalidate });
                    return Ok(());
                }
                PendingWork::Message { bytes: message.into(), solicited, invalidate }
            }
            Work::Immediate { data, solicited, .. } => {
                if peer.traffic.plain {
                    return Err(PostErrorKind::Unsupported);
                }
                PendingWork::Immediate { data, solicited }
            }
        };
        let (queue, holdings) = peer.endpoint.queue().zip(peer.holdings.as_ref()).ok_or(PostErrorKind::NotConnected)?;
        if peer.traffic.is_clear() && peer.traffic.can(queue, &step) {
            peer.traffic.go(queue, holdings, work.tag(), step);
        } else {
            peer.traffic.wait(work.tag(), step);
        }
        Ok(())
    }
}

type Prepared = (Arc<crate::sys::rdma_core::Registered>, u64, u32);

/// Checks both ends of a transfer and returns the local one as registered with the adapter.
fn prepare(
    peer: &mut Peer,
    regions: &Regions,
    local: LocalRange,
    remote: RemoteRange,
    bytes_max: u64,
) -> Result<Prepared, PostErrorKind> {
    let mapping = regions.get(local.region).ok_or(PostErrorKind::UnknownRegion)?;
    let end = local.offset.checked_add(local.bytes).ok_or(PostErrorKind::OutOfBounds)?;
    if end > mapping.bytes() as u64 || remote.address.checked_add(local.bytes).is_none() {
        return Err(PostErrorKind::OutOfBounds);
    }
    if local.bytes > bytes_max {
        return Err(PostErrorKind::TooLong);
    }
    let holdings = peer.holdings.as_mut().ok_or(PostErrorKind::NotConnected)?;
    match holdings.local(regions, local.region).ok_or(PostErrorKind::UnknownRegion)? {
        Ok(registered) => Ok((Arc::clone(registered), local.offset, local.bytes as u32)),
        Err(error) => {
            tracing::warn!(peer = %peer.id, region = %local.region, error = %locked(error), "cannot register memory with the adapter");
            Err(PostErrorKind::NotLocked)
        }
    }
}

fn atomic(peer: &Peer, remote: RemoteRange, change: AtomicOp) -> Result<PendingWork, PostErrorKind> {
    if !remote.address.is_multiple_of(8) {
        return Err(PostErrorKind::Unaligned);
    }
    if remote.address.checked_add(8).is_none() {
        return Err(PostErrorKind::OutOfBounds);
    }
    if peer.traffic.plain && !peer.traffic.adapter_atomics {
        return Err(PostErrorKind::Unsupported);
    }
    Ok(PendingWork::Atomic { key: remote.key, address: remote.address, change })
}

impl Fabric for Rdma {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "rdma",
            work_bytes_max: self.work_bytes_max(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            hello_bytes_max: self.hello_bytes_max(),
            reads_outstanding_max: usize::from(connect::reads(self.config.reads, self.facts.reads_outbound_max)),
            // The adapter reads memory independently of the home's threads.
            snapshot_bytes: 0,
            words_whole: true,
            atomics: self.config.atomics,
            reads_abandonable: false,
            reads_overlap: !self.fences,
            write_done_is_placed: !self.facts.is_iwarp,
            refusals_named: !self.facts.is_iwarp,
            guarded: false,
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.start_listening(address)
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        self.start_connect(address, hello)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        self.answer_yes(peer, hello)
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        self.answer_no(peer, reason)
    }

    fn close(&mut self, peer: PeerId) {
        if let Some(found) = self.peers.get_mut(peer)
            && !found.closing
            && !matches!(found.stage, Stage::Ending(_))
        {
            found.closing = true;
            self.closing.push(peer);
        }
    }

    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.regions.register(memory, trust, offset, bytes)
    }

    fn deregister(&mut self, region: RegionId) {
        if self.regions.deregister(region) {
            for peer in self.peers.iter_mut() {
                if let Some(holdings) = &mut peer.holdings {
                    holdings.forget(region);
                }
            }
        }
    }

    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let found = self.peers.get_mut(peer).ok_or(FabricError::UnknownPeer(peer))?;
        let holdings = found.holdings.as_mut().ok_or(FabricError::WrongState(peer))?;
        holdings.expose(&self.regions, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        if let Some(holdings) = self.peers.get_mut(peer).and_then(|peer| peer.holdings.as_mut()) {
            holdings.withdraw(key);
        }
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        self.posted = true;
        let mut before: Option<&Work<'_>> = None;
        for (index, work) in work.iter().enumerate() {
            // The order in which reads of one batch access memory is guaranteed.
            let follows = matches!(before, Some(Work::Read { peer, .. }) if *peer == work.peer());
            self.take(work, follows && self.fences).map_err(|kind| PostError { index, kind })?;
            before = Some(work);
        }
        Ok(())
    }

    fn abandon(&mut self, _peer: PeerId, _tag: u64) -> bool {
        // A posted operation cannot be recalled from the adapter.
        false
    }

    fn poll(&mut self, events: &mut Events) -> usize {
        let before = events.len();
        self.posted = false;
        self.drive(events);
        events.len() - before
    }

    fn arm(&mut self) -> bool {
        if self.posted || self.look || !self.closing.is_empty() {
            return false;
        }
        self.channel.drain();
        let mut quiet = true;
        for peer in self.peers.iter_mut() {
            if let Some(queue) = peer.endpoint.queue() {
                // The next poll detects a dead queue that cannot be armed.
                quiet &= queue.arm().unwrap_or(false);
            }
        }
        self.look = !quiet;
        quiet
    }

    fn disarm(&mut self) {
        self.look = true;
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.peers.iter().filter_map(|peer| self.deadline_of(peer)).min()
    }
}

impl fmt::Debug for Rdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rdma").field("device", &self.adapter).field("connections", &self.peers.len()).finish()
    }
}
