//! Requests for segments whose home is this node: done at once, by this node's progress thread, which is the one
//! arbiter of their versions.

use super::action::{Action, Source};
use super::core::{Caller, Engine, Now};
use crate::request::{ArenaRange, Payload};
use crate::segment::{Header, Identity, Name, Permissions, Spec, Wish};
use crate::{Completion, Failure, Message, Outcome, SegmentId, Timestamp, Version};

impl Engine {
    /// Makes a segment at home here.
    pub(super) fn allocate_here(
        &mut self,
        now: Now,
        who: Identity,
        name: Name,
        spec: Spec,
    ) -> Result<SegmentId, Failure> {
        let timestamp = self.clock.next(now.wall_us);
        let permissions = Permissions { owner: who, mode: spec.mode };
        let id = self.segments.allocate(name, spec, permissions, timestamp)?;
        let segment = self.segments.get(id)?;
        let header = Header {
            state: Header::committed(segment.version),
            timestamp: timestamp.0,
            segment: id.to_bits(),
            bytes: segment.spec.bytes,
        };
        let at = segment.at;
        self.act(Action::Format { at, header });
        Ok(id)
    }

    /// Takes a segment away: its name and id at once, its memory when no peer reads it any more.
    pub(super) fn release_here(&mut self, now: Now, who: Identity, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        segment.permissions.allow(who, Wish::Release)?;
        let at = segment.at;
        self.act(Action::Erase { at });
        for node in self.segments.release(id, now.steady_us + Self::FORGET_US)? {
            self.send(node, Message::Forget { segment: id });
        }
        self.reclaim();
        Ok(())
    }

    /// Gets bytes. Only this thread commits, so the version it knows is the version of the bytes it copies.
    pub(super) fn get_here(
        &mut self,
        caller: Caller,
        id: SegmentId,
        offset: u64,
        into: ArenaRange,
        inline: bool,
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        segment.permissions.allow(caller.who, Wish::Read)?;
        segment.check_range(offset, into.bytes)?;
        let at = segment.at + Header::DATA_OFFSET + offset;
        let completion = Completion {
            version: segment.version,
            timestamp: segment.timestamp,
            inline,
            ..Completion::bare(caller.request, Outcome::Done)
        };
        if inline {
            self.reply(caller.lane, completion, Some((at, into.bytes as u8)));
        } else {
            self.act(Action::CopyOut { at, client: caller.lane.client, into });
            self.reply(caller.lane, completion, None);
        }
        Ok(())
    }

    /// Puts bytes of a client of this node.
    pub(super) fn put_here(
        &mut self,
        now: Now,
        caller: Caller,
        id: SegmentId,
        offset: u64,
        from: Payload,
    ) -> Result<(), Failure> {
        let source = Source::Client(caller.lane.client, from);
        let (version, timestamp) = self.commit(now, caller.who, id, offset, from.length(), source)?;
        let completion = Completion { version, timestamp, ..Completion::bare(caller.request, Outcome::Done) };
        self.reply(caller.lane, completion, None);
        Ok(())
    }

    /// Commits bytes from anywhere: checks, steps the version, says what to copy.
    pub(super) fn commit(
        &mut self,
        now: Now,
        who: Identity,
        id: SegmentId,
        offset: u64,
        length: u32,
        source: Source,
    ) -> Result<(Version, Timestamp), Failure> {
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(who, Wish::Write)?;
        segment.check_range(offset, length)?;
        let timestamp = self.clock.next(now.wall_us);
        segment.version = Version(segment.version.0 + 1);
        segment.timestamp = timestamp;
        let (at, version) = (segment.at, segment.version);
        self.counters.commits += 1;
        self.act(Action::Commit { at, offset, length, source, version, timestamp });
        Ok((version, timestamp))
    }
}
