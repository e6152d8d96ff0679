//! What is asked of segments whose home is this node, by its own clients and by other nodes: done by this node's
//! progress thread, which is the one arbiter of their versions, words and locks.

use super::action::{Action, Source};
use super::core::{Caller, Engine, Now};
use super::guard::{Asker, Holder, Owner, Waiter, Wanted, Watcher};
use crate::request::{LockToken, LockWish, Terms};
use crate::segment::{Header, Identity, Model, Wish};
use crate::{Completion, Failure, Message, Outcome, SegmentId, Timestamp, Version};

/// An atomic whose word is being looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    now: Now,
    segment: SegmentId,
    asker: Asker,
    offset: u64,
    change: crate::Change,
}

/// What an answer says besides how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    pub(super) version: Version,
    pub(super) timestamp: Timestamp,
    /// The old word, or a token.
    pub(super) word: u64,
}

impl Engine {
    pub(super) fn asker(caller: &Caller) -> Asker {
        Asker::Client(caller.lane, caller.request)
    }

    /// Does what is asked of a segment, or lets it wait behind the lock. An error is the answer.
    pub(super) fn ask_home(&mut self, now: Now, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        let Waiter { asker, who, wanted, .. } = waiter;
        let model = segment.spec.model;
        let minds = match wanted {
            Wanted::Get { offset, into, .. } => {
                segment.permissions.allow(who, Wish::Read)?;
                segment.check_range(offset, into.bytes)?;
                matches!(model, Model::Strict | Model::Read)
            }
            Wanted::Put { offset, length, terms, .. } => {
                segment.permissions.allow(who, Wish::Write)?;
                segment.check_range(offset, length)?;
                if model == Model::Version && terms.version.is_none() {
                    return Err(Failure::VersionMismatch);
                }
                terms.token.is_none() && !matches!(model, Model::Null | Model::Read)
            }
            Wanted::Atomic { offset, .. } => {
                segment.permissions.allow(who, Wish::Write)?;
                segment.check_range(offset, 8)?;
                true
            }
            Wanted::Lock(wish) => {
                let needs = if wish.shared { Wish::Read } else { Wish::Write };
                segment.permissions.allow(who, needs)?;
                true
            }
        };
        if !segment.guard.must_wait(&wanted, asker.owner(), minds) {
            return self.do_now(now, id, waiter);
        }
        if matches!(wanted, Wanted::Lock(LockWish { no_wait: true, .. })) {
            return Err(Failure::Locked);
        }
        if !segment.guard.wait(waiter) {
            return Err(Failure::Busy);
        }
        self.segments.note_busy(id);
        Ok(())
    }

    fn do_now(&mut self, now: Now, id: SegmentId, waiter: Waiter) -> Result<(), Failure> {
        let asker = waiter.asker;
        match waiter.wanted {
            Wanted::Get { offset, into, inline } => {
                let segment = self.segments.get(id)?;
                let at = segment.at + Header::DATA_OFFSET + offset;
                let told = Told { version: segment.version, timestamp: segment.timestamp, word: 0 };
                let Asker::Client(lane, request) = asker else { return Err(Failure::Unsupported) };
                let done = Completion::bare(request, Outcome::Done);
                let done = Completion { version: told.version, timestamp: told.timestamp, inline, ..done };
                if !inline {
                    self.act(Action::CopyOut { at, client: lane.client, into });
                }
                self.reply(lane, done, inline.then_some((at, into.bytes as u8)));
            }
            Wanted::Put { offset, length, source, terms } => {
                self.check_terms(now, id, terms)?;
                let (version, timestamp) = self.commit(now, id, offset, length, source)?;
                self.answer(asker, Outcome::Done, Told { version, timestamp, word: 0 });
                self.show_version(id, version, timestamp);
            }
            Wanted::Atomic { offset, change } => {
                let segment = self.segments.get_mut(id)?;
                segment.guard.looking = true;
                let at = segment.at + Header::DATA_OFFSET + offset;
                self.looks.push_back(Look { now, segment: id, asker, offset, change });
                self.act(Action::Look { at });
            }
            Wanted::Lock(wish) => self.grant(now, id, asker, wish)?,
        }
        Ok(())
    }

    fn check_terms(&self, now: Now, id: SegmentId, terms: Terms) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        if terms.token.is_some_and(|token| !segment.guard.admits(token, now.steady_us)) {
            return Err(Failure::LockLost);
        }
        if terms.version.is_some_and(|version| version != segment.version) {
            return Err(Failure::VersionMismatch);
        }
        Ok(())
    }

    /// Steps the version and says what to copy.
    fn commit(
        &mut self,
        now: Now,
        id: SegmentId,
        offset: u64,
        length: u32,
        source: Source,
    ) -> Result<(Version, Timestamp), Failure> {
        let timestamp = self.clock.next(now.wall_us);
        let segment = self.segments.get_mut(id)?;
        segment.version = Version(segment.version.0 + 1);
        segment.timestamp = timestamp;
        let (at, version) = (segment.at, segment.version);
        self.counters.commits += 1;
        self.act(Action::Commit { at, offset, length, source, version, timestamp });
        Ok((version, timestamp))
    }

    /// The word that [`Action::Look`] asked for.
    pub fn looked(&mut self, word: u64) {
        let look = self.looks.pop_front().expect("each look is answered once");
        let Look { now, segment: id, asker, offset, change } = look;
        let Ok(segment) = self.segments.get_mut(id) else {
            return self.answer(asker, Outcome::Failed(Failure::NotFound), Told::default());
        };
        segment.guard.looking = false;
        let mut told = Told { version: segment.version, timestamp: segment.timestamp, word };
        if let Some(new) = change.apply(word)
            && let Ok((version, timestamp)) = self.commit(now, id, offset, 8, Source::Word(new))
        {
            told = Told { version, timestamp, word };
            self.show_version(id, version, timestamp);
        }
        self.answer(asker, Outcome::Done, told);
        self.serve_line(now, id);
    }

    fn grant(&mut self, now: Now, id: SegmentId, asker: Asker, wish: LockWish) -> Result<(), Failure> {
        // The clock never gives a number twice, not even after a restart: a good token.
        let token = LockToken(self.clock.next(now.wall_us).0);
        let segment = self.segments.get_mut(id)?;
        let until_us = now.steady_us.saturating_add(wish.lease_us.into());
        if !segment.guard.grant(Holder { token, owner: asker.owner(), shared: wish.shared, until_us }) {
            return Err(Failure::Busy);
        }
        let told = Told { version: segment.version, timestamp: segment.timestamp, word: token.0 };
        let at = segment.at;
        if !wish.shared {
            self.act(Action::Mark { at, locked: true });
        }
        self.segments.note_busy(id);
        self.answer(asker, Outcome::Done, told);
        Ok(())
    }

    /// Takes a grant back.
    pub(super) fn unlock_here(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: Owner,
    ) -> Result<Told, Failure> {
        let segment = self.segments.get_mut(id)?;
        if !segment.guard.let_go(token, owner) {
            return Err(Failure::LockLost);
        }
        let told = Told { version: segment.version, timestamp: segment.timestamp, word: 0 };
        self.unmark(id);
        self.serve_line(now, id);
        Ok(told)
    }

    /// The header says whether somebody holds the lock alone.
    fn unmark(&mut self, id: SegmentId) {
        if let Ok(segment) = self.segments.get(id)
            && !segment.guard.held_alone()
        {
            let at = segment.at;
            self.act(Action::Mark { at, locked: false });
        }
    }

    /// Lets those go who need not wait any more, in order.
    pub(super) fn serve_line(&mut self, now: Now, id: SegmentId) {
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(waiter) = segment.guard.next_ready()
        {
            if let Err(failure) = self.do_now(now, id, waiter) {
                self.turn_away(&waiter, failure);
            }
        }
    }

    /// Answers those who wait for a version above theirs.
    fn show_version(&mut self, id: SegmentId, version: Version, timestamp: Timestamp) {
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(watcher) = segment.guard.next_seen(version)
        {
            self.answer(watcher.asker, Outcome::Done, Told { version, timestamp, word: 0 });
        }
    }

    /// Waits for a version above `above`, or tells the one that is there.
    pub(super) fn await_here(&mut self, id: SegmentId, who: Identity, watcher: Watcher) -> Result<(), Failure> {
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

    /// Somebody is gone: its locks are broken, its places in line given up.
    pub(super) fn owner_gone(&mut self, now: Now, owner: Owner) {
        for id in self.segments.busy() {
            if let Ok(segment) = self.segments.get_mut(id) {
                for waiter in segment.guard.gone(owner) {
                    self.drop_kept(&waiter.wanted);
                }
            }
            self.unmark(id);
            self.serve_line(now, id);
        }
    }

    /// Leases and deadlines of those who wait.
    pub(super) fn tick_guards(&mut self, now: Now) {
        for id in self.segments.busy() {
            let Ok(segment) = self.segments.get_mut(id) else { continue };
            if segment.guard.expire_leases(now.steady_us) {
                self.unmark(id);
            }
            while let Ok(segment) = self.segments.get_mut(id)
                && let Some(waiter) = segment.guard.next_late(now.steady_us)
            {
                self.turn_away(&waiter, Failure::TimedOut);
            }
            while let Ok(segment) = self.segments.get_mut(id)
                && let Some(watcher) = segment.guard.next_unseen(now.steady_us)
            {
                self.answer(watcher.asker, Outcome::Failed(Failure::TimedOut), Told::default());
            }
            self.serve_line(now, id);
        }
        self.segments.forget_idle();
    }

    pub(super) fn turn_away(&mut self, waiter: &Waiter, failure: Failure) {
        self.drop_kept(&waiter.wanted);
        self.answer(waiter.asker, Outcome::Failed(failure), Told::default());
    }

    fn drop_kept(&mut self, wanted: &Wanted) {
        if let Wanted::Put { source: Source::Kept(kept), .. } = wanted {
            self.kept.remove(kept);
        }
    }

    /// Tells whoever asked.
    pub(super) fn answer(&mut self, asker: Asker, outcome: Outcome, told: Told) {
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
