//! How two nodes meet: who connects, who gives way, and when one is believed. The states are drawn in `links.rs`.

use super::handshake_worker::{HandshakeResult, HandshakeWorker, answer_in, tell};
use super::links::{Candidate, Link, LinkChange, Links, ReceivedMessage, State};
use crate::auth::{Answer, Initiator, Purpose, TrustError, agree};
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
    /// Connects to whoever is due; says when the next one is.
    pub(crate) fn connect_due(&mut self, fabric: &mut dyn Fabric, now: Instant) -> Option<Instant> {
        let Self { ours, plane, key, links, by_peer, .. } = self;
        let (key, purpose) = (key.as_ref()?, Purpose::Data(*plane));
        let mut next: Option<Instant> = None;
        let mut due = |at: Instant| next = Some(next.map_or(at, |other| other.min(at)));
        for link in links.values_mut() {
            link.candidates.retain(|candidate| {
                let late = candidate.since + Self::PROOF_MAX <= now;
                if late {
                    tracing::info!(node = link.node.0, address = %link.address, "one who connected proved nothing in time");
                    fabric.close(candidate.peer);
                }
                !late
            });
            link.candidates.iter().for_each(|candidate| due(candidate.since + Self::PROOF_MAX));
            match link.state {
                State::Idle { retry_at } if retry_at <= now => {}
                State::Idle { retry_at } => {
                    due(retry_at);
                    continue;
                }
                _ => continue,
            }
            let begun = Initiator::begin(key, purpose, ours).map_err(|error| error.to_string());
            let begun = begun.and_then(|(shake, hello)| {
                let peer = fabric.connect(link.address, &hello).map_err(|error| error.to_string())?;
                Ok(State::Connecting { peer, shake })
            });
            link.state = begun.unwrap_or_else(|error| {
                tracing::warn!(node = link.node.0, address = %link.address, error, "cannot connect");
                let retry_at = now + link.back_off();
                due(retry_at);
                State::Idle { retry_at }
            });
            if let State::Connecting { peer, .. } = link.state {
                by_peer.insert(peer, link.node);
            }
        }
        next
    }

    /// Somebody wants to connect: the doorman looks at what he says.
    pub(crate) fn asked(&mut self, fabric: &mut dyn Fabric, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let refused = match &mut self.doorman {
            None => "no cluster here",
            Some(doorman) => {
                if doorman.ask(peer, address, hello) {
                    return;
                }
                "too many are about to connect"
            }
        };
        self.turn_away(fabric, peer, address, refused);
    }

    /// Takes in those of whom the doorman knows who they are; says how many he had looked at. Nothing that is there gives
    /// way yet.
    pub(crate) fn meet(&mut self, fabric: &mut dyn Fabric) -> usize {
        let mut met = 0;
        while met < Self::MEETINGS_PER_ROUND
            && let Some(HandshakeResult { peer, address, verdict }) =
                self.doorman.as_mut().and_then(HandshakeWorker::answer)
        {
            met += 1;
            match verdict {
                Admission::Admit(pass) => self.take_in(fabric, peer, address, pass),
                // It was told in the log already.
                Admission::Reject(reason) => reject(fabric, peer, &reason),
            }
        }
        met
    }

    /// The doorkeeper has let somebody in on the fabric's porch.
    pub(crate) fn admitted(&mut self, fabric: &mut dyn Fabric, peer: PeerId, address: SocketAddr) {
        if let Some(pass) = fabric.take_admission_token(peer) {
            self.take_in(fabric, peer, address, pass);
        }
    }

    fn take_in(&mut self, fabric: &mut dyn Fabric, peer: PeerId, address: SocketAddr, pass: AdmissionToken) {
        let answer = answer_in(pass).ok_or_else(|| "no pass of this doorkeeper".to_owned());
        if let Err(reason) = answer.and_then(|answer| self.take_candidate(fabric, peer, answer)) {
            self.turn_away(fabric, peer, address, &reason);
        }
    }

    fn turn_away(&mut self, fabric: &mut dyn Fabric, peer: PeerId, address: SocketAddr, reason: &str) {
        tell(address, reason);
        reject(fabric, peer, reason);
    }

    fn take_candidate(&mut self, fabric: &mut dyn Fabric, peer: PeerId, answer: Answer) -> Result<(), String> {
        let now = Instant::now();
        let Self { ours, links, by_peer, removed, .. } = self;
        let theirs = answer.theirs;
        if removed.contains(&theirs.node) {
            return Err(format!("{} was removed from the cluster", theirs.node));
        }
        agree(ours, &theirs).map_err(|error| error.to_string())?;
        let link = links.get_mut(&theirs.node).ok_or_else(|| format!("{} is no peer of {}", theirs.node, ours.node))?;
        link.gives_way(ours.node, &theirs, now)?;
        // If the peer is gone already, its end comes as an event like any other.
        fabric.accept(peer, &answer.message).map_err(|error| error.to_string())?;
        by_peer.insert(peer, link.node);
        if link.candidates.is_full() {
            fabric.close(link.candidates.remove(0).peer);
        }
        link.candidates.push(Candidate { peer, channel: answer.channel, run: theirs.run, since: now });
        Ok(())
    }

    /// A connection stands: one that we made has shown who answers; one that was made to us has to prove itself first.
    pub(crate) fn connected(&mut self, fabric: &mut dyn Fabric, peer: PeerId, hello: &[u8]) {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else { return };
        let proved = matches!(link.state, State::Up { peer: current, .. } if current == peer);
        if proved || link.candidates.iter().any(|candidate| candidate.peer == peer) {
            return;
        }
        let idle = State::Idle { retry_at: Instant::now() };
        match std::mem::replace(&mut link.state, idle) {
            State::Connecting { peer: expected, shake } if expected == peer => {
                let met = shake.finish(hello).and_then(|(theirs, channel)| {
                    if theirs.node == link.node { Ok((theirs, channel)) } else { Err(stranger(link, theirs.node)) }
                });
                match met {
                    Ok((theirs, channel)) => {
                        link.run = theirs.run;
                        link.state = State::Meeting { peer, channel, since: Instant::now() };
                        if let Some(staging) = link.open_room(fabric, peer) {
                            link.post(fabric, &Message::Welcome { staging }.encode(Timestamp::default(), &[]));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(node = link.node.0, address = %link.address, %error, "cannot meet");
                        link.state = State::Idle { retry_at: Instant::now() + link.back_off() };
                        fabric.close(peer);
                    }
                }
            }
            other => {
                link.state = other;
                fabric.close(peer);
            }
        }
    }

    /// The first message of one that we connected to.
    pub(crate) fn welcomed(&mut self, fabric: &mut dyn Fabric, peer: PeerId, plain: &[u8]) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            return ReceivedMessage::Nothing;
        };
        let Some(staging) = staging_in(plain) else {
            fabric.close(peer);
            return ReceivedMessage::Nothing;
        };
        let idle = State::Idle { retry_at: Instant::now() };
        match std::mem::replace(&mut link.state, idle) {
            State::Meeting { peer, channel, since } => {
                link.state = State::Up { peer, channel, ours: true, since };
                link.up(staging);
                ReceivedMessage::Met { node: link.node, again: false }
            }
            other => {
                link.state = other;
                ReceivedMessage::Nothing
            }
        }
    }

    /// One who connected has said something that opens: it is there now, and takes the place of what was there.
    pub(crate) fn proved(&mut self, fabric: &mut dyn Fabric, peer: PeerId, plain: &[u8]) -> ReceivedMessage {
        let Some(link) = self.by_peer.get(&peer).and_then(|node| self.links.get_mut(node)) else {
            return ReceivedMessage::Nothing;
        };
        let Some(index) = link.candidates.iter().position(|candidate| candidate.peer == peer) else {
            return ReceivedMessage::Nothing;
        };
        let Candidate { channel, run, since, .. } = link.candidates.remove(index);
        let Some(staging) = staging_in(plain) else {
            fabric.close(peer);
            return ReceivedMessage::Nothing;
        };
        let fresh = State::Up { peer, channel, ours: false, since };
        let (again, old) = match std::mem::replace(&mut link.state, fresh) {
            State::Idle { .. } => (false, None),
            State::Connecting { peer, .. } | State::Meeting { peer, .. } => (false, Some(peer)),
            State::Up { peer, .. } => (true, Some(peer)),
        };
        if let Some(old) = old {
            fabric.close(old);
        }
        link.run = run;
        link.windows.clear();
        link.outbox.clear();
        let Some(ours) = link.open_room(fabric, peer) else {
            link.state = State::Idle { retry_at: Instant::now() + link.back_off() };
            return ReceivedMessage::Nothing;
        };
        link.post(fabric, &Message::Welcome { staging: ours }.encode(Timestamp::default(), &[]));
        link.up(staging);
        ReceivedMessage::Met { node: link.node, again }
    }

    /// A connection ended.
    pub(crate) fn closed(&mut self, peer: PeerId, reason: CloseReason, hello: &[u8]) -> Option<LinkChange> {
        let link = self.links.get_mut(&self.by_peer.remove(&peer)?)?;
        link.candidates.retain(|candidate| candidate.peer != peer);
        let was_up = match &link.state {
            State::Connecting { peer: current, .. } | State::Meeting { peer: current, .. } if *current == peer => false,
            State::Up { peer: current, .. } if *current == peer => true,
            // A candidate, or one whose place a newer one took.
            _ => return None,
        };
        link.windows.clear();
        link.outbox.clear();
        link.state = State::Idle { retry_at: Instant::now() + link.back_off() };
        // Whoever turned us away is not proved to be anybody: its words are for the log and nothing else.
        let told = String::from_utf8_lossy(hello);
        if was_up {
            link.since_us = wall_us();
            tracing::warn!(node = link.node.0, address = %link.address, %reason, "disconnected");
        } else if !std::mem::replace(&mut link.complained, true) {
            tracing::info!(node = link.node.0, address = %link.address, %reason, %told, "not connected yet, trying again");
        }
        was_up.then_some(LinkChange::Down(link.node))
    }
}

impl Link {
    /// Decides whether a new connection may try to take the place of what is there.
    fn gives_way(&self, ours: NodeId, theirs: &PeerHello, now: Instant) -> Result<(), String> {
        let crossed = theirs.node < ours;
        match &self.state {
            State::Idle { .. } => Ok(()),
            State::Connecting { .. } if crossed => Ok(()),
            State::Connecting { .. } => Err(format!("{ours} connects by itself")),
            State::Meeting { since, .. } | State::Up { since, .. } => {
                let made_by_us = matches!(self.state, State::Meeting { .. } | State::Up { ours: true, .. });
                let reborn = theirs.run != self.run;
                let settled = now.duration_since(*since) >= Links::SETTLED;
                if reborn || settled || (made_by_us && crossed) {
                    Ok(())
                } else {
                    Err(format!("{ours} is connected already"))
                }
            }
        }
    }

    fn up(&mut self, staging: RemoteWindow) {
        self.staging = staging;
        self.since_us = wall_us();
        self.retry_after = Links::RETRY_FIRST;
        self.complained = false;
        tracing::info!(node = self.node.0, address = %self.address, "connected");
    }
}

fn stranger(link: &Link, found: NodeId) -> TrustError {
    tracing::warn!(expected = link.node.0, found = found.0, address = %link.address, "another node answers at this address");
    TrustError::WrongNode(found)
}

fn staging_in(plain: &[u8]) -> Option<RemoteWindow> {
    match Message::decode(plain) {
        Ok((Message::Welcome { staging }, ..)) if staging.bytes >= STAGING_BYTES as u64 => {
            // A window that wraps around is nowhere.
            staging.base.checked_add(staging.bytes).map(|_| staging)
        }
        _ => None,
    }
}
