//! Gets of remote segments: one batch of one-sided reads, in which the home's engine takes no part.
//!
//! Header, bytes, state word again ([`Action::Fetch`]); if a put came between, it is done again, and the second time
//! the home is asked to do it (`served_get.rs`). A version that is named is read where its copy is kept, with the header
//! that stands there. A Delta segment's reader takes the copy of the version before rather than wait for a writer.
//! Where each read of a batch waits for the one before it, a get that minds the lock is the home's from the beginning.

use crate::engine::action::{Action, FetchTarget, RangeSet};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::fault_injection::planted;
use crate::engine::state::pending::{Pending, PendingReads, StepId, Transfer, WaitState};
use crate::engine::state::segments::check_range;
use crate::model::coherence::LockDependency;
use crate::model::segment::{Access, Header, SnapshotCheck};
use crate::peer::message::SegmentInfo;
use crate::{Completion, Failure, Message, Outcome, SegmentId, Timestamp, Version};

impl Engine {
    /// Gets bytes of a remote segment: reads them, or asks its home about it first. With an error the table of the
    /// ranges is still the caller's.
    pub(crate) fn get_far(&mut self, now: Now, caller: LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        self.reachable_home(transfer.segment)?;
        let Some(facts) = self.noted(transfer.segment) else {
            // While somebody still reads it where it was, nothing new is noted about it: asking for its facts again and again would
            // bring no more.
            return if self.is_left(transfer.segment) {
                self.let_home_get(now, &caller, transfer)
            } else {
                self.ask_facts(caller, transfer)
            };
        };
        if facts.copies == 1 {
            facts.permissions.allow(caller.who, Access::Read)?;
        }
        for range in &self.ranges_of(&transfer.parts) {
            check_range(facts.bytes, range.offset, range.bytes)?;
        }
        let rules = facts.model.get_rules(transfer.look.asks);
        let kept = transfer.look.version.filter(|_| facts.keeps > 0);
        let minds = if transfer.look.version.is_some() { LockDependency::Nobody } else { rules.minds };
        let takes_trips = minds == LockDependency::Alone && !self.reads_overlap;
        if facts.copies > 1 || minds == LockDependency::Anyone || takes_trips {
            return self.let_home_get(now, &caller, transfer);
        }
        if transfer.look.version.is_none() && self.get_copied(now, &caller, &transfer, &facts, rules.copy_us)? {
            return Ok(());
        }
        let fetching = PendingReads { transfer, tears: 0, kept, refresh: false };
        let step = self.begin(&caller, WaitState::Fetch(fetching))?;
        let target = FetchTarget::Arena(caller.lane.client, transfer.range);
        self.fetch(step, &fetching, target).inspect_err(|_| {
            self.operations.remove(step);
        })
    }

    /// What this node has noted about a remote segment.
    pub(crate) fn noted(&mut self, segment: SegmentId) -> Option<SegmentInfo> {
        let home = self.home_of(segment);
        let remote = self.peers.reachable(home)?.remotes.get(&segment)?;
        (!remote.leaving).then_some(remote.facts)
    }

    /// Whether its home has taken a remote segment away from its place, and a read of that is still under way.
    fn is_left(&mut self, segment: SegmentId) -> bool {
        let home = self.home_of(segment);
        self.peers.reachable(home).and_then(|peer| peer.remotes.get(&segment)).is_some_and(|remote| remote.leaving)
    }

    fn let_home_get(&mut self, now: Now, caller: &LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        let step = self.begin(caller, WaitState::Home(transfer))?;
        if let Some(pending) = self.operations.get_mut(step).copied() {
            self.ask_home_to_get(now, step, &pending, transfer);
        }
        Ok(())
    }

    fn ask_facts(&mut self, caller: LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        let step = self.begin(&caller, WaitState::Facts { transfer })?;
        let message = Message::Describe { step: step.to_bits(), who: caller.who, segment: transfer.segment };
        self.send(self.home_of(transfer.segment), message);
        Ok(())
    }

    /// Starts the reads of a get that is noted as [`WaitState::Fetch`].
    pub(crate) fn fetch(&mut self, step: StepId, fetching: &PendingReads, target: FetchTarget) -> Result<(), Failure> {
        let PendingReads { transfer: Transfer { segment, mut parts, .. }, kept, refresh, .. } = *fetching;
        let home = self.home_of(segment);
        let remote = self.peers.reachable(home).and_then(|peer| peer.remotes.get_mut(&segment));
        let remote = remote.filter(|remote| !remote.leaving).ok_or(Failure::NotFound)?;
        remote.reads += 1;
        let (window, facts) = (remote.window, remote.facts);
        let line = kept.and_then(|version| Header::line_of(facts.bytes, facts.keeps, version)).unwrap_or(0);
        if refresh {
            parts = RangeSet::One { offset: 0, bytes: facts.bytes as u32 };
        }
        self.act(Action::Fetch { node: home, step, window, line, parts, target });
        Ok(())
    }

    /// The reads of a fetch ended: the header before the bytes and the state word after them, or why not.
    pub fn fetched(&mut self, now: Now, step: StepId, result: Result<(Header, u64), Failure>) {
        let Some(pending) = self.operations.get_mut(step).copied() else {
            self.counters.stale += 1;
            return;
        };
        let WaitState::Fetch(fetching) = pending.wait else { return };
        let PendingReads { transfer, kept, refresh, .. } = fetching;
        let segment = transfer.segment;
        let facts = self.noted(segment);
        self.read_ended(segment);
        let in_time = now.steady_us < pending.deadline_us;
        let header = match result {
            Ok((header, _)) if planted!(self, OneLook) => (header, header.state),
            Ok((header, after)) if planted!(self, TornAccepted) => (Header { state: after & !1, ..header }, after & !1),
            Ok(read) => read,
            Err(failure) => return self.end_fetch(step, &fetching, failure),
        };
        // Nothing may be noted any more, since it moves: then its home has to say whether the lock matters.
        let minds = facts.map_or(LockDependency::Anyone, |facts| facts.model.get_rules(transfer.look.asks).minds);
        let minds = if transfer.look.version.is_some() { LockDependency::Nobody } else { minds };
        let own = self.token_of(pending.lane.client, segment).map_or(0, |token| token.0);
        let locked = ![0, own].contains(&header.0.locked) && minds > LockDependency::Nobody && kept.is_none();
        let locked = locked && !planted!(self, UnseenLock);
        let proof = header.0.prove(segment, header.1);
        if let SnapshotCheck::Whole(_, timestamp) = proof {
            // What is made here from now on comes after it, by the clock too.
            self.clock.hear(timestamp, now.wall_us);
        }
        match proof {
            SnapshotCheck::Torn if in_time => {
                self.counters.torn_fetches += 1;
                self.torn(now, step, &pending, fetching, header.0.state);
            }
            SnapshotCheck::Torn => self.end_fetch(step, &fetching, Failure::Contended),
            // Somebody holds the lock alone and may not be through: the home knows when.
            SnapshotCheck::Whole(..) if locked && in_time => {
                self.ask_home_to_get(now, step, &pending, transfer);
            }
            SnapshotCheck::Whole(version, timestamp) if refresh => {
                self.refreshed(step, &pending, &transfer, (version, timestamp));
            }
            SnapshotCheck::Whole(version, timestamp) => {
                self.fetched_whole(step, &pending, &transfer, (version, timestamp))
            }
            // It may have moved, or nothing was kept in that place so far: the home knows.
            SnapshotCheck::Gone if in_time => {
                if refresh {
                    self.drop_coming(segment);
                }
                self.ask_home_to_get(now, step, &pending, transfer);
            }
            SnapshotCheck::Gone => self.end_fetch(step, &fetching, Failure::NotFound),
        }
    }

    fn fetched_whole(&mut self, step: StepId, pending: &Pending, transfer: &Transfer, stamp: (Version, Timestamp)) {
        let (version, timestamp) = stamp;
        self.over(step);
        let failure = match transfer.look.version {
            Some(wanted) if wanted < version => Some(Failure::VersionGone),
            Some(wanted) if wanted > version => Some(Failure::VersionMismatch),
            _ => None,
        };
        if let Some(failure) = failure {
            return self.finish(pending, Outcome::Failed(failure));
        }
        let done = Completion::bare(pending.request, Outcome::Done);
        self.reply(pending.lane, Completion { version, timestamp, ..done }, None);
    }

    /// A put came between: once more, or from where the version before is kept, or let the home do it.
    fn torn(&mut self, now: Now, step: StepId, pending: &Pending, fetching: PendingReads, state: u64) {
        let PendingReads { transfer, tears, .. } = fetching;
        if fetching.refresh {
            self.drop_coming(transfer.segment);
            return self.ask_home_to_get(now, step, pending, transfer);
        }
        if tears > 0 {
            return self.ask_home_to_get(now, step, pending, transfer);
        }
        let older = self.noted(transfer.segment).is_some_and(|facts| {
            facts.keeps > 0 && facts.model.get_rules(transfer.look.asks).older && transfer.look.version.is_none()
        });
        let kept = if older { Some(Version(state >> 1)) } else { fetching.kept };
        let again = PendingReads { tears: tears + 1, kept, ..fetching };
        self.go_on(now, step, pending, again);
    }

    /// The home had no room to do it.
    pub(crate) fn fetch_again(&mut self, now: Now, step: StepId, pending: &Pending, transfer: Transfer) {
        let keeps = self.noted(transfer.segment).is_some_and(|facts| facts.keeps > 0);
        let kept = transfer.look.version.filter(|_| keeps);
        self.go_on(now, step, pending, PendingReads { transfer, tears: 0, kept, refresh: false });
    }

    fn go_on(&mut self, now: Now, step: StepId, pending: &Pending, fetching: PendingReads) {
        if let Some(pending) = self.operations.get_mut(step) {
            pending.wait = WaitState::Fetch(fetching);
        }
        let target = FetchTarget::Arena(pending.lane.client, fetching.transfer.range);
        if self.fetch(step, &fetching, target).is_err() {
            // It moves, or is gone: the home knows.
            self.ask_home_to_get(now, step, pending, fetching.transfer);
        }
    }

    pub(crate) fn end_fetch(&mut self, step: StepId, fetching: &PendingReads, failure: Failure) {
        if fetching.refresh {
            self.drop_coming(fetching.transfer.segment);
        }
        if let Some(pending) = self.over(step) {
            self.finish(&pending, Outcome::Failed(failure));
        }
    }

    /// One read of a remote segment less; the last one lets its home know.
    pub(crate) fn read_ended(&mut self, segment: SegmentId) {
        let home = self.home_of(segment);
        let Some(peer) = self.peers.reachable(home) else { return };
        let Some(remote) = peer.remotes.get_mut(&segment) else { return };
        remote.reads = remote.reads.saturating_sub(1);
        if remote.leaving && remote.reads == 0 {
            peer.remotes.remove(&segment);
            self.send(home, Message::Forgotten { segment });
        }
    }
}
