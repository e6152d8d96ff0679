//! The fabric over one adapter: its state, and the `Fabric` methods.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;

use super::adapter_selection::{active_port, reads, select_adapter};
use super::config::RdmaConfig;
use super::error::RdmaError;
use super::frame::{AtomicOp, Frame, PREAMBLE_BYTES, REQUEST_BYTES};
use super::peer::{Peer, Scratch, Stage};
use super::peer_resources::explain_lock_limit;
use super::peer_table::PeerTable;
use super::regions::Regions;
use super::send_queue::PendingWork;
use crate::events::Events;
use crate::fabric::{AtomicScope, Capabilities, Fabric, FabricError, Rights, Trust, Window};
use crate::id::{PeerId, RegionId};
use crate::limits::{HELLO_BYTES_MAX, WORK_BYTES_MAX, is_message_limit};
use crate::parts::Parts;
use crate::sys::rdma_core::{Adapter, AdapterAttributes, Channel, CmEventChannel, Endpoint, PortState};
use crate::work::{LocalRange, PostError, PostErrorKind, RemoteRange, Work};

/// Private data of a request over iWARP: Soft-iWARP counts it, and four bytes of its own, in eight bits.
const REQUEST_BYTES_IWARP: usize = 251;

/// Fabric over one RDMA adapter. The crate documentation shows the use of a fabric.
pub struct Rdma {
    pub(super) peers: PeerTable,
    pub(super) listeners: Vec<Endpoint>,
    pub(super) regions: Regions,
    pub(super) channel: Arc<Channel>,
    pub(super) cm_events: Arc<CmEventChannel>,
    pub(super) adapter: Adapter,
    pub(super) attributes: AdapterAttributes,
    port: PortState,
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
    pub(super) check_due: bool,
    /// Work was posted since the last poll.
    posted: bool,
    /// Reads of one batch are ordered by fences.
    has_fences: bool,
}

impl Rdma {
    /// Creates a fabric without peers, over the configured adapter, or over the first one with an active link.
    ///
    /// # Errors
    /// There is no such adapter; the message lists the existing ones.
    pub fn new(config: RdmaConfig) -> Result<Self, RdmaError> {
        if !is_message_limit(config.message_bytes_max) {
            return Err(RdmaError::MessageLimit(config.message_bytes_max));
        }
        super::regions::raise_lock_limit();
        let cm_events = CmEventChannel::new()?;
        let adapter = select_adapter(&cm_events, &config)?;
        let name = adapter.name();
        let refused = |what| {
            let device = name.clone();
            move |source: io::Error| RdmaError::System { what, device, source: explain_lock_limit(source) }
        };
        let attributes = adapter.attributes().map_err(refused("query the limits"))?;
        let port = active_port(&adapter, &attributes).ok_or_else(|| RdmaError::LinkDown(name.clone()))?;
        if config.atomics == AtomicScope::Adapter && !attributes.has_atomics {
            return Err(RdmaError::NoAtomics(name));
        }
        let has_fences = config.fence_reads.unwrap_or(!attributes.is_software);
        if has_fences && attributes.is_software && attributes.is_iwarp {
            return Err(RdmaError::NoFences(name));
        }
        let channel = Channel::new(&adapter).map_err(refused("create a completion channel"))?;
        let epoll = (|| -> io::Result<OwnedFd> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for descriptor in [channel.descriptor(), cm_events.descriptor(), adapter.descriptor()?] {
                epoll::add(&epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            Ok(epoll)
        })()
        .map_err(refused("add descriptors to epoll"))?;
        Ok(Self {
            peers: PeerTable::new(),
            listeners: Vec::new(),
            regions: Regions::new(),
            channel,
            cm_events,
            adapter,
            attributes,
            port,
            source: config.address,
            config,
            epoll,
            scratch: Scratch::default(),
            closing: Vec::new(),
            half_open: 0,
            polls: 0,
            check_due: true,
            posted: false,
            has_fences,
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
        self.attributes.is_iwarp
    }

    /// Returns the number of connections, including those being established or closed.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn adapter_atomics(&self) -> bool {
        self.config.atomics == AtomicScope::Adapter
    }

    pub(super) fn hello_bytes_max(&self) -> usize {
        let bytes = if self.attributes.is_iwarp { REQUEST_BYTES_IWARP - PREAMBLE_BYTES } else { REQUEST_BYTES };
        bytes.min(HELLO_BYTES_MAX)
    }

    fn work_bytes_max(&self) -> u64 {
        WORK_BYTES_MAX.min(u64::from(self.port.message_bytes_max))
    }

    /// Posts one operation to the adapter, or queues it.
    fn post_one(&mut self, work: &Work<'_>, fenced: bool) -> Result<(), PostErrorKind> {
        let bytes_max = self.work_bytes_max();
        let peer = self.peers.get_mut(work.peer()).filter(|peer| !peer.closing).ok_or(PostErrorKind::UnknownPeer)?;
        match peer.stage {
            Stage::Up if peer.violation.is_none() => {}
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
                if message.len() > self.config.message_bytes_max {
                    return Err(PostErrorKind::TooLong);
                }
                if peer.traffic.is_plain && mode.invalidate.is_some() {
                    return Err(PostErrorKind::Unsupported);
                }
                let (solicited, invalidate) = (mode.solicited, mode.invalidate);
                let (queue, resources) =
                    peer.endpoint.queue().zip(peer.resources.as_ref()).ok_or(PostErrorKind::NotConnected)?;
                if peer.traffic.has_no_backlog() && peer.traffic.can_send(queue) {
                    peer.traffic.send(queue, resources, tag, Frame::Message { bytes: message, solicited, invalidate });
                    return Ok(());
                }
                PendingWork::Message { bytes: message.into(), solicited, invalidate }
            }
            Work::Immediate { data, solicited, .. } => {
                if peer.traffic.is_plain {
                    return Err(PostErrorKind::Unsupported);
                }
                PendingWork::Immediate { data, solicited }
            }
        };
        let (queue, resources) =
            peer.endpoint.queue().zip(peer.resources.as_ref()).ok_or(PostErrorKind::NotConnected)?;
        if peer.traffic.has_no_backlog() && peer.traffic.can_post(queue, &step) {
            peer.traffic.post(queue, resources, work.tag(), step);
        } else {
            peer.traffic.enqueue(work.tag(), step);
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
    let resources = peer.resources.as_mut().ok_or(PostErrorKind::NotConnected)?;
    match resources.local(regions, local.region).ok_or(PostErrorKind::UnknownRegion)? {
        Ok(registered) => Ok((Arc::clone(registered), local.offset, local.bytes as u32)),
        Err(error) => {
            tracing::warn!(peer = %peer.id, region = %local.region, error = %explain_lock_limit(error), "cannot register memory with the adapter");
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
    if peer.traffic.is_plain && !peer.traffic.adapter_atomics {
        return Err(PostErrorKind::Unsupported);
    }
    Ok(PendingWork::Atomic { key: remote.key, address: remote.address, change })
}

impl Fabric for Rdma {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "rdma",
            work_bytes_max: self.work_bytes_max(),
            message_bytes_max: self.config.message_bytes_max,
            hello_bytes_max: self.hello_bytes_max(),
            reads_outstanding_max: usize::from(reads(
                self.config.reads_outstanding_max,
                self.attributes.reads_outbound_max,
            )),
            // The adapter reads memory independently of the home's threads.
            snapshot_bytes: 0,
            has_atomic_words: true,
            atomics: self.config.atomics,
            can_abandon_reads: false,
            reads_overlap: !self.has_fences,
            has_remote_write_completion: !self.attributes.is_iwarp,
            can_report_refusals: !self.attributes.is_iwarp,
            has_admission_filter: false,
            can_seal: false,
            parts: Parts::of_adapter(self.attributes.is_iwarp),
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.start_listening(address)
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        self.start_connect(address, hello)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        self.accept_request(peer, hello)
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        self.reject_request(peer, reason)
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
                if let Some(resources) = &mut peer.resources {
                    resources.forget(region);
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
        let resources = found.resources.as_mut().ok_or(FabricError::WrongState(peer))?;
        resources.expose(&self.regions, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        if let Some(resources) = self.peers.get_mut(peer).and_then(|peer| peer.resources.as_mut()) {
            resources.withdraw(key);
        }
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        self.posted = true;
        let mut before: Option<&Work<'_>> = None;
        for (index, work) in work.iter().enumerate() {
            // The order in which reads of one batch access memory is guaranteed.
            let follows = matches!(before, Some(Work::Read { peer, .. }) if *peer == work.peer());
            self.post_one(work, follows && self.has_fences).map_err(|kind| PostError { index, kind })?;
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
        self.poll_once(events);
        events.len() - before
    }

    fn arm(&mut self) -> bool {
        if self.posted || self.check_due || !self.closing.is_empty() {
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
        self.check_due = !quiet;
        quiet
    }

    fn disarm(&mut self) {
        self.check_due = true;
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
