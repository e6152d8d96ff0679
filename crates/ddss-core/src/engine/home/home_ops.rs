//! What is asked of segments whose home is this node, by its own clients and by other nodes: done by this node's
//! progress thread, which is the one arbiter of their versions, words and locks.

use crate::engine::action::{Action, CommitSource, RangeSet};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::fault_injection::planted;
use crate::engine::replication::forward::SegmentChange;
use crate::engine::state::lock_queue::{Destination, Get, PendingOp, Requester, Waiter, Watcher};
use crate::engine::state::segments::Segment;
use crate::model::segment::{Access, Header, Principal};
use crate::request::operation::{LockRequest, PutConditions};
use crate::{Completion, Failure, Message, Outcome, SegmentId, Timestamp, Version};

/// An atomic whose word is being looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAtomic {
    now: Now,
    segment: SegmentId,
    asker: Requester,
    offset: u64,
    change: crate::AtomicOp,
    deadline_us: u64,
}

/// What an answer says besides how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReplyFields {
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// The old word, or a token.
    pub(crate) word: u64,
}

impl Segment {
    /// The newest version's time is told of it as long as a copy of it is kept.
    pub(crate) fn keep_stamp(&mut self) {
        if let Some(place) = self.version.0.checked_rem(self.stamps.len() as u64) {
            self.stamps[place as usize] = self.timestamp;
        }
    }
}

impl Engine {
    pub(crate) fn asker(caller: &LocalCaller) -> Requester {
        Requester::Client(caller.lane, caller.request)
    }

    /// Does what is asked of a segment, or lets it wait behind the lock. An error is the answer.
    pub(crate) fn ask_home(&mut self, now: Now, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let mut segment = self.segments.get(id)?;
        if segment.mirror.is_some() {
            self.set_gate(now, id);
            segment = self.segments.get(id)?;
        }
        let minds = self.may(segment, &waiter).map_err(|failure| self.doubted(id, failure))?;
        if !segment.guard.must_wait(&waiter.wanted, waiter.asker.owner(), minds) {
            return self.do_now(now, id, waiter);
        }
        self.wait_home(id, waiter)
    }

    /// Lets what is asked wait behind the lock.
    fn wait_home(&mut self, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let Waiter { asker, wanted, .. } = waiter;
        let segment = self.segments.get_mut(id)?;
        match wanted {
            PendingOp::Lock(LockRequest { no_wait: true, .. }) => return Err(Failure::Locked),
            // It would wait for itself. Another thread of that client may hold the lock, but then this one has to ask
            // for it as well: to let it pass would lose updates.
            PendingOp::Put { .. } | PendingOp::Atomic { .. } if segment.guard.is_held_by(asker.owner()) => {
                return Err(Failure::OwnLock);
            }
            _ => {}
        }
        if !segment.guard.wait(waiter) {
            return Err(Failure::Busy);
        }
        self.segments.note_busy(id);
        Ok(())
    }

    /// Who may not know any more whom a segment belongs to refuses nobody for good.
    #[cold]
    pub(crate) fn doubted(&self, id: SegmentId, failure: Failure) -> Failure {
        let in_doubt = self.segments.get(id).is_ok_and(|segment| segment.mirror.is_some() && segment.guard.shut);
        if in_doubt && failure == Failure::PermissionDenied { Failure::NodeDown } else { failure }
    }

    /// Whether who asks may, and whether the bytes are there; then, whether the call minds the segment's lock.
    fn may(&self, segment: &Segment, waiter: &Waiter) -> Result<bool, Failure> {
        if segment.is_copy() {
            return Err(Failure::NodeDown);
        }
        let who = waiter.who;
        let inside = |parts: &RangeSet| match *parts {
            RangeSet::One { offset, bytes } => segment.check_range(offset, bytes),
            RangeSet::Many { .. } => {
                self.ranges_of(parts).iter().try_for_each(|range| segment.check_range(range.offset, range.bytes))
            }
        };
        match &waiter.wanted {
            PendingOp::Get(get) => {
                segment.permissions.allow(who, Access::Read)?;
                inside(&get.parts)?;
                Ok(true)
            }
            PendingOp::Put { parts, terms, .. } => {
                let allowed = segment.permissions.allow(who, Access::Write);
                if !planted!(self, UncheckedPermission) {
                    allowed?;
                }
                inside(parts)?;
                if segment.spec.model.put_names_version(terms.asks) && terms.version.is_none() {
                    return Err(Failure::VersionMismatch);
                }
                Ok(terms.token.is_none() && segment.spec.model.put_minds(terms.asks))
            }
            PendingOp::Atomic { offset, token, .. } => {
                segment.permissions.allow(who, Access::Write)?;
                segment.check_range(*offset, 8)?;
                Ok(token.is_none())
            }
            PendingOp::Lock(wish) => {
                segment.permissions.allow(who, if wish.shared { Access::Read } else { Access::Write })?;
                Ok(true)
            }
        }
    }

    pub(crate) fn do_now(&mut self, now: Now, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let Waiter { asker, deadline_us, .. } = waiter;
        match waiter.wanted {
            PendingOp::Get(get) => self.get_now(id, asker, get)?,
            PendingOp::Put { parts, source, terms } => {
                self.check_terms(now, id, asker, terms)?;
                self.change(now, id, SegmentChange { asker, parts, source, word: 0, deadline_us })?;
            }
            PendingOp::Atomic { offset, change, token } => {
                self.check_terms(now, id, asker, PutConditions { token, ..PutConditions::default() })?;
                let segment = self.segments.get_mut(id)?;
                segment.guard.looking = true;
                let at = segment.at + Header::DATA_OFFSET + offset;
                self.looks.push_back(PendingAtomic { now, segment: id, asker, offset, change, deadline_us });
                self.act(Action::Look { at });
            }
            PendingOp::Lock(wish) => self.grant(now, id, asker, wish)?,
        }
        Ok(())
    }

    fn get_now(&mut self, id: SegmentId, asker: Requester, get: Get) -> Result<(), Failure> {
        let Get { parts, sink, version, .. } = get;
        let (at, version, timestamp) = self.segments.get(id)?.find(version)?;
        let (lane, request) = match asker {
            Requester::Client(lane, request) => (lane, request),
            Requester::Peer(node, step) => return self.hand_over(node, step, at, parts, (version, timestamp)),
        };
        let inline = sink == Destination::Inline;
        let done = Completion::bare(request, Outcome::Done);
        let done = Completion { version, timestamp, inline, ..done };
        let data = match (sink, parts) {
            (Destination::Inline, RangeSet::One { offset, bytes }) => Some((at + offset, bytes as u8)),
            (Destination::Arena(into), _) => {
                self.act(Action::CopyOut { at, parts, client: lane.client, into });
                None
            }
            _ => return Err(Failure::Malformed),
        };
        self.give_up_table(&parts);
        self.reply(lane, done, data);
        Ok(())
    }

    fn check_terms(&self, now: Now, id: SegmentId, asker: Requester, terms: PutConditions) -> Result<(), Failure> {
        if terms.token.is_none() && terms.version.is_none() {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        let token = terms.token.filter(|_| !planted!(self, UncheckedToken));
        if token.is_some_and(|token| !segment.guard.admits(token, asker.owner(), now.steady_us)) {
            return Err(Failure::LockLost);
        }
        if terms.version.is_some_and(|version| version != segment.version) && !planted!(self, UncheckedVersion) {
            return Err(Failure::VersionMismatch);
        }
        Ok(())
    }

    /// Steps the version and says what to copy.
    pub(crate) fn commit(
        &mut self,
        now: Now,
        id: SegmentId,
        parts: RangeSet,
        source: CommitSource,
    ) -> Result<(Version, Timestamp), Failure> {
        let timestamp = self.clock.next(now.wall_us);
        let segment = self.segments.get(id)?;
        let before = segment.version;
        let timestamp = if planted!(self, StandingClock) { segment.timestamp } else { timestamp };
        let version = Version(before.0 + u64::from(!planted!(self, SkippedVersion)));
        self.counters.commits += 1;
        self.apply(id, parts, source, (version, timestamp))?;
        Ok((version, timestamp))
    }

    /// The bytes are of that version from now on.
    pub(crate) fn apply(
        &mut self,
        id: SegmentId,
        parts: RangeSet,
        source: CommitSource,
        stamp: (Version, Timestamp),
    ) -> Result<(), Failure> {
        let (version, timestamp) = stamp;
        let segment = self.segments.get_mut(id)?;
        (segment.version, segment.timestamp) = stamp;
        let at = segment.at;
        let kept = segment.line_of(version);
        segment.keep_stamp();
        let (state, bytes) = (Header::committed(version), segment.spec.bytes);
        self.act(Action::Commit { at, parts, source, version, timestamp });
        if let Some(to) = kept.filter(|_| !planted!(self, HistoryLost)) {
            let (segment, timestamp) = (id.to_bits(), timestamp.0);
            self.act(Action::Keep { at, to, header: Header { state, timestamp, segment, bytes, locked: 0 } });
        }
        Ok(())
    }

    /// The word that [`Action::Look`] asked for.
    pub fn looked(&mut self, word: u64) {
        let look = self.looks.pop_front().expect("each look is answered once");
        let PendingAtomic { now, segment: id, asker, offset, change, deadline_us } = look;
        let Ok(segment) = self.segments.get_mut(id) else {
            return self.answer(asker, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        };
        segment.guard.looking = false;
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word };
        match change.apply(word) {
            Some(new) => {
                let (parts, source) = (RangeSet::One { offset, bytes: 8 }, CommitSource::Word(new));
                if let Err(failure) = self.change(now, id, SegmentChange { asker, parts, source, word, deadline_us }) {
                    self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
                }
            }
            None => self.answer(asker, Outcome::Done, told),
        }
        self.serve_line(now, id);
    }

    /// Answers those who wait for a version above theirs.
    pub(crate) fn show_version(&mut self, id: SegmentId, version: Version, timestamp: Timestamp) {
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(watcher) = segment.guard.next_seen(version)
        {
            self.answer(watcher.asker, Outcome::Done, ReplyFields { version, timestamp, word: 0 });
        }
    }

    /// Waits for a version above `above`, or tells the one that is there.
    pub(crate) fn await_here(
        &mut self,
        now: Now,
        id: SegmentId,
        who: Principal,
        watcher: Watcher,
    ) -> Result<(), Failure> {
        if self.segments.get(id)?.mirror.is_some() {
            self.check_home(now, id)?;
        }
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(who, Access::Read)?;
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word: 0 };
        if told.version > watcher.above {
            self.answer(watcher.asker, Outcome::Done, told);
            return Ok(());
        }
        if !segment.guard.watch(watcher) {
            return Err(Failure::Busy);
        }
        self.segments.note_busy(id);
        Ok(())
    }

    pub(crate) fn turn_away(&mut self, waiter: &Waiter, failure: Failure) {
        self.drop_kept(&waiter.wanted);
        self.answer(waiter.asker, Outcome::Failed(failure), ReplyFields::default());
    }

    /// What was kept for one who will not get what it wanted.
    pub(crate) fn drop_kept(&mut self, wanted: &PendingOp) {
        if let PendingOp::Put { source: CommitSource::Kept(kept), .. } = wanted {
            self.kept.remove(kept);
        }
        if let PendingOp::Put { parts, .. } | PendingOp::Get(Get { parts, .. }) = wanted {
            self.give_up_table(parts);
        }
    }

    /// Tells whoever asked.
    pub(crate) fn answer(&mut self, asker: Requester, outcome: Outcome, told: ReplyFields) {
        let ReplyFields { version, timestamp, word } = told;
        match asker {
            Requester::Client(lane, request) => {
                let mut completion = Completion { version, timestamp, ..Completion::bare(request, outcome) };
                completion.data[..8].copy_from_slice(&word.to_le_bytes());
                self.reply(lane, completion, None);
            }
            Requester::Peer(_, 0) => {}
            Requester::Peer(node, step) => self.send(node, Message::Ended { step, outcome, version, timestamp, word }),
        }
    }
}
