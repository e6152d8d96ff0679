//! The connections to the other nodes: who connects to whom, the hello, the welcome, the windows that each peer
//! may use, and the messages that wait for room.
//!
//! ```text
//!             connect                 Connected               Welcome
//!   Idle ───────────────► Connecting ───────────► Meeting ───────────────► Up
//!    ▲  └── Asked, accepted ──────────────────────────▲                     │
//!    └──────────────────────────── Closed ────────────┴─────────────────────┘
//! ```
//!
//! Both sides try. Where both try at once the connection of the lower node stays.

use arrayvec::ArrayVec;
use ddss_core::limits::{MESSAGE_BYTES_MAX, STAGING_BYTES};
use ddss_core::{Message, NodeId, PeerHello, RemoteWindow};
use ddss_verbs::{CloseReason, Fabric, PeerId, PostErrorKind, RegionId, Rights, SendMode, Work};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::config::PeerAddress;
use crate::fetches::Tag;

/// A message as it will be sent.
type Wire = ArrayVec<u8, MESSAGE_BYTES_MAX>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle {
        retry_at: Instant,
    },
    Connecting(PeerId),
    /// The connection stands; the peer has not yet said where it takes puts.
    Meeting {
        peer: PeerId,
        ours: bool,
        since: Instant,
    },
    Up {
        peer: PeerId,
        ours: bool,
        since: Instant,
    },
}

/// One other node.
#[derive(Debug)]
struct Link {
    node: NodeId,
    address: SocketAddr,
    state: State,
    retry_after: Duration,
    incarnation: u64,
    /// Where the peer takes what we put.
    staging: RemoteWindow,
    /// The windows over our pool that the peer may use, by the header's place.
    windows: HashMap<u64, RemoteWindow>,
    outbox: VecDeque<Wire>,
    complained: bool,
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Up(NodeId),
    Down(NodeId),
}

/// All other nodes.
#[derive(Debug)]
pub(crate) struct Links {
    ours: PeerHello,
    links: Vec<Link>,
    by_peer: HashMap<PeerId, usize>,
    /// The memory that peers stage in, one part each.
    staging: Option<RegionId>,
}

impl Links {
    const RETRY_FIRST: Duration = Duration::from_millis(20);
    const RETRY_LAST: Duration = Duration::from_secs(1);
    /// A connection that is older than this gives way to a new one from the same run of the same node: the other
    /// side has lost it and we have not noticed yet.
    const SETTLED: Duration = Duration::from_secs(3);
    /// Messages that may wait for one peer. More says that it has stopped reading.
    const OUTBOX_MAX: usize = 1 << 14;

    pub(crate) fn new(ours: PeerHello, peers: &[PeerAddress], staging: Option<RegionId>) -> Self {
        let now = Instant::now();
        let link = |peer: &PeerAddress| Link {
            node: peer.node,
            address: peer.address,
            state: State::Idle { retry_at: now },
            retry_after: Self::RETRY_FIRST,
            incarnation: 0,
            staging: RemoteWindow::default(),
            windows: HashMap::new(),
            outbox: VecDeque::new(),
            complained: false,
        };
        Self { ours, links: peers.iter().map(link).collect(), by_peer: HashMap::new(), staging }
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.links.iter().position(|link| link.node == node)
    }

    /// The connection of a node that is up, and where that node takes puts.
    pub(crate) fn road_to(&self, node: NodeId) -> Option<(PeerId, RemoteWindow)> {
        let link = self.links.iter().find(|link| link.node == node)?;
        match link.state {
            State::Up { peer, .. } => Some((peer, link.staging)),
            _ => None,
        }
    }

    /// The node behind a connection that is up.
    pub(crate) fn node_of(&self, peer: PeerId) -> Option<NodeId> {
        let link = &self.links[*self.by_peer.get(&peer)?];
        matches!(link.state, State::Up { .. }).then_some(link.node)
    }

    /// Where a node's part of the staging memory begins.
    pub(crate) fn staging_of(&self, node: NodeId) -> Option<u64> {
        self.index_of(node).map(|index| (index * STAGING_BYTES) as u64)
    }

    /// Connects to whoever is due; says when the next one is.
    pub(crate) fn connect_due(&mut self, fabric: &mut dyn Fabric, now: Instant) -> Option<Instant> {
        let mut next = None;
        for (index, link) in self.links.iter_mut().enumerate() {
            let State::Idle { retry_at } = link.state else { continue };
            if retry_at > now {
                next = Some(next.map_or(retry_at, |other: Instant| other.min(retry_at)));
                continue;
            }
            link.state = match fabric.connect(link.address, &self.ours.encode()) {
                Ok(peer) => {
                    self.by_peer.insert(peer, index);
                    State::Connecting(peer)
                }
                Err(error) => {
                    tracing::warn!(node = link.node.0, address = %link.address, %error, "cannot connect");
                    State::Idle { retry_at: now + link.back_off() }
                }
            };
        }
        next
    }

    /// Somebody wants to connect. The answer is a change if that ends a connection that was up.
    pub(crate) fn asked(
        &mut self,
        fabric: &mut dyn Fabric,
        peer: PeerId,
        address: SocketAddr,
        hello: &[u8],
    ) -> Option<Change> {
        let now = Instant::now();
        let answer = PeerHello::decode(hello).map_err(|error| error.to_string()).and_then(|theirs| {
            let index = self.index_of(theirs.node);
            let index = index.ok_or_else(|| format!("{} is no peer of {}", theirs.node, self.ours.node))?;
            Ok((index, self.replaces(index, &theirs, now)?, theirs))
        });
        match answer {
            Ok((index, old, theirs)) => {
                // If the peer is gone already, its end comes as an event like any other.
                fabric.accept(peer, &self.ours.encode()).ok()?;
                self.by_peer.insert(peer, index);
                let link = &mut self.links[index];
                let was_up = matches!(link.state, State::Up { .. });
                link.state = State::Meeting { peer, ours: false, since: now };
                link.incarnation = theirs.incarnation;
                link.windows.clear();
                link.outbox.clear();
                if let Some(old) = old {
                    fabric.close(old);
                }
                was_up.then_some(Change::Down(link.node))
            }
            Err(reason) => {
                tracing::info!(%address, reason, "turned a connection away");
                let reason = &reason.as_bytes()[..reason.len().min(ddss_core::limits::HELLO_BYTES_MAX)];
                // A peer that is gone by now needs no reason.
                let _ = fabric.reject(peer, reason);
                None
            }
        }
    }

    /// Decides whether a new connection is taken, and which one it replaces.
    fn replaces(&self, index: usize, theirs: &PeerHello, now: Instant) -> Result<Option<PeerId>, String> {
        let link = &self.links[index];
        match link.state {
            State::Idle { .. } => Ok(None),
            State::Connecting(old) if theirs.node < self.ours.node => Ok(Some(old)),
            State::Connecting(_) => Err(format!("{} connects by itself", self.ours.node)),
            State::Meeting { peer, ours, since } | State::Up { peer, ours, since } => {
                let reborn = theirs.incarnation != link.incarnation;
                let settled = now.duration_since(since) >= Self::SETTLED;
                let crossed = ours && theirs.node < self.ours.node;
                if reborn || settled || crossed {
                    Ok(Some(peer))
                } else {
                    Err(format!("{} is connected already", self.ours.node))
                }
            }
        }
    }

    /// A connection stands: say where the peer may stage.
    pub(crate) fn connected(&mut self, fabric: &mut dyn Fabric, peer: PeerId, hello: &[u8]) {
        let Some(&index) = self.by_peer.get(&peer) else { return };
        let link = &mut self.links[index];
        match link.state {
            State::Connecting(expected) if expected == peer => {
                let theirs = match PeerHello::decode(hello) {
                    Ok(theirs) if theirs.node == link.node => theirs,
                    Ok(theirs) => {
                        tracing::warn!(expected = link.node.0, found = theirs.node.0, address = %link.address,
                            "another node answers at this address");
                        return fabric.close(peer);
                    }
                    Err(error) => {
                        tracing::warn!(node = link.node.0, address = %link.address, %error, "cannot meet");
                        return fabric.close(peer);
                    }
                };
                link.incarnation = theirs.incarnation;
                link.state = State::Meeting { peer, ours: true, since: Instant::now() };
            }
            // On the side that accepted, the peer's welcome may be here before the word that the connection stands.
            State::Meeting { peer: expected, .. } | State::Up { peer: expected, .. } if expected == peer => {}
            _ => return fabric.close(peer),
        }
        let Some(region) = self.staging else { return fabric.close(peer) };
        let offset = (index * STAGING_BYTES) as u64;
        match fabric.expose(peer, region, offset, STAGING_BYTES as u64, Rights::WRITE) {
            Ok(window) => {
                let staging = RemoteWindow { key: window.key, base: window.base, bytes: window.bytes };
                self.post(fabric, index, peer, Message::Welcome { staging }.encode(&[]));
            }
            Err(error) => {
                tracing::warn!(node = link.node.0, %error, "cannot give staging memory");
                fabric.close(peer);
            }
        }
    }

    /// The peer's first message.
    pub(crate) fn welcomed(&mut self, peer: PeerId, message: &Message) -> Option<Change> {
        let link = &mut self.links[*self.by_peer.get(&peer)?];
        match (link.state, message) {
            (State::Meeting { peer: expected, ours, since }, Message::Welcome { staging })
                if expected == peer && staging.bytes >= STAGING_BYTES as u64 =>
            {
                link.staging = *staging;
                link.state = State::Up { peer, ours, since };
                link.retry_after = Self::RETRY_FIRST;
                link.complained = false;
                tracing::info!(node = link.node.0, address = %link.address, "connected");
                Some(Change::Up(link.node))
            }
            _ => None,
        }
    }

    /// A connection ended.
    pub(crate) fn closed(&mut self, peer: PeerId, reason: CloseReason, hello: &[u8]) -> Option<Change> {
        let link = &mut self.links[self.by_peer.remove(&peer)?];
        let was_up = match link.state {
            State::Connecting(current) | State::Meeting { peer: current, .. } if current == peer => false,
            State::Up { peer: current, .. } if current == peer => true,
            // A newer connection took its place.
            _ => return None,
        };
        link.windows.clear();
        link.outbox.clear();
        link.state = State::Idle { retry_at: Instant::now() + link.back_off() };
        let told = String::from_utf8_lossy(hello);
        if was_up {
            tracing::warn!(node = link.node.0, address = %link.address, %reason, "disconnected");
        } else if !std::mem::replace(&mut link.complained, true) {
            tracing::info!(node = link.node.0, address = %link.address, %reason, %told, "not connected yet, trying again");
        }
        was_up.then_some(Change::Down(link.node))
    }

    /// Sends a message, or lets it wait for room. A peer that lets too much wait is closed.
    pub(crate) fn send(&mut self, fabric: &mut dyn Fabric, node: NodeId, wire: Wire) {
        let Some(index) = self.index_of(node) else { return };
        if let State::Up { peer, .. } = self.links[index].state {
            self.post(fabric, index, peer, wire);
        }
    }

    fn post(&mut self, fabric: &mut dyn Fabric, index: usize, peer: PeerId, wire: Wire) {
        let link = &mut self.links[index];
        if link.outbox.is_empty() && try_send(fabric, peer, &wire) {
            return;
        }
        if link.outbox.len() == Self::OUTBOX_MAX {
            tracing::warn!(node = link.node.0, "the peer takes no messages: closing its connection");
            return fabric.close(peer);
        }
        link.outbox.push_back(wire);
    }

    /// Sends what waited, as far as there is room; whether anything still waits.
    pub(crate) fn flush(&mut self, fabric: &mut dyn Fabric) -> bool {
        let mut waits = false;
        for link in self.links.iter_mut().filter(|link| !link.outbox.is_empty()) {
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
        let index = self.index_of(node)?;
        let link = &mut self.links[index];
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
        for link in &mut self.links {
            if let (Some(window), State::Up { peer, .. }) = (link.windows.remove(&at), link.state) {
                fabric.withdraw(peer, window.key);
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
    fn back_off(&mut self) -> Duration {
        let now = self.retry_after;
        self.retry_after = (now * 2).min(Links::RETRY_LAST);
        now
    }
}

/// Posts a message; `false` when it has to wait. One that can never go out is gone with its connection.
fn try_send(fabric: &mut dyn Fabric, peer: PeerId, wire: &Wire) -> bool {
    let work = Work::Send { peer, tag: Tag::Send.to_bits(), message: wire, mode: SendMode::default() };
    !matches!(fabric.post(&[work]), Err(error) if matches!(error.kind, PostErrorKind::Busy | PostErrorKind::NotConnected))
}
