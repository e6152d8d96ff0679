//! The other nodes: how each is reached, the windows that it may use, the messages that wait for room. Who connects
//! to whom and how two nodes meet is in `connect.rs`.
//!
//! ```text
//!             connect                 Connected               Welcome
//!   Idle ───────────────► Connecting ───────────► Meeting ───────────────► Up
//!    ▲                                                                     │▲
//!    └──────────────────────────── Closed ─────────────────────────────────┘│ Welcome
//!                                          Asked, accepted ──► Candidate ───┘
//! ```
//!
//! Both sides try. Where both try at once the connection of the lower node stays. Every message is sealed (see
//! `trust`); who connected to us is believed with its first message that opens, and only then takes the place of an
//! older connection: a first message can be an old one that somebody sends again.

use super::handshake_worker::HandshakeWorker;
use crate::auth::{Channel, ClusterKey, Initiator, SEAL_BYTES};
use crate::config::config::PeerAddress;
use crate::shard::inflight_reads::Tag;
use crate::status::wall_us;
use arrayvec::ArrayVec;
use ddss_core::limits::{MESSAGE_BYTES_MAX, STAGING_BYTES};
use ddss_core::status::PeerRow;
use ddss_core::{Message, NodeId, PeerHello, RemoteWindow};
use ddss_ipc::SharedMemory;
use ddss_verbs::{Fabric, PeerId, PostErrorKind, RegionId, Rights, SendMode, Trust, Work};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A message before it is sealed.
pub(crate) type Plain = ArrayVec<u8, { Message::PLAIN_BYTES_MAX }>;
/// A message as it goes out.
type Wire = ArrayVec<u8, MESSAGE_BYTES_MAX>;

const _: () = assert!(Message::PLAIN_BYTES_MAX + SEAL_BYTES <= MESSAGE_BYTES_MAX);

#[derive(Debug)]
pub(crate) enum State {
    Idle {
        retry_at: Instant,
    },
    Connecting {
        peer: PeerId,
        shake: Initiator,
    },
    /// We connected, and the peer is who it should be; it has not yet said where it takes puts.
    Meeting {
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

/// One who connected and has not yet proved that it is there now.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) peer: PeerId,
    pub(crate) channel: Channel,
    pub(crate) run: u32,
    pub(crate) since: Instant,
}

/// One other node.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) state: State,
    pub(crate) candidates: ArrayVec<Candidate, { Links::CANDIDATES_MAX }>,
    pub(crate) retry_after: Duration,
    pub(crate) run: u32,
    /// Where the peer takes what we put.
    pub(crate) staging: RemoteWindow,
    /// Where we take what the peer puts.
    room: (SharedMemory, RegionId),
    /// The windows over our pool that the peer may use, by the header's place.
    pub(crate) windows: HashMap<u64, RemoteWindow>,
    pub(crate) outbox: VecDeque<Wire>,
    pub(crate) complained: bool,
    /// When it was last met, or lost, or heard of first, in microseconds since 1970.
    pub(crate) since_us: u64,
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkChange {
    Down(NodeId),
}

/// What came with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivedMessage {
    /// A node that is up said so many bytes.
    Said(NodeId, usize),
    /// A node is up; if it was up before on another connection, that one went down first.
    Met {
        node: NodeId,
        again: bool,
    },
    Nothing,
}

/// All other nodes.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) ours: PeerHello,
    /// Which plane of this node, and of the others.
    pub(crate) plane: u8,
    /// Without it nobody is spoken to.
    pub(crate) key: Option<ClusterKey>,
    /// Checks those who connect, if the fabric has no porch on which that is done.
    pub(crate) doorman: Option<HandshakeWorker>,
    /// What is said of those who are turned away.
    pub(crate) links: BTreeMap<NodeId, Link>,
    pub(crate) by_peer: HashMap<PeerId, NodeId>,
    /// The nodes that left the cluster or were removed: each is told so when it connects.
    pub(crate) removed: BTreeSet<NodeId>,
    /// Messages that went out or wait, and their bytes.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
}

impl Links {
    pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(20);
    pub(crate) const RETRY_LAST: Duration = Duration::from_secs(1);
    /// A connection that is older than this gives way to a new one from the same run of the same node: the other
    /// side has lost it and we have not noticed yet.
    pub(crate) const SETTLED: Duration = Duration::from_secs(3);
    /// How long one who connected may take to prove itself.
    pub(crate) const PROOF_MAX: Duration = Duration::from_secs(5);
    /// Those of one node's name that may be about to prove themselves at the same time.
    pub(crate) const CANDIDATES_MAX: usize = 4;
    /// Those who are let in, or turned away, in one round of the progress thread.
    pub(crate) const MEETINGS_PER_ROUND: usize = 2;
    /// Messages that may wait for one peer. More says that it has stopped reading.
    const OUTBOX_MAX: usize = 1 << 14;

    pub(crate) fn new(ours: PeerHello, plane: u8, key: Option<ClusterKey>, doorman: Option<HandshakeWorker>) -> Self {
        let (links, by_peer, removed) = Default::default();
        Self { ours, plane, key, doorman, links, by_peer, removed, sent: 0, sent_bytes: 0 }
    }

    /// Takes a node in, or notes its new address. It gets memory of its own to put into.
    pub(crate) fn add(&mut self, fabric: &mut dyn Fabric, member: &PeerAddress) -> Result<(), String> {
        if let Some(link) = self.links.get_mut(&member.node) {
            link.address = member.address;
            return Ok(());
        }
        self.removed.remove(&member.node);
        let memory = SharedMemory::create("ddss-staging", STAGING_BYTES).map_err(|error| error.to_string())?;
        let (offset, bytes) = (memory.offset() as u64, memory.len() as u64);
        let region = fabric.register(memory.descriptor(), Trust::Sealed, offset, bytes);
        let region = region.map_err(|error| error.to_string())?;
        let link = Link {
            node: member.node,
            address: member.address,
            state: State::Idle { retry_at: Instant::now() },
            candidates: ArrayVec::new(),
            retry_after: Self::RETRY_FIRST,
            run: 0,
            staging: RemoteWindow::default(),
            room: (memory, region),
            windows: HashMap::new(),
            outbox: VecDeque::new(),
            complained: false,
            since_us: wall_us(),
        };
        self.links.insert(member.node, link);
        Ok(())
    }

    /// Every node, as others are told of it.
    pub(crate) fn rows(&self) -> impl Iterator<Item = PeerRow> + '_ {
        self.links.values().map(|link| PeerRow {
            node: link.node,
            connected: matches!(link.state, State::Up { .. }),
            waiting: link.outbox.len() as u32,
            windows: link.windows.len() as u32,
            since_us: link.since_us,
            address: link.address,
        })
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.links.keys().copied().collect()
    }

    /// The cluster says that a node is dead: what waits for it need not wait longer. It is tried again.
    pub(crate) fn lose(&mut self, fabric: &mut dyn Fabric, node: NodeId) {
        if let Some((peer, _)) = self.road_to(node) {
            fabric.close(peer);
        }
    }

    /// Notes that a node is out of the cluster. Its link ends with the membership.
    pub(crate) fn forbid(&mut self, node: NodeId) {
        self.removed.insert(node);
    }

    /// Ends everything with a node for good.
    pub(crate) fn remove(&mut self, fabric: &mut dyn Fabric, node: NodeId) {
        let Some(link) = self.links.remove(&node) else { return };
        for (&peer, _) in self.by_peer.iter().filter(|&(_, &other)| other == node) {
            fabric.close(peer);
        }
        self.by_peer.retain(|_, other| *other != node);
        fabric.deregister(link.room.1);
    }

    /// The connection of a node that is up, and where that node takes puts.
    pub(crate) fn road_to(&self, node: NodeId) -> Option<(PeerId, RemoteWindow)> {
        let link = self.links.get(&node)?;
        match link.state {
            State::Up { peer, .. } => Some((peer, link.staging)),
            _ => None,
        }
    }

    /// Where a node's puts are staged here.
    pub(crate) fn staging_of(&self, node: NodeId) -> Option<&SharedMemory> {
        self.links.get(&node).map(|link| &link.room.0)
    }

    /// Opens a message into `plain`, and finds out what it changes. Whoever says what does not open is cut off.
    pub(crate) fn hear(
        &mut self,
        fabric: &mut dyn Fabric,
        peer: PeerId,
        sealed: &[u8],
        plain: &mut [u8],
    ) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            fabric.close(peer);
            return ReceivedMessage::Nothing;
        };
        let opened = match &mut link.state {
            State::Up { peer: current, channel, .. } if *current == peer => {
                channel.open(sealed, plain).map(|length| ReceivedMessage::Said(link.node, length))
            }
            State::Meeting { peer: current, channel, .. } if *current == peer => {
                channel.open(sealed, plain).map(|length| self.welcomed(fabric, peer, &plain[..length]))
            }
            _ => match link.candidates.iter_mut().find(|candidate| candidate.peer == peer) {
                Some(candidate) => {
                    candidate.channel.open(sealed, plain).map(|length| self.proved(fabric, peer, &plain[..length]))
                }
                None => Ok(ReceivedMessage::Nothing),
            },
        };
        opened.unwrap_or_else(|error| {
            tracing::warn!(%peer, %error, "closing a connection");
            fabric.close(peer);
            ReceivedMessage::Nothing
        })
    }

    /// Sends a message, or lets it wait for room. A peer that lets too much wait is closed.
    pub(crate) fn send(&mut self, fabric: &mut dyn Fabric, node: NodeId, plain: &Plain) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if matches!(link.state, State::Up { .. }) {
            self.sent += 1;
            self.sent_bytes += plain.len() as u64;
            link.post(fabric, plain);
        }
    }

    /// Sends what waited, as far as there is room; whether anything still waits.
    pub(crate) fn flush(&mut self, fabric: &mut dyn Fabric) -> bool {
        let mut waits = false;
        for link in self.links.values_mut().filter(|link| !link.outbox.is_empty()) {
            let (State::Up { peer, .. } | State::Meeting { peer, .. }) = link.state else { continue };
            while link.outbox.front().is_some_and(|wire| try_send(fabric, peer, wire)) {
                link.outbox.pop_front();
            }
            waits |= !link.outbox.is_empty();
        }
        waits
    }

    /// The window of a node over the segment whose header is at `at`, which is `offset` in its area; made if it is not
    /// there yet.
    pub(crate) fn window(
        &mut self,
        fabric: &mut dyn Fabric,
        node: NodeId,
        area: RegionId,
        (at, offset): (u64, u64),
        bytes: u64,
    ) -> Option<RemoteWindow> {
        let link = self.links.get_mut(&node)?;
        let State::Up { peer, .. } = link.state else { return None };
        if let Some(&window) = link.windows.get(&at) {
            return Some(window);
        }
        match fabric.expose(peer, area, offset, bytes, Rights::READ) {
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
    pub(crate) fn withdraw(&mut self, fabric: &mut dyn Fabric, at: u64) {
        for link in self.links.values_mut() {
            if let (Some(window), State::Up { peer, .. }) = (link.windows.remove(&at), &link.state) {
                fabric.withdraw(*peer, window.key);
            }
        }
    }

    /// Ends the connection of a node.
    pub(crate) fn cut(&self, fabric: &mut dyn Fabric, node: NodeId) {
        if let Some((peer, _)) = self.road_to(node) {
            tracing::warn!(node = node.0, "the peer breaks the rules: closing its connection");
            fabric.close(peer);
        }
    }

    /// Ends every connection.
    pub(crate) fn close_all(&mut self, fabric: &mut dyn Fabric) {
        for &peer in self.by_peer.keys() {
            fabric.close(peer);
        }
    }
}

impl Link {
    pub(crate) fn back_off(&mut self) -> Duration {
        let now = self.retry_after;
        self.retry_after = (now * 2).min(Links::RETRY_LAST);
        now
    }

    /// Where the peer may put, opened for one connection.
    pub(crate) fn open_room(&self, fabric: &mut dyn Fabric, peer: PeerId) -> Option<RemoteWindow> {
        match fabric.expose(peer, self.room.1, 0, STAGING_BYTES as u64, Rights::WRITE) {
            Ok(window) => Some(RemoteWindow { key: window.key, base: window.base, bytes: window.bytes }),
            Err(error) => {
                tracing::warn!(node = self.node.0, %error, "cannot give staging memory");
                fabric.close(peer);
                None
            }
        }
    }

    /// Seals a message for the connection that stands, in the order in which it will go out.
    pub(crate) fn post(&mut self, fabric: &mut dyn Fabric, plain: &[u8]) {
        let (State::Up { peer, channel, .. } | State::Meeting { peer, channel, .. }) = &mut self.state else { return };
        let peer = *peer;
        if self.outbox.len() == Links::OUTBOX_MAX {
            tracing::warn!(node = self.node.0, "the peer takes no messages: closing its connection");
            return fabric.close(peer);
        }
        let mut sealed = [0; MESSAGE_BYTES_MAX];
        let Ok(length) = channel.seal(plain, &mut sealed) else {
            // The count of sealed words is used up, after 2^64 of them.
            return fabric.close(peer);
        };
        let mut wire = Wire::from(sealed);
        wire.truncate(length);
        if !(self.outbox.is_empty() && try_send(fabric, peer, &wire)) {
            self.outbox.push_back(wire);
        }
    }
}

/// Posts a message; `false` when it has to wait. One that can never go out is gone with its connection.
fn try_send(fabric: &mut dyn Fabric, peer: PeerId, wire: &Wire) -> bool {
    let work = Work::Send { peer, tag: Tag::Send.to_bits(), message: wire, mode: SendMode::default() };
    !matches!(fabric.post(&[work]), Err(error) if matches!(error.kind, PostErrorKind::Busy | PostErrorKind::NotConnected))
}
