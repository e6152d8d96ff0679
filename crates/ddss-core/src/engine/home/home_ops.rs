//! What is asked of segments whose home is this node, by its own clients and by other nodes: done by this node's
//! progress thread, which is the one arbiter of their versions, words and locks.

use crate::engine::action::{Action, Parts, Source};
use crate::engine::engine::{Caller, Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::replication::forward::Change;
use crate::engine::state::lock_queue::{Asker, Get, Sink, Waiter, Wanted, Watcher};
use crate::engine::state::segments::Segment;
use crate::model::segment::{Header, Identity, Wish};
use crate::request::operation::{LockWish, Terms};
use crate::{Completion, Failure, Message, Outcome, SegmentId, Timestamp, Version};

/// An atomic whose word is being looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    now: Now,
    segment: SegmentId,
    asker: Asker,
    offset: u64,
    change: crate::Change,
    deadline_us: u64,
}

/// What an answer says besides how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Told {
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
    pub(crate) fn asker(caller: &Caller) -> Asker {
        Asker::Client(caller.lane, caller.request)
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
            Wanted::Lock(LockWish { no_wait: true, .. }) => return Err(Failure::Locked),
            // It would wait for itself. Another thread of that client may hold the lock, but then this one has to ask
            // for it as well: to let it pass would lose updates.
            Wanted::Put { .. } | Wanted::Atomic { .. } if segment.guard.is_held_by(asker.owner()) => {
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
        let inside = |parts: &Parts| match *parts {
            Parts::One { offset, bytes } => segment.check_range(offset, bytes),
            Parts::Many { .. } => {
                self.ranges_of(parts).iter().try_for_each(|range| segment.check_range(range.offset, range.bytes))
            }
        };
        match &waiter.wanted {
            Wanted::Get(get) => {
                segment.permissions.allow(who, Wish::Read)?;
                inside(&get.parts)?;
                Ok(true)
            }
            Wanted::Put { parts, terms, .. } => {
                let allowed = segment.permissions.allow(who, Wish::Write);
                if !planted!(self, UncheckedPermission) {
                    allowed?;
                }
                inside(parts)?;
                if segment.spec.model.put_names_version(terms.asks) && terms.version.is_none() {
                    return Err(Failure::VersionMismatch);
                }
                Ok(terms.token.is_none() && segment.spec.model.put_minds(terms.asks))
            }
            Wanted::Atomic { offset, token, .. } => {
                segment.permissions.allow(who, Wish::Write)?;
                segment.check_range(*offset, 8)?;
                Ok(token.is_none())
            }
            Wanted::Lock(wish) => {
                segment.permissions.allow(who, if wish.shared { Wish::Read } else { Wish::Write })?;
                Ok(true)
            }
        }
    }

    pub(crate) fn do_now(&mut self, now: Now, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let Waiter { asker, deadline_us, .. } = waiter;
        match waiter.wanted {
            Wanted::Get(get) => self.get_now(id, asker, get)?,
            Wanted::Put { parts, source, terms } => {
                self.check_terms(now, id, asker, terms)?;
                self.change(now, id, Change { asker, parts, source, word: 0, deadline_us })?;
            }
            Wanted::Atomic { offset, change, token } => {
                self.check_terms(now, id, asker, Terms { token, ..Terms::default() })?;
                let segment = self.segments.get_mut(id)?;
                segment.guard.looking = true;
                let at = segment.at + Header::DATA_OFFSET + offset;
                self.looks.push_back(Look { now, segment: id, asker, offset, change, deadline_us });
                self.act(Action::Look { at });
            }
            Wanted::Lock(wish) => self.grant(now, id, asker, wish)?,
        }
        Ok(())
    }

    fn get_now(&mut self, id: SegmentId, asker: Asker, get: Get) -> Result<(), Failure> {
        let Get { parts, sink, version, .. } = get;
        let (at, version, timestamp) = self.segments.get(id)?.find(version)?;
        let (lane, request) = match asker {
            Asker::Client(lane, request) => (lane, request),
            Asker::Peer(node, step) => return self.hand_over(node, step, at, parts, (version, timestamp)),
        };
        let inline = sink == Sink::Inline;
        let done = Completion::bare(request, Outcome::Done);
        let done = Completion { version, timestamp, inline, ..done };
        let data = match (sink, parts) {
            (Sink::Inline, Parts::One { offset, bytes }) => Some((at + offset, bytes as u8)),
            (Sink::Arena(into), _) => {
                self.act(Action::CopyOut { at, parts, client: lane.client, into });
                None
            }
            _ => return Err(Failure::Malformed),
        };
        self.give_up_table(&parts);
        self.reply(lane, done, data);
        Ok(())
    }

    fn check_terms(&self, now: Now, id: SegmentId, asker: Asker, terms: Terms) -> Result<(), Failure> {
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
        parts: Parts,
        source: Source,
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
        parts: Parts,
        source: Source,
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
        let Look { now, segment: id, asker, offset, change, deadline_us } = look;
        let Ok(segment) = self.segments.get_mut(id) else {
            return self.answer(asker, Outcome::Failed(Failure::NotFound), Told::default());
        };
        segment.guard.looking = false;
        let told = Told { version: segment.version, timestamp: segment.timestamp, word };
        match change.apply(word) {
            Some(new) => {
                let (parts, source) = (Parts::One { offset, bytes: 8 }, Source::Word(new));
                if let Err(failure) = self.change(now, id, Change { asker, parts, source, word, deadline_us }) {
                    self.answer(asker, Outcome::Failed(failure), Told::default());
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
            self.answer(watcher.asker, Outcome::Done, Told { version, timestamp, word: 0 });
        }
    }

    /// Waits for a version above `above`, or tells the one that is there.
    pub(crate) fn await_here(
        &mut self,
        now: Now,
        id: SegmentId,
        who: Identity,
        watcher: Watcher,
    ) -> Result<(), Failure> {
        if self.segments.get(id)?.mirror.is_some() {
            self.check_home(now, id)?;
        }
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(who, Wish::Read)?;
        let told = Told { version: segment.version, timestamp: segment.timestamp, word: 0 };
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
        self.answer(waiter.asker, Outcome::Failed(failure), Told::default());
    }

    /// What was kept for one who will not get what it wanted.
    pub(crate) fn drop_kept(&mut self, wanted: &Wanted) {
        if let Wanted::Put { source: Source::Kept(kept), .. } = wanted {
            self.kept.remove(kept);
        }
        if let Wanted::Put { parts, .. } | Wanted::Get(Get { parts, .. }) = wanted {
            self.give_up_table(parts);
        }
    }

    /// Tells whoever asked.
    pub(crate) fn answer(&mut self, asker: Asker, outcome: Outcome, told: Told) {
        let Told { version, timestamp, word } = told;
        match asker {
            Asker::Client(lane, request) => {
                let mut completion = Completion { version, timestamp, ..Completion::bare(request, outcome) };
                completion.data[..8].copy_from_slice(&word.to_le_bytes());
                self.reply(lane, completion, None);
            }
            Asker::Peer(_, 0) => {}
            Asker::Peer(node, step) => self.send(node, Message::Ended { step, outcome, version, timestamp, word }),
        }
    }
}
