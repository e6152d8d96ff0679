//! Segments of other homes that this node knows: their windows, and the one-sided reads through them.

use crate::action::{Action, Fetch, FetchTarget, PeerAction, RangeSet};
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::state::peers::{Peer, RemoteSegment};
use crate::state::pending::{PendingReads, Transfer};
use ddss_core::{Failure, Header, Message, NodeId, RemoteWindow, SegmentId, SegmentInfo};

impl Remote<'_> {
    /// Returns the recorded info of a remote segment.
    #[inline]
    pub(crate) fn known_segment(&mut self, segment: SegmentId) -> Option<SegmentInfo> {
        let home = self.home_of(segment);
        let remote = self.peers.reachable(home)?.remotes.get(&segment)?;
        (!remote.leaving).then_some(remote.info)
    }

    /// Returns true if the home has withdrawn a window that a read still uses.
    pub(crate) fn is_withdrawn(&mut self, segment: SegmentId) -> bool {
        let home = self.home_of(segment);
        self.peers.reachable(home).and_then(|peer| peer.remotes.get(&segment)).is_some_and(|remote| remote.leaving)
    }

    /// Starts the reads of a get that waits in [`WaitState::Fetch`].
    #[inline]
    pub(crate) fn fetch(&mut self, step: StepId, fetching: &PendingReads, target: FetchTarget) -> Result<(), Failure> {
        let PendingReads { transfer: Transfer { segment, mut parts, .. }, history_version, refresh, .. } = *fetching;
        let home = self.home_of(segment);
        let remote = self.peers.reachable(home).and_then(|peer| peer.remotes.get_mut(&segment));
        let remote = remote.filter(|remote| !remote.leaving).ok_or(Failure::NotFound)?;
        let (window, info) = (remote.window, remote.info);
        if let Some(layout) = info.layout() {
            let place = layout.record(self.output.row_of(layout, info.bytes, &parts)?);
            remote.reads += 1;
            self.output.push(Action::Peer(PeerAction::FetchRecord { node: home, step, window, place, parts, target }));
            return Ok(());
        }
        remote.reads += 1;
        let line = history_version
            .and_then(|version| Header::history_offset(info.bytes, info.history_len, version))
            .unwrap_or(0);
        if refresh {
            parts = RangeSet::One { offset: 0, bytes: info.bytes as u32 };
        }
        self.output.push(Action::Peer(PeerAction::Fetch(Fetch { node: home, step, window, line, parts, target })));
        Ok(())
    }

    /// Ends one read of a remote segment; the last one informs a home that waits for it. Returns the info of a segment that
    /// stays.
    #[inline]
    pub(crate) fn read_ended(&mut self, segment: SegmentId) -> Option<SegmentInfo> {
        let home = self.home_of(segment);
        let peer = self.peers.reachable(home)?;
        let remote = peer.remotes.get_mut(&segment)?;
        remote.reads = remote.reads.saturating_sub(1);
        if !remote.leaving {
            return Some(remote.info);
        }
        if remote.reads == 0 {
            peer.remotes.remove(&segment);
            self.output.send(home, Message::Forgotten { segment });
        }
        None
    }

    /// Records a home's description; `false` if the table is full.
    pub(crate) fn record_segment(&mut self, node: NodeId, info: SegmentInfo, window: RemoteWindow) -> bool {
        let Some(peer) = self.peers.reachable(node) else { return false };
        if peer.remotes.len() == Peer::REMOTES_MAX && !peer.remotes.contains_key(&info.segment) {
            return false;
        }
        let fresh = RemoteSegment { info, window, reads: 0, leaving: false };
        let remote = peer.remotes.entry(info.segment).or_insert(fresh);
        (remote.info, remote.window) = (info, window);
        true
    }

    /// Handles a change of permissions at a remote home.
    pub(crate) fn handle_info_change(&mut self, node: NodeId, info: SegmentInfo) {
        if self.home_of(info.segment) != node {
            if info.copies > 1 {
                // The sender is a former home.
                return;
            }
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        if let Some(remote) = self.peers.reachable(node).and_then(|peer| peer.remotes.get_mut(&info.segment)) {
            remote.info.permissions = info.permissions;
        }
    }

    /// Drops the window over a segment that its home has released.
    pub(crate) fn handle_forget(&mut self, node: NodeId, segment: SegmentId) {
        let Some(peer) = self.peers.reachable(node) else { return };
        match peer.remotes.get_mut(&segment) {
            Some(remote) if remote.reads > 0 => remote.leaving = true,
            _ => {
                peer.remotes.remove(&segment);
                self.output.send(node, Message::Forgotten { segment });
            }
        }
    }
}
