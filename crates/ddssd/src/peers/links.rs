//! Connections to the other nodes: state, memory windows and queued messages of each. `connect.rs` decides which side
//! connects and which connection wins.
//!
//! ```text
//!             connect                 Connected               Welcome
//!   Idle ───────────────► Connecting ───────► AwaitingWelcome ───────────► Up
//!    ▲                                                                     │▲
//!    └──────────────────────────── Closed ─────────────────────────────────┘│ Welcome
//!                                          Asked, accepted ──► Candidate ───┘
//! ```
//!
//! Both sides try to connect. If both try at once, the connection of the lower node number stays. Every message is
//! sealed (see `auth`). An incoming connection is authenticated by its first message that opens, and only then
//! replaces an older one: its hello could be a replay.

use super::handshake_worker::HandshakeWorker;
use crate::auth::{Channel, Initiator, SEAL_BYTES};
use crate::peers::send_queue::SendQueue;
use crate::peers::work_tag::Tag;
use crate::status::wall_us;
use arrayvec::ArrayVec;
use ddss_admin::ClusterKey;
use ddss_admin::PeerAddress;
use ddss_core::limits::{MESSAGE_BYTES_MAX, STAGING_BYTES};
use ddss_core::status::PeerRow;
use ddss_core::{Message, NodeId, PeerHello, RemoteWindow, Timestamp};
use ddss_ipc::SharedMemory;
use ddss_verbs::{Fabric, PeerId, PostErrorKind, RegionId, Rights, SendMode, Trust, Work};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A message before it is sealed.
pub(crate) type Plain = ArrayVec<u8, { Message::PLAIN_BYTES_MAX }>;

const _: () = assert!(Message::PLAIN_BYTES_MAX + SEAL_BYTES <= MESSAGE_BYTES_MAX);

#[derive(Debug)]
pub(crate) enum LinkState {
    Idle {
        retry_at: Instant,
    },
    Connecting {
        peer: PeerId,
        initiator: Initiator,
    },
    /// An authenticated outgoing connection; the peer has not yet sent its staging window.
    AwaitingWelcome {
        peer: PeerId,
        channel: Channel,
        since: Instant,
    },
    Up {
        peer: PeerId,
        channel: Channel,
        ours: bool,
        since: Instant,
    },
}

/// An incoming connection that has not authenticated itself yet.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) peer: PeerId,
    pub(crate) channel: Channel,
    pub(crate) run: u32,
    pub(crate) since: Instant,
}

/// State of one other node.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) state: LinkState,
    pub(crate) candidates: ArrayVec<Candidate, { Links::CANDIDATES_MAX }>,
    pub(crate) retry_after: Duration,
    pub(crate) run: u32,
    /// Peer's staging memory, which takes this node's puts.
    pub(crate) staging: RemoteWindow,
    /// Own staging memory, which takes the peer's puts.
    staging_memory: (SharedMemory, RegionId),
    /// Windows over this node's pool that the peer may read, by the place of the header.
    pub(crate) windows: HashMap<u64, RemoteWindow>,
    pub(crate) send_queue: SendQueue,
    /// True once the send queue was full: the connection is being closed, and further messages are dropped.
    pub(crate) has_overflowed: bool,
    pub(crate) has_logged_failure: bool,
    /// Time of the last change (connected, lost, or first known), in microseconds since 1970.
    pub(crate) since_us: u64,
}

/// Change of a link that the engine must learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkChange {
    Down(NodeId),
}

/// Effect of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivedMessage {
    /// A message of a connected node; the number of its bytes.
    Message(NodeId, usize),
    /// A node is connected; with `again`, its previous connection ended first.
    Connected {
        node: NodeId,
        clock: Timestamp,
        again: bool,
    },
    None,
}

/// Links to all other nodes, and the fabric that carries them.
pub(crate) struct Links {
    pub(super) fabric: Box<dyn Fabric>,
    pub(super) ours: PeerHello,
    /// Shard index, the same on this node and on its peers.
    pub(super) shard: u8,
    /// Cluster key; without it the node talks to no peer.
    pub(super) key: Option<ClusterKey>,
    /// Verifies incoming handshakes, if the fabric has no admission filter.
    pub(super) handshake_worker: Option<HandshakeWorker>,
    /// Links by node.
    pub(super) links: BTreeMap<NodeId, Link>,
    pub(super) by_peer: HashMap<PeerId, NodeId>,
    /// Nodes that left the cluster or were removed; a node is told so when it connects.
    pub(super) removed: BTreeSet<NodeId>,
    /// Messages that were sent or queued, and their bytes.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
}

impl Links {
    pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(20);
    pub(crate) const RETRY_LAST: Duration = Duration::from_secs(1);
    /// Age from which a connection gives way to a new one of the same run of the same node: the peer has lost the old
    /// one, and this side has not noticed yet.
    pub(crate) const SETTLED: Duration = Duration::from_secs(3);
    /// Time for an incoming connection to authenticate itself.
    pub(crate) const AUTHENTICATION_MAX: Duration = Duration::from_secs(5);
    /// Unauthenticated connections in the name of one node at a time.
    pub(crate) const CANDIDATES_MAX: usize = 4;
    /// Handshake results that one round of the progress thread takes.
    pub(crate) const HANDSHAKES_PER_ROUND: usize = 2;

    pub(crate) fn new(
        fabric: Box<dyn Fabric>,
        ours: PeerHello,
        shard: u8,
        key: Option<ClusterKey>,
        handshake_worker: Option<HandshakeWorker>,
    ) -> Self {
        let (links, by_peer, removed) = Default::default();
        Self { fabric, ours, shard, key, handshake_worker, links, by_peer, removed, sent: 0, sent_bytes: 0 }
    }

    pub(crate) fn fabric(&self) -> &dyn Fabric {
        self.fabric.as_ref()
    }

    pub(crate) fn fabric_mut(&mut self) -> &mut dyn Fabric {
        self.fabric.as_mut()
    }

    /// Adds a node with staging memory of its own, or updates its address.
    pub(crate) fn add(&mut self, member: &PeerAddress) -> Result<(), String> {
        if let Some(link) = self.links.get_mut(&member.node) {
            link.address = member.address;
            return Ok(());
        }
        self.removed.remove(&member.node);
        let memory = SharedMemory::create("ddss-staging", STAGING_BYTES).map_err(|error| error.to_string())?;
        let (offset, bytes) = (memory.offset() as u64, memory.len() as u64);
        let region = self.fabric.register(memory.descriptor(), Trust::Sealed, offset, bytes);
        let region = region.map_err(|error| error.to_string())?;
        let link = Link {
            node: member.node,
            address: member.address,
            state: LinkState::Idle { retry_at: Instant::now() },
            candidates: ArrayVec::new(),
            retry_after: Self::RETRY_FIRST,
            run: 0,
            staging: RemoteWindow::default(),
            staging_memory: (memory, region),
            windows: HashMap::new(),
            send_queue: SendQueue::default(),
            has_overflowed: false,
            has_logged_failure: false,
            since_us: wall_us(),
        };
        self.links.insert(member.node, link);
        Ok(())
    }

    /// Returns a status row for each node.
    pub(crate) fn rows(&self) -> impl Iterator<Item = PeerRow> + '_ {
        self.links.values().map(|link| PeerRow {
            node: link.node,
            connected: matches!(link.state, LinkState::Up { .. }),
            waiting: link.send_queue.len() as u32,
            windows: link.windows.len() as u32,
            since_us: link.since_us,
            address: link.address,
        })
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.links.keys().copied().collect()
    }

    /// Closes the connection of a node that the cluster has declared dead, so that pending work fails at once. The
    /// link is retried.
    pub(crate) fn close_connection(&mut self, node: NodeId) {
        if let Some((peer, _)) = self.connection_to(node) {
            self.fabric.close(peer);
        }
    }

    /// Records that a node is out of the cluster. Its link ends with the membership.
    pub(crate) fn mark_removed(&mut self, node: NodeId) {
        self.removed.insert(node);
    }

    /// Removes a node and closes all its connections.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let Some(link) = self.links.remove(&node) else { return };
        for (&peer, _) in self.by_peer.iter().filter(|&(_, &other)| other == node) {
            self.fabric.close(peer);
        }
        self.by_peer.retain(|_, other| *other != node);
        self.fabric.deregister(link.staging_memory.1);
    }

    /// Returns the connection and the staging window of a connected node.
    pub(crate) fn connection_to(&self, node: NodeId) -> Option<(PeerId, RemoteWindow)> {
        let link = self.links.get(&node)?;
        match link.state {
            LinkState::Up { peer, .. } => Some((peer, link.staging)),
            _ => None,
        }
    }

    /// Returns the local staging memory for a node's puts.
    pub(crate) fn staging_of(&self, node: NodeId) -> Option<&SharedMemory> {
        self.links.get(&node).map(|link| &link.staging_memory.0)
    }

    /// Opens a message into `plain` and applies it to the connection's state. Closes the connection of a peer whose
    /// message does not open.
    pub(crate) fn receive(&mut self, peer: PeerId, sealed: &[u8], plain: &mut [u8]) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            self.fabric.close(peer);
            return ReceivedMessage::None;
        };
        let opened = match &mut link.state {
            LinkState::Up { peer: current, channel, .. } if *current == peer => {
                channel.open(sealed, plain).map(|length| ReceivedMessage::Message(link.node, length))
            }
            LinkState::AwaitingWelcome { peer: current, channel, .. } if *current == peer => {
                channel.open(sealed, plain).map(|length| self.handle_welcome(peer, &plain[..length]))
            }
            _ => match link.candidates.iter_mut().find(|candidate| candidate.peer == peer) {
                Some(candidate) => candidate
                    .channel
                    .open(sealed, plain)
                    .map(|length| self.authenticate_candidate(peer, &plain[..length])),
                None => Ok(ReceivedMessage::None),
            },
        };
        opened.unwrap_or_else(|error| {
            tracing::warn!(%peer, %error, "closing a connection whose message does not open");
            self.fabric.close(peer);
            ReceivedMessage::None
        })
    }

    /// Sends a message, or queues it. Closes the connection of a peer with too many queued messages.
    pub(crate) fn send(&mut self, node: NodeId, plain: &Plain) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if matches!(link.state, LinkState::Up { .. }) {
            self.sent += 1;
            self.sent_bytes += plain.len() as u64;
            link.post(self.fabric.as_mut(), plain);
        }
    }

    /// Sends queued messages while there is room. Returns true if some are left.
    pub(crate) fn flush(&mut self) -> bool {
        let mut waits = false;
        for link in self.links.values_mut().filter(|link| !link.send_queue.is_empty()) {
            let (LinkState::Up { peer, .. } | LinkState::AwaitingWelcome { peer, .. }) = link.state else { continue };
            while link.send_queue.front().is_some_and(|wire| try_send(self.fabric.as_mut(), peer, wire)) {
                link.send_queue.pop();
            }
            waits |= !link.send_queue.is_empty();
        }
        waits
    }

    /// Returns the window of a node over the segment whose header is at `at`, which is `offset` in its area. Creates
    /// it at the first call.
    pub(crate) fn window(
        &mut self,
        node: NodeId,
        area: RegionId,
        (at, offset): (u64, u64),
        bytes: u64,
    ) -> Option<RemoteWindow> {
        let link = self.links.get_mut(&node)?;
        let LinkState::Up { peer, .. } = link.state else { return None };
        if let Some(&window) = link.windows.get(&at) {
            return Some(window);
        }
        match self.fabric.expose(peer, area, offset, bytes, Rights::READ) {
            Ok(window) => {
                let window = RemoteWindow { key: window.key, base: window.base, bytes: window.bytes };
                link.windows.insert(at, window);
                Some(window)
            }
            Err(error) => {
                tracing::warn!(node = node.0, %error, "cannot open a window");
                None
            }
        }
    }

    /// Closes every window over the segment whose header is at `at`.
    pub(crate) fn withdraw(&mut self, at: u64) {
        for link in self.links.values_mut() {
            if let (Some(window), LinkState::Up { peer, .. }) = (link.windows.remove(&at), &link.state) {
                self.fabric.withdraw(*peer, window.key);
            }
        }
    }

    /// Closes the connection of a node that violated the protocol.
    pub(crate) fn close_for_violation(&mut self, node: NodeId) {
        if let Some((peer, _)) = self.connection_to(node) {
            tracing::warn!(node = node.0, "protocol violation: closing the peer's connection");
            self.fabric.close(peer);
        }
    }

    /// Closes every connection.
    pub(crate) fn close_all(&mut self) {
        for &peer in self.by_peer.keys() {
            self.fabric.close(peer);
        }
    }
}

impl Link {
    pub(crate) fn next_backoff(&mut self) -> Duration {
        let now = self.retry_after;
        self.retry_after = (now * 2).min(Links::RETRY_LAST);
        now
    }

    /// Exposes the staging memory for one connection of the peer.
    pub(crate) fn expose_staging(&self, fabric: &mut dyn Fabric, peer: PeerId) -> Option<RemoteWindow> {
        match fabric.expose(peer, self.staging_memory.1, 0, STAGING_BYTES as u64, Rights::WRITE) {
            Ok(window) => Some(RemoteWindow { key: window.key, base: window.base, bytes: window.bytes }),
            Err(error) => {
                tracing::warn!(node = self.node.0, %error, "cannot create staging memory for the peer");
                fabric.close(peer);
                None
            }
        }
    }

    /// Seals a message for the current connection, in sending order.
    pub(crate) fn post(&mut self, fabric: &mut dyn Fabric, plain: &[u8]) {
        let (LinkState::Up { peer, channel, .. } | LinkState::AwaitingWelcome { peer, channel, .. }) = &mut self.state
        else {
            return;
        };
        let peer = *peer;
        if self.has_overflowed {
            return;
        }
        let mut sealed = [0; MESSAGE_BYTES_MAX];
        let Ok(length) = channel.seal(plain, &mut sealed) else {
            // The nonce counter is exhausted, after 2^64 messages.
            return fabric.close(peer);
        };
        let wire = &sealed[..length];
        let is_sent = self.send_queue.is_empty() && try_send(fabric, peer, wire);
        if !is_sent && !self.send_queue.push(wire) {
            self.has_overflowed = true;
            tracing::warn!(node = self.node.0, "the peer reads no messages: closing its connection");
            fabric.close(peer);
        }
    }
}

/// Posts a message. Returns false if it has to wait. A message that can never be sent is dropped with its connection.
fn try_send(fabric: &mut dyn Fabric, peer: PeerId, wire: &[u8]) -> bool {
    let work = Work::Send { peer, tag: Tag::Send.to_bits(), message: wire, mode: SendMode::default() };
    !matches!(fabric.post(&[work]), Err(error) if matches!(error.kind, PostErrorKind::Busy | PostErrorKind::NotConnected))
}
