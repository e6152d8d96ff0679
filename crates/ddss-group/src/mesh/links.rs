//! Connections to all members.

use super::link::{Candidate, ConnectionPhase, Link};
use super::verifier::Verifier;
use crate::member::{Incarnation, Member};
use ddss_auth::{Answer, Context, Initiator, Key, SEAL_BYTES};
use ddss_verbs::{CloseReason, Event, Fabric, PeerId, PostErrorKind, SendMode, Work};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Kinds of messages: the first byte under the seal.
const WELCOME: u8 = 0;
const ASK: u8 = 1;
const ALIVE: u8 = 2;
const LEAVE: u8 = 3;
const CALLER: u8 = 4;

/// Configuration of a mesh.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// This process.
    pub ours: Incarnation,
    /// Members of the group.
    pub members: u16,
    /// Key of the group.
    pub key: Key,
    /// Purpose of the connections, and the release of the protocol on them.
    pub context: Context,
}

/// Reason why a connection that was up is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DownReason {
    /// The member said that it leaves.
    Left,
    /// The connection ended.
    Closed(CloseReason),
    /// The member sent what no member sends.
    Violation,
    /// Another process has taken the member's place.
    Replaced,
}

/// Effect of an event of the fabric on the mesh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MeshEvent<'a> {
    /// A member is connected.
    Up(Member),
    /// A message of the caller on the other side. Every write that the member posted before it is in memory.
    Message {
        /// Sender.
        from: Member,
        /// Message.
        bytes: &'a [u8],
    },
    /// A connected member is connected no more, and does not come back.
    Down(Member, DownReason),
}

/// Reason why a message is not sent; nothing of it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The member is not connected.
    #[error("{0} is not connected")]
    NotConnected(Member),
    /// The message is longer than those that the fabric was configured for.
    #[error("a message of {bytes} bytes exceeds the {max} bytes that fit into one of the fabric")]
    TooLong {
        /// Bytes of the message.
        bytes: usize,
        /// Most bytes.
        max: usize,
    },
    /// The member takes no messages for now.
    #[error("{0} takes no more messages: send again after it has answered")]
    Full(Member),
}

/// Connections to all members of a group. The caller owns the fabric and polls it, hands each event to
/// [`handle`](Self::handle), and calls [`tick`](Self::tick) between polls. `now` is the time since any fixed moment.
pub struct Mesh {
    config: MeshConfig,
    verifier: Verifier,
    links: Vec<Link>,
    members_by_peer: HashMap<PeerId, Member>,
    /// Message in work: opened, or being sealed.
    plain: Vec<u8>,
}

impl Mesh {
    /// Tag of the mesh's own work; a completion with it is none of the caller's.
    pub const TAG: u64 = u64::MAX;
    /// Silence after which a member is asked whether it lives.
    pub const ASK_AFTER: Duration = Duration::from_millis(250);
    /// Time for an incoming connection to send its first message.
    const CANDIDATE_MAX: Duration = Duration::from_secs(5);
    /// Bytes that wait for one member.
    const WAITING_BYTES_MAX: usize = 1 << 20;

    /// Creates a mesh that knows no member yet.
    ///
    /// # Panics
    /// The own number is not one of the group.
    #[must_use]
    pub fn new(config: MeshConfig) -> Self {
        assert!(config.ours.member.0 < config.members, "the own number is one of the group");
        let links = (0..config.members).map(|_| Link::new()).collect();
        let verifier = Verifier { key: config.key, context: config.context, ours: config.ours.encode() };
        Self { config, verifier, links, members_by_peer: HashMap::new(), plain: Vec::new() }
    }

    /// Returns the filter for a fabric that [has one](ddss_verbs::Capabilities::has_admission_filter).
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        Verifier { key: self.config.key, context: self.config.context, ours: self.config.ours.encode() }
    }

    /// Learns from the directory where a member is. Returns an event if another process was in its place.
    pub fn learn(
        &mut self,
        fabric: &mut dyn Fabric,
        whom: Incarnation,
        address: SocketAddr,
        now: Duration,
    ) -> Option<MeshEvent<'static>> {
        let link = self.links.get_mut(usize::from(whom.member.0))?;
        if whom.member == self.config.ours.member || link.known.is_some_and(|(run, _)| run == whom.run) {
            return None;
        }
        let was_up = matches!(link.state, ConnectionPhase::Up { .. });
        let peers = link.candidates.iter().map(|candidate| candidate.peer).chain(link.peer());
        for peer in peers {
            self.members_by_peer.remove(&peer);
            fabric.close(peer);
        }
        link.reset(whom.run, address, now);
        was_up.then_some(MeshEvent::Down(whom.member, DownReason::Replaced))
    }

    /// Returns the connection to a member, for one-sided work and windows.
    #[must_use]
    pub fn peer(&self, member: Member) -> Option<PeerId> {
        match self.links.get(usize::from(member.0))?.state {
            ConnectionPhase::Up { peer, .. } => Some(peer),
            _ => None,
        }
    }

    /// Returns the member at the other end of a connection.
    #[must_use]
    pub fn member(&self, peer: PeerId) -> Option<Member> {
        self.members_by_peer.get(&peer).copied().filter(|member| self.peer(*member) == Some(peer))
    }

    /// Returns the time since a known member was last heard of. `None` if its connection has ended, or it is unknown.
    #[must_use]
    pub fn silence(&self, member: Member, now: Duration) -> Option<Duration> {
        let link = self.links.get(usize::from(member.0))?;
        let is_awaited = link.known.is_some() && !matches!(link.state, ConnectionPhase::Ended);
        is_awaited.then(|| now.saturating_sub(link.heard_at))
    }

    /// Counts the silence of members that were never connected from now on.
    pub fn excuse_unconnected(&mut self, now: Duration) {
        for link in self
            .links
            .iter_mut()
            .filter(|link| matches!(link.state, ConnectionPhase::Idle | ConnectionPhase::Connecting { .. }))
        {
            link.heard_at = now;
        }
    }

    /// Returns the most bytes of a message on this fabric.
    #[must_use]
    pub fn message_bytes_max(fabric: &dyn Fabric) -> usize {
        fabric.capabilities().message_bytes_max.min(usize::from(u16::MAX)) - SEAL_BYTES - 1
    }

    /// Sends a message, made of parts, after everything that was posted to this member before.
    ///
    /// # Errors
    /// The member is not connected, the message is too long, or too many messages wait.
    pub fn send(&mut self, fabric: &mut dyn Fabric, to: Member, parts: &[&[u8]]) -> Result<(), SendError> {
        let (bytes, max) = (parts.iter().map(|part| part.len()).sum(), Self::message_bytes_max(fabric));
        if bytes > max {
            return Err(SendError::TooLong { bytes, max });
        }
        let link = self.links.get_mut(usize::from(to.0)).ok_or(SendError::NotConnected(to))?;
        if !matches!(link.state, ConnectionPhase::Up { .. }) {
            return Err(SendError::NotConnected(to));
        }
        if link.waiting_bytes + bytes > Self::WAITING_BYTES_MAX {
            return Err(SendError::Full(to));
        }
        self.plain.clear();
        self.plain.push(CALLER);
        parts.iter().for_each(|part| self.plain.extend_from_slice(part));
        post(link, fabric, &self.plain);
        Ok(())
    }

    /// Tells a member that this process leaves in order, behind all messages to it. The member closes the connection: poll the
    /// fabric until then.
    pub fn leave(&mut self, fabric: &mut dyn Fabric, member: Member) {
        if let Some(link) = self.links.get_mut(usize::from(member.0)) {
            post(link, fabric, &[LEAVE]);
        }
    }

    /// Closes the connection to a member that is taken for lost.
    pub fn close(&mut self, fabric: &mut dyn Fabric, member: Member) {
        let Some(link) = self.links.get_mut(usize::from(member.0)) else { return };
        if let Some(peer) = link.peer() {
            self.members_by_peer.remove(&peer);
            fabric.close(peer);
        }
        link.end();
    }

    /// Connects, sends what waits, and asks silent members whether they live. Returns the latest time of the next call.
    pub fn tick(&mut self, fabric: &mut dyn Fabric, now: Duration) -> Duration {
        let ours = self.config.ours.member;
        let mut next = now + Self::ASK_AFTER;
        for (index, link) in self.links.iter_mut().enumerate() {
            let member = Member(index as u16);
            link.candidates.retain(|candidate| {
                let stays = now < candidate.since + Self::CANDIDATE_MAX;
                if !stays {
                    self.members_by_peer.remove(&candidate.peer);
                    fabric.close(candidate.peer);
                }
                stays
            });
            match link.state {
                ConnectionPhase::Idle if member < ours && link.known.is_some() => {
                    if link.retry_at <= now
                        && let Some(peer) = connect(link, fabric, &self.config, now)
                    {
                        self.members_by_peer.insert(peer, member);
                    }
                    next = next.min(link.retry_at.max(now));
                }
                ConnectionPhase::Up { .. } => {
                    flush(link, fabric);
                    let is_due = now >= link.heard_at + Self::ASK_AFTER && now >= link.asked_at + Self::ASK_AFTER;
                    if is_due && link.waiting.is_empty() {
                        link.asked_at = now;
                        post(link, fabric, &[ASK]);
                    }
                }
                _ => {}
            }
        }
        next
    }

    /// Applies an event of the fabric. The caller handles completions of its own work, which have no effect here.
    pub fn handle(&mut self, fabric: &mut dyn Fabric, event: &Event<'_>, now: Duration) -> Option<MeshEvent<'_>> {
        match *event {
            Event::ConnectRequest { peer, hello, .. } => {
                let answer = self.verifier.verify(hello);
                self.admit(fabric, peer, answer, now);
                None
            }
            Event::Admitted { peer, .. } => {
                let token = fabric.take_admission_token(peer).and_then(|token| token.downcast().ok());
                let answer = token.map_or_else(|| Err("no verdict".to_owned()), |answer: Box<Answer>| Ok(*answer));
                self.admit(fabric, peer, answer, now);
                None
            }
            Event::Connected { peer, hello } => self.connected(fabric, peer, hello, now),
            Event::Closed { peer, reason, .. } => self.closed(peer, reason, now),
            Event::Message { peer, bytes, .. } => self.receive(fabric, peer, bytes, now),
            Event::Immediate { peer, .. } => self.violated(fabric, peer),
            _ => None,
        }
    }

    /// Accepts an incoming connection of a member that the directory names, as a candidate.
    fn admit(&mut self, fabric: &mut dyn Fabric, peer: PeerId, answer: Result<Answer, String>, now: Duration) {
        let candidate = answer.and_then(|answer| {
            let theirs = Incarnation::decode(&answer.theirs);
            let link = self.links.get_mut(usize::from(theirs.member.0)).ok_or("no such member")?;
            let is_known =
                link.known.is_some_and(|(run, _)| run == theirs.run) && theirs.member > self.config.ours.member;
            if !is_known || !matches!(link.state, ConnectionPhase::Idle) {
                return Err("not awaited here, or not yet".to_owned());
            }
            fabric.accept(peer, &answer.message).map_err(|error| error.to_string())?;
            if link.candidates.len() == Link::CANDIDATES_MAX {
                let oldest = link.candidates.remove(0).peer;
                self.members_by_peer.remove(&oldest);
                fabric.close(oldest);
            }
            link.candidates.push(Candidate { peer, channel: answer.channel, since: now });
            self.members_by_peer.insert(peer, theirs.member);
            Ok(())
        });
        if let Err(reason) = candidate {
            // A peer that is gone by now needs no reason.
            let _ = fabric.reject(peer, reason.as_bytes());
        }
    }

    fn connected(
        &mut self,
        fabric: &mut dyn Fabric,
        peer: PeerId,
        hello: &[u8],
        now: Duration,
    ) -> Option<MeshEvent<'static>> {
        let member = *self.members_by_peer.get(&peer)?;
        let link = &mut self.links[usize::from(member.0)];
        match std::mem::replace(&mut link.state, ConnectionPhase::Idle) {
            ConnectionPhase::Connecting { peer: asked, initiator } if asked == peer => {
                let run = link.known.map(|(run, _)| run);
                match initiator.finish(hello) {
                    Ok((theirs, channel)) if run == Some(Incarnation::decode(&theirs).run) => {
                        link.state = ConnectionPhase::Up { peer, channel };
                        link.heard_at = now;
                        post(link, fabric, &[WELCOME]);
                        return Some(MeshEvent::Up(member));
                    }
                    // Another process has the address by now: the directory will say so.
                    Ok(_) | Err(_) => {
                        link.retry(now);
                        self.members_by_peer.remove(&peer);
                        fabric.close(peer);
                    }
                }
            }
            // The accepting side learns that the connection exists; its first message is still to come.
            other => link.state = other,
        }
        None
    }

    fn closed(&mut self, peer: PeerId, reason: CloseReason, now: Duration) -> Option<MeshEvent<'static>> {
        let member = self.members_by_peer.remove(&peer)?;
        let link = &mut self.links[usize::from(member.0)];
        link.candidates.retain(|candidate| candidate.peer != peer);
        match link.state {
            ConnectionPhase::Connecting { peer: current, .. } if current == peer => link.retry(now),
            ConnectionPhase::Up { peer: current, .. } if current == peer => {
                link.end();
                return Some(MeshEvent::Down(member, DownReason::Closed(reason)));
            }
            _ => {}
        }
        None
    }

    fn receive(
        &mut self,
        fabric: &mut dyn Fabric,
        peer: PeerId,
        sealed: &[u8],
        now: Duration,
    ) -> Option<MeshEvent<'_>> {
        let member = *self.members_by_peer.get(&peer)?;
        let link = &mut self.links[usize::from(member.0)];
        self.plain.resize(sealed.len(), 0);
        let channel = match &mut link.state {
            ConnectionPhase::Up { peer: current, channel } if *current == peer => Some(channel),
            _ => link.candidates.iter_mut().find(|one| one.peer == peer).map(|candidate| &mut candidate.channel),
        };
        let Some(Ok(length)) = channel.map(|channel| channel.open(sealed, &mut self.plain)) else {
            return self.violated(fabric, peer);
        };
        link.heard_at = now;
        match (&link.state, self.plain[..length].first()) {
            (ConnectionPhase::Idle, Some(&WELCOME)) => {
                for Candidate { peer: other, channel, .. } in std::mem::take(&mut link.candidates) {
                    if other == peer {
                        link.state = ConnectionPhase::Up { peer, channel };
                    } else {
                        self.members_by_peer.remove(&other);
                        fabric.close(other);
                    }
                }
                Some(MeshEvent::Up(member))
            }
            (ConnectionPhase::Up { .. }, Some(&ASK)) => {
                // Messages that wait say it too, and a member that only asks must not fill the memory.
                if link.waiting.is_empty() {
                    post(link, fabric, &[ALIVE]);
                }
                None
            }
            (ConnectionPhase::Up { .. }, Some(&ALIVE)) => None,
            (ConnectionPhase::Up { .. }, Some(&LEAVE)) => {
                self.members_by_peer.remove(&peer);
                link.end();
                fabric.close(peer);
                Some(MeshEvent::Down(member, DownReason::Left))
            }
            (ConnectionPhase::Up { .. }, Some(&CALLER)) => {
                Some(MeshEvent::Message { from: member, bytes: &self.plain[1..length] })
            }
            _ => self.violated(fabric, peer),
        }
    }

    /// Ends a connection that carried what no member sends.
    fn violated(&mut self, fabric: &mut dyn Fabric, peer: PeerId) -> Option<MeshEvent<'static>> {
        fabric.close(peer);
        let member = self.members_by_peer.remove(&peer)?;
        let link = &mut self.links[usize::from(member.0)];
        link.candidates.retain(|candidate| candidate.peer != peer);
        let ConnectionPhase::Up { peer: current, .. } = link.state else { return None };
        if current != peer {
            return None;
        }
        link.end();
        Some(MeshEvent::Down(member, DownReason::Violation))
    }
}

/// Asks a member for a connection. Returns the connection to be.
fn connect(link: &mut Link, fabric: &mut dyn Fabric, config: &MeshConfig, now: Duration) -> Option<PeerId> {
    let (_, address) = link.known?;
    let begun = Initiator::begin(&config.key, &config.context, &config.ours.encode()).ok();
    let begun = begun.and_then(|(initiator, hello)| Some((initiator, fabric.connect(address, &hello).ok()?)));
    let Some((initiator, peer)) = begun else {
        link.retry(now);
        return None;
    };
    link.state = ConnectionPhase::Connecting { peer, initiator };
    Some(peer)
}

/// Seals a message and posts it, behind those that wait.
fn post(link: &mut Link, fabric: &mut dyn Fabric, plain: &[u8]) {
    let ConnectionPhase::Up { peer, channel } = &mut link.state else { return };
    let peer = *peer;
    let mut sealed = vec![0; plain.len() + SEAL_BYTES];
    if channel.seal(plain, &mut sealed).is_err() {
        // The counter is exhausted, after 2^64 messages.
        return fabric.close(peer);
    }
    if !link.waiting.is_empty() || !try_send(fabric, peer, &sealed) {
        link.waiting_bytes += sealed.len();
        link.waiting.push_back(sealed);
    }
}

/// Posts the messages that wait, while the fabric has room.
fn flush(link: &mut Link, fabric: &mut dyn Fabric) {
    let ConnectionPhase::Up { peer, .. } = link.state else { return };
    while let Some(sealed) = link.waiting.front() {
        if !try_send(fabric, peer, sealed) {
            return;
        }
        link.waiting_bytes -= sealed.len();
        link.waiting.pop_front();
    }
}

/// Posts a message. Returns false if it has to wait; one that can never be sent goes with its connection.
fn try_send(fabric: &mut dyn Fabric, peer: PeerId, sealed: &[u8]) -> bool {
    let work = Work::Send { peer, tag: Mesh::TAG, message: sealed, mode: SendMode::default() };
    !matches!(fabric.post(&[work]), Err(error) if matches!(error.kind, PostErrorKind::Busy | PostErrorKind::NotConnected))
}
