//! Connection to one member.

use ddss_auth::{Channel, Initiator};
use ddss_verbs::PeerId;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// State of a connection.
#[derive(Debug)]
pub(super) enum ConnectionPhase {
    /// No connection: the member is unknown, or the next attempt comes later.
    Idle,
    /// This side has asked.
    Connecting { peer: PeerId, initiator: Initiator },
    /// Messages travel.
    Up { peer: PeerId, channel: Channel },
    /// The connection of this run has ended.
    Ended,
}

/// Incoming connection whose first message has not come.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) peer: PeerId,
    pub(super) channel: Channel,
    pub(super) since: Duration,
}

/// Connection to one member, and what is known of it.
#[derive(Debug)]
pub(super) struct Link {
    /// Run and address, from the directory.
    pub(super) known: Option<(u32, SocketAddr)>,
    pub(super) state: ConnectionPhase,
    pub(super) candidates: Vec<Candidate>,
    pub(super) retry_at: Duration,
    pub(super) retry_after: Duration,
    /// Time of the last message, or of the notice in the directory.
    pub(super) heard_at: Duration,
    /// Time of the last question whether the member lives.
    pub(super) asked_at: Duration,
    /// Sealed messages that wait for room in the fabric.
    pub(super) waiting: VecDeque<Vec<u8>>,
    pub(super) waiting_bytes: usize,
}

impl Link {
    pub(super) const RETRY_FIRST: Duration = Duration::from_millis(5);
    pub(super) const RETRY_LAST: Duration = Duration::from_millis(200);
    /// Unproven connections in the name of one member.
    pub(super) const CANDIDATES_MAX: usize = 4;

    pub(super) fn new() -> Self {
        Self {
            known: None,
            state: ConnectionPhase::Idle,
            candidates: Vec::new(),
            retry_at: Duration::ZERO,
            retry_after: Self::RETRY_FIRST,
            heard_at: Duration::ZERO,
            asked_at: Duration::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Starts over for another process in the member's place.
    pub(super) fn reset(&mut self, run: u32, address: SocketAddr, now: Duration) {
        *self = Self { known: Some((run, address)), retry_at: now, heard_at: now, asked_at: now, ..Self::new() };
    }

    /// Ends the current connection, and forgets what waited for it.
    pub(super) fn end(&mut self) {
        self.state = ConnectionPhase::Ended;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Schedules the next attempt to connect.
    pub(super) fn retry(&mut self, now: Duration) {
        self.state = ConnectionPhase::Idle;
        self.retry_at = now + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(Self::RETRY_LAST);
    }

    pub(super) fn peer(&self) -> Option<PeerId> {
        match self.state {
            ConnectionPhase::Up { peer, .. } | ConnectionPhase::Connecting { peer, .. } => Some(peer),
            ConnectionPhase::Idle | ConnectionPhase::Ended => None,
        }
    }
}
