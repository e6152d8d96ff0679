//! Connection setup between two nodes: which side connects, which connection wins, and when a peer is authenticated.
//! `links.rs` draws the states.

use super::handshake_worker::{HandshakeResult, HandshakeWorker, answer_from_token, log_rejection};
use super::links::{Candidate, Link, LinkChange, LinkState, Links, Plain, ReceivedMessage};
use crate::auth::{Answer, HandshakeError, Initiator, Purpose, agree};
use crate::status::wall_us;
use ddss_core::limits::{HELLO_BYTES_MAX, STAGING_BYTES};
use ddss_core::{Message, NodeId, PeerHello, RemoteWindow, Timestamp};
use ddss_verbs::{Admission, AdmissionToken, CloseReason, Fabric, PeerId};
use std::net::SocketAddr;
use std::time::Instant;

fn reject(fabric: &mut dyn Fabric, peer: PeerId, reason: &str) {
    // A peer that is gone by now needs no reason.
    let _ = fabric.reject(peer, &reason.as_bytes()[..reason.len().min(HELLO_BYTES_MAX)]);
}

impl Links {
    /// Connects to all peers that are due. Returns the time of the next attempt.
    pub(crate) fn connect_due(&mut self, now: Instant) -> Option<Instant> {
        let Self { fabric, ours, shard, key, links, by_peer, .. } = self;
        let (key, purpose) = (key.as_ref()?, Purpose::Data(*shard));
        let mut next: Option<Instant> = None;
        let mut due = |at: Instant| next = Some(next.map_or(at, |other| other.min(at)));
        for link in links.values_mut() {
            link.candidates.retain(|candidate| {
                let is_late = candidate.since + Self::AUTHENTICATION_MAX <= now;
                if is_late {
                    tracing::info!(node = link.node.0, address = %link.address, "closing a connection that did not authenticate in time");
                    fabric.close(candidate.peer);
                }
                !is_late
            });
            link.candidates.iter().for_each(|candidate| due(candidate.since + Self::AUTHENTICATION_MAX));
            match link.state {
                LinkState::Idle { retry_at } if retry_at <= now => {}
                LinkState::Idle { retry_at } => {
                    due(retry_at);
                    continue;
                }
                _ => continue,
            }
            let begun = Initiator::begin(key, purpose, ours).map_err(|error| error.to_string());
            let begun = begun.and_then(|(initiator, hello)| {
                let peer = fabric.connect(link.address, &hello).map_err(|error| error.to_string())?;
                Ok(LinkState::Connecting { peer, initiator })
            });
            link.state = begun.unwrap_or_else(|error| {
                tracing::warn!(node = link.node.0, address = %link.address, error, "cannot connect");
                let retry_at = now + link.next_backoff();
                due(retry_at);
                LinkState::Idle { retry_at }
            });
            if let LinkState::Connecting { peer, .. } = link.state {
                by_peer.insert(peer, link.node);
            }
        }
        next
    }

    /// Passes the hello of a connecting peer to the handshake worker.
    pub(crate) fn verify_handshake(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let refused = match &mut self.handshake_worker {
            None => "no cluster here",
            Some(handshake_worker) => {
                if handshake_worker.submit(peer, address, hello) {
                    return;
                }
                "too many pending handshakes: try again later"
            }
        };
        self.reject_and_log(peer, address, refused);
    }

    /// Takes the verified peers from the handshake worker, and returns the number of its results. No existing
    /// connection gives way yet.
    pub(crate) fn take_handshake_results(&mut self) -> usize {
        let mut taken = 0;
        while taken < Self::HANDSHAKES_PER_ROUND
            && let Some(HandshakeResult { peer, address, verdict }) =
                self.handshake_worker.as_mut().and_then(HandshakeWorker::next_result)
        {
            taken += 1;
            match verdict {
                Admission::Admit(token) => self.handle_admission(peer, address, token),
                // The worker has logged the reason.
                Admission::Reject(reason) => reject(self.fabric.as_mut(), peer, &reason),
            }
        }
        taken
    }

    /// Takes a peer that the fabric's admission filter has admitted.
    pub(crate) fn handle_admitted(&mut self, peer: PeerId, address: SocketAddr) {
        if let Some(token) = self.fabric.take_admission_token(peer) {
            self.handle_admission(peer, address, token);
        }
    }

    fn handle_admission(&mut self, peer: PeerId, address: SocketAddr, token: AdmissionToken) {
        let answer = answer_from_token(token).ok_or_else(|| "the admission token holds no handshake answer".to_owned());
        if let Err(reason) = answer.and_then(|answer| self.take_candidate(peer, answer)) {
            self.reject_and_log(peer, address, &reason);
        }
    }

    fn reject_and_log(&mut self, peer: PeerId, address: SocketAddr, reason: &str) {
        log_rejection(address, reason);
        reject(self.fabric.as_mut(), peer, reason);
    }

    pub(super) fn take_candidate(&mut self, peer: PeerId, answer: Answer) -> Result<(), String> {
        let now = Instant::now();
        let Self { fabric, ours, links, by_peer, removed, .. } = self;
        let theirs = answer.theirs;
        if removed.contains(&theirs.node) {
            return Err(format!("{} was removed from the cluster", theirs.node));
        }
        agree(ours, &theirs).map_err(|error| error.to_string())?;
        let link = links.get_mut(&theirs.node).ok_or_else(|| format!("{} is no peer of {}", theirs.node, ours.node))?;
        link.check_precedence(ours.node, &theirs, now)?;
        // If the peer is gone already, its end comes as an event like any other.
        fabric.accept(peer, &answer.message).map_err(|error| error.to_string())?;
        by_peer.insert(peer, link.node);
        if link.candidates.is_full() {
            fabric.close(link.candidates.remove(0).peer);
        }
        link.candidates.push(Candidate { peer, channel: answer.channel, run: theirs.run, since: now });
        Ok(())
    }

    /// Handles a new connection. The acceptor of an outgoing connection has authenticated itself; an incoming one has
    /// to authenticate first.
    pub(crate) fn connected(&mut self, peer: PeerId, hello: &[u8]) {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else { return };
        let is_authenticated = matches!(link.state, LinkState::Up { peer: current, .. } if current == peer);
        if is_authenticated || link.candidates.iter().any(|candidate| candidate.peer == peer) {
            return;
        }
        let idle = LinkState::Idle { retry_at: Instant::now() };
        match std::mem::replace(&mut link.state, idle) {
            LinkState::Connecting { peer: expected, initiator } if expected == peer => {
                let outcome = initiator.finish(hello).and_then(|(theirs, channel)| {
                    if theirs.node == link.node { Ok((theirs, channel)) } else { Err(wrong_node(link, theirs.node)) }
                });
                match outcome {
                    Ok((theirs, channel)) => {
                        link.run = theirs.run;
                        link.state = LinkState::AwaitingWelcome { peer, channel, since: Instant::now() };
                        if let Some(staging) = link.expose_staging(self.fabric.as_mut(), peer) {
                            link.post(self.fabric.as_mut(), &welcome(staging));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(node = link.node.0, address = %link.address, %error, "handshake failed");
                        link.state = LinkState::Idle { retry_at: Instant::now() + link.next_backoff() };
                        self.fabric.close(peer);
                    }
                }
            }
            other => {
                link.state = other;
                self.fabric.close(peer);
            }
        }
    }

    /// Handles the first message of a peer that this node has connected to.
    pub(crate) fn handle_welcome(&mut self, peer: PeerId, plain: &[u8]) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            return ReceivedMessage::None;
        };
        let Some((staging, clock)) = staging_in(plain) else {
            self.fabric.close(peer);
            return ReceivedMessage::None;
        };
        let idle = LinkState::Idle { retry_at: Instant::now() };
        match std::mem::replace(&mut link.state, idle) {
            LinkState::AwaitingWelcome { peer, channel, since } => {
                link.state = LinkState::Up { peer, channel, ours: true, since };
                link.set_up(staging);
                ReceivedMessage::Connected { node: link.node, clock, again: false }
            }
            other => {
                link.state = other;
                ReceivedMessage::None
            }
        }
    }

    /// Handles the first authentic message of a peer that connected to this node: its connection replaces the current
    /// one, unless both sides have just connected to each other and this side's connection stays.
    pub(crate) fn authenticate_candidate(&mut self, peer: PeerId, plain: &[u8]) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            return ReceivedMessage::None;
        };
        let Some(index) = link.candidates.iter().position(|candidate| candidate.peer == peer) else {
            return ReceivedMessage::None;
        };
        let Candidate { channel, run, since, .. } = link.candidates.remove(index);
        let Some((staging, clock)) = staging_in(plain) else {
            self.fabric.close(peer);
            return ReceivedMessage::None;
        };
        if link.prefers_own(self.ours.node, run, Instant::now()) {
            self.fabric.close(peer);
            return ReceivedMessage::None;
        }
        let fresh = LinkState::Up { peer, channel, ours: false, since };
        let (again, old) = match std::mem::replace(&mut link.state, fresh) {
            LinkState::Idle { .. } => (false, None),
            LinkState::Connecting { peer, .. } | LinkState::AwaitingWelcome { peer, .. } => (false, Some(peer)),
            LinkState::Up { peer, .. } => (true, Some(peer)),
        };
        if let Some(old) = old {
            self.fabric.close(old);
        }
        link.run = run;
        link.windows.clear();
        link.send_queue.clear();
        link.has_overflowed = false;
        let Some(ours) = link.expose_staging(self.fabric.as_mut(), peer) else {
            link.state = LinkState::Idle { retry_at: Instant::now() + link.next_backoff() };
            return ReceivedMessage::None;
        };
        link.post(self.fabric.as_mut(), &welcome(ours));
        link.set_up(staging);
        ReceivedMessage::Connected { node: link.node, clock, again }
    }

    /// Handles the end of a connection.
    pub(crate) fn closed(&mut self, peer: PeerId, reason: CloseReason, hello: &[u8]) -> Option<LinkChange> {
        let link = self.links.get_mut(&self.by_peer.remove(&peer)?)?;
        link.candidates.retain(|candidate| candidate.peer != peer);
        let was_up = match &link.state {
            LinkState::Connecting { peer: current, .. } | LinkState::AwaitingWelcome { peer: current, .. }
                if *current == peer =>
            {
                false
            }
            LinkState::Up { peer: current, .. } if *current == peer => true,
            // A candidate, or a connection that a newer one has replaced.
            _ => return None,
        };
        link.windows.clear();
        link.send_queue.clear();
        link.has_overflowed = false;
        link.state = LinkState::Idle { retry_at: Instant::now() + link.next_backoff() };
        // The rejecting peer is not authenticated: use its text for the log only.
        let peer_reason = String::from_utf8_lossy(hello);
        if was_up {
            link.since_us = wall_us();
            tracing::warn!(node = link.node.0, address = %link.address, %reason, "disconnected");
        } else if !std::mem::replace(&mut link.has_logged_failure, true) {
            tracing::info!(node = link.node.0, address = %link.address, %reason, %peer_reason, "not connected yet, trying again");
        }
        was_up.then_some(LinkChange::Down(link.node))
    }
}

impl Link {
    /// Decides if a new connection may compete with the current one.
    fn check_precedence(&self, ours: NodeId, theirs: &PeerHello, now: Instant) -> Result<(), String> {
        let is_crossed = theirs.node < ours;
        match &self.state {
            LinkState::Idle { .. } => Ok(()),
            LinkState::Connecting { .. } if is_crossed => Ok(()),
            LinkState::Connecting { .. } => Err(format!("{ours} is connecting to this peer itself")),
            LinkState::AwaitingWelcome { since, .. } | LinkState::Up { since, .. } => {
                let made_by_us =
                    matches!(self.state, LinkState::AwaitingWelcome { .. } | LinkState::Up { ours: true, .. });
                let is_new_run = theirs.run != self.run;
                let is_settled = now.duration_since(*since) >= Links::SETTLED;
                if is_new_run || is_settled || (made_by_us && is_crossed) {
                    Ok(())
                } else {
                    Err(format!("{ours} is connected already"))
                }
            }
        }
    }

    /// Returns true if this node's own connection stays beside one that the same run of the peer made at the same time.
    /// The peer decides the same way. Otherwise each side would close the connection that the other one keeps.
    fn prefers_own(&self, ours: NodeId, run: u32, now: Instant) -> bool {
        let (LinkState::AwaitingWelcome { since, .. } | LinkState::Up { since, ours: true, .. }) = &self.state else {
            return false;
        };
        ours < self.node && run == self.run && now.duration_since(*since) < Links::SETTLED
    }

    fn set_up(&mut self, staging: RemoteWindow) {
        self.staging = staging;
        self.since_us = wall_us();
        self.retry_after = Links::RETRY_FIRST;
        self.has_logged_failure = false;
        tracing::info!(node = self.node.0, address = %self.address, "connected");
    }
}

fn wrong_node(link: &Link, found: NodeId) -> HandshakeError {
    tracing::warn!(expected = link.node.0, found = found.0, address = %link.address, "another node answers at this address");
    HandshakeError::WrongNode(found)
}

/// Encodes the first message on a connection: the window for staged puts, and the time of this node.
fn welcome(staging: RemoteWindow) -> Plain {
    Message::Welcome { staging }.encode(Timestamp(wall_us() << Timestamp::COUNTER_BITS), &[])
}

fn staging_in(plain: &[u8]) -> Option<(RemoteWindow, Timestamp)> {
    match Message::decode(plain) {
        Ok((Message::Welcome { staging }, clock, _)) if staging.bytes >= STAGING_BYTES as u64 => {
            // A window that wraps around is invalid.
            staging.base.checked_add(staging.bytes).map(|_| (staging, clock))
        }
        _ => None,
    }
}
