//! Segments that come and go at their home: made, found again after a restart, taken away.

use super::home_ops::ReplyFields;
use crate::engine::action::Action;
use crate::engine::engine::{Engine, Now};
use crate::engine::replication::state::Role;
use crate::engine::state::areas::no_room;
use crate::engine::state::lock_queue::Requester;
use crate::model::record::Record;
use crate::model::segment::{Access, Header, Name, Permissions, Principal};
use crate::model::spec::{Spec, Storage};
use crate::{Failure, Message, Outcome, SegmentId, Timestamp, Version};

impl Engine {
    /// Makes a segment at home here. The asker hears of it when its memory is there:
    /// [`formatted`](Self::formatted); or at once, if its owner may have no more.
    pub(crate) fn allocate_here(
        &mut self,
        now: Now,
        asker: Requester,
        who: Principal,
        name: Name,
        spec: Spec,
    ) -> Result<(), Failure> {
        if spec.copies > 1 && !self.mirrors.agreed {
            // Without a cluster nobody could say who is the home.
            return Err(Failure::Unsupported);
        }
        if spec.storage == Storage::File && !self.segments.keeps_files() {
            return Err(Failure::Unsupported);
        }
        self.drop_copy_named(now, &name);
        if self.refuse_over_quota(asker, who, &spec) {
            return Ok(());
        }
        let timestamp = self.clock.next(now.wall_us);
        let permissions = Permissions { owner: who, mode: spec.mode };
        let record = self.segments.allocate(name, spec, permissions, timestamp, asker, None)?;
        self.format(record, timestamp);
        Ok(())
    }

    /// Sees that the memory of a segment is made.
    pub(crate) fn format(&mut self, record: Record, timestamp: Timestamp) {
        let header = Header {
            state: Header::committed(Version(0)),
            timestamp: timestamp.0,
            segment: record.known_as.to_bits(),
            bytes: record.spec.bytes,
            locked: 0,
        };
        let keeps = record.spec.keeps();
        self.act(Action::Format { record, header, bytes: Header::bytes_with(header.bytes, keeps) });
    }

    /// The memory of a new segment is there, or cannot be had.
    pub fn formatted(&mut self, now: Now, at: SegmentId, made: bool) {
        let Some((id, asker)) = self.segments.formed(at) else { return };
        if self.segments.get(id).is_ok_and(|segment| segment.is_copy()) {
            return self.copy_formatted(now, id, made);
        }
        if !made {
            // Nobody has seen it yet.
            let (name, failure) = match self.segments.get(id) {
                Ok(segment) => (Some(segment.name), no_room(segment.spec.storage)),
                Err(_) => (None, Failure::NoSpace),
            };
            if let Ok(released) = self.segments.release(id, now.steady_us) {
                debug_assert!(released.is_empty());
            }
            self.reclaim();
            if let Some(name) = name {
                self.give_name_back(name);
            }
            return self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
        }
        if let Ok(segment) = self.segments.get(id)
            && let Some(to) = segment.line_of(segment.version)
        {
            let (at, header) = (segment.at, segment.header(id));
            self.act(Action::Keep { at, to, header });
        }
        self.begin_as_home(now, id);
        match asker {
            Requester::Client(lane, request) => {
                if let Ok(segment) = self.segments.get(id) {
                    let facts = segment.facts(id);
                    self.finish_opened(lane, request, &facts);
                }
            }
            // Who made it is told of it, whatever its mode says of looking at it.
            Requester::Peer(node, step) => {
                if let Err(failure) = self.introduce(node, step, id) {
                    self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
                }
            }
        }
    }

    /// Segments in files may come to so many bytes here; to none unless it is said.
    pub fn keep_files(&mut self, bytes: u64) {
        self.segments.keep_files(bytes);
    }

    /// How much more may be in files.
    pub fn file_bytes_free(&self) -> u64 {
        self.segments.free_bytes(Storage::File)
    }

    /// A segment that the daemon before this one left. An error says that the record makes no sense.
    pub fn restore(&mut self, record: &Record, version: Version, timestamp: Timestamp) -> Result<(), Failure> {
        self.segments.restore(record, version, timestamp)?;
        self.restore_clock(timestamp);
        if record.spec.copies > 1 {
            self.mirrors.unsure.push(record.known_as);
        }
        Ok(())
    }

    /// An index that is free, and the last id that it had.
    pub fn restore_free(&mut self, last: SegmentId) {
        self.segments.restore_free(last);
    }

    /// No timestamp and no token up to this one is given again.
    pub fn restore_clock(&mut self, floor: Timestamp) {
        self.clock.hear(floor, floor.micros());
    }

    /// The newest timestamp that this node has given or heard.
    pub fn last_timestamp(&self) -> Timestamp {
        self.clock.last()
    }

    /// Takes a segment away: its name and id at once, its memory when no peer reads it any more.
    pub(crate) fn release_here(&mut self, now: Now, who: Principal, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(who, Access::Release)?;
        self.check_home(now, id)?;
        self.take_away(now, id)
    }

    /// Takes a segment away, be it a copy.
    pub(crate) fn take_away(&mut self, now: Now, id: SegmentId) -> Result<(), Failure> {
        if self.segments.get(id)?.guard.moving {
            // Its bytes are on their way to another place: what they leave would be somebody else's.
            return Err(Failure::Busy);
        }
        self.end_mirror(id);
        let slot = self.segments.slot_of(id)?;
        let segment = self.segments.get(id)?;
        let (at, kept) = (segment.at, segment.kept_lines());
        let mirror = segment.mirror.as_deref().filter(|mirror| matches!(mirror.role, Role::Home(_)));
        let mirror = mirror.map(|mirror| mirror.node).filter(|node| !segment.seen_by.contains(node));
        let mirror = mirror.filter(|&node| self.peers.is_up(node));
        self.act(Action::Strike { segment: slot });
        for at in std::iter::once(at).chain(kept) {
            self.act(Action::Erase { at });
        }
        self.turn_all_away(id, Failure::NotFound);
        for node in self.segments.release(id, now.steady_us + Self::FORGET_US)?.into_iter().chain(mirror) {
            self.send(node, Message::Forget { segment: id });
        }
        self.reclaim();
        Ok(())
    }

    /// Whoever waits for a segment, or for its next version, waits in vain.
    pub(crate) fn turn_all_away(&mut self, id: SegmentId, failure: Failure) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let (line, watchers) = segment.guard.empty();
        for waiter in line {
            self.turn_away(&waiter, failure);
        }
        for watcher in watchers {
            self.answer(watcher.asker, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    pub(crate) fn reclaim(&mut self) {
        while let Some((at, bytes)) = self.segments.reclaim() {
            self.act(Action::Withdraw { at });
            self.act(Action::Clear { at, bytes });
        }
    }

    /// Memory that [`Action::Clear`] named is zeroes again, for somebody else.
    pub fn cleared(&mut self, at: u64, bytes: u64) {
        self.segments.cleared(at, bytes);
    }
}
