//! What the engine decided, done: copies in this node's memory, work for the fabric, replies to clients.

use super::background::{BackgroundTask, BackgroundTasks};
use super::inflight_reads::InflightReads;
use super::inflight_reads::Tag;
use super::latency_estimate::LatencyEstimate;
use crate::config::config::PeerAddress;
use crate::control::{ControlBridge, ControlEvent, ControlRequest};
use crate::peers::links::Links;
use crate::status::Recorder;
use crate::storage::area_access::AreaAudiences;
use crate::storage::memory::NodeMemory;
use arrayvec::ArrayVec;
use ddss_core::engine::{
    Action, BufferId, CommitSource, Engine, MessageBody, Now, RangeSet, ServedGetId, StepId, area_of, offset_of,
};
use ddss_core::status::Counter;
use ddss_core::{
    ArenaRange, Audience, ChannelId, ClientId, Completion, Entry, Failure, Header, Message, NodeId, Payload, Range,
    Record, Storage, Timestamp, Version,
};
use ddss_ipc::{MemoryError, SharedMemory};
use ddss_verbs::{Fabric, LocalRange, PostErrorKind, RegionId, RemoteRange, Trust, Work};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What an engine's action names was checked by the engine before.
pub(crate) const CHECKED: &str = "the engine checks ranges against the arena and the segment";

/// A client's arena, as this thread and the fabric see it.
#[derive(Debug)]
pub(crate) struct ClientArena {
    pub(crate) client: ClientId,
    pub(crate) memory: SharedMemory,
    pub(crate) region: RegionId,
}

/// What the progress thread works with, apart from the clients' rings.
pub(crate) struct ActionExecutor {
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) engine: Engine,
    pub(crate) links: Links,
    pub(crate) memory: NodeMemory,
    /// What takes long with it.
    pub(crate) chores: BackgroundTasks,
    pub(crate) fetches: InflightReads,
    /// The areas of the memory that the fabric knows.
    pub(crate) area_regions: Vec<Option<RegionId>>,
    pub(crate) audiences: AreaAudiences,
    pub(crate) scratch_region: RegionId,
    pub(crate) arenas: Vec<Option<ClientArena>>,
    /// Replies on their way into the rings.
    pub(crate) replies: Vec<(ChannelId, Entry)>,
    /// What calls take.
    pub(crate) pulse: LatencyEstimate,
    /// What happened.
    pub(crate) tally: Recorder,
    pub(crate) began: Instant,
    /// To and from the control plane, if the node belongs to a cluster.
    pub(crate) desk: Option<ControlBridge>,
    /// Somebody may be due to be connected to.
    pub(crate) members_changed: bool,
    /// Somebody who has asked goes on working on this core.
    pub(crate) has_company: bool,
    /// The time as it was a few rounds ago at the most: no request waits for a clock to be read.
    pub(crate) now: Now,
}

impl ActionExecutor {
    pub(crate) fn read_clocks(began: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_us: began.elapsed().as_micros() as u64, wall_us: wall.as_micros() as u64 }
    }

    /// Reads the clocks, and sees that what is given by them is never given again.
    pub(crate) fn read_time(&mut self) {
        self.now = Self::read_clocks(self.began);
        self.tally.set_time(self.now.wall_us);
        self.keep_floor();
    }

    /// What was asked before this is answered by the time that it is now: a home's lease may have run out, and a copy may
    /// have grown old, while this thread was stopped. Only where there are mirrors or copies that takes a look at the clocks.
    #[inline]
    pub(crate) fn see_time(&mut self) {
        if self.engine.needs_time() {
            self.read_time();
        }
    }

    pub(crate) fn keep_floor(&mut self) {
        self.memory.register.raise_floor(self.now.wall_us, self.engine.last_timestamp());
    }

    /// The arena of a client that is attached.
    pub(crate) fn arena(&self, client: ClientId) -> Option<&ClientArena> {
        arena_of(&self.arenas, client)
    }

    /// Asks the control plane; `false` if there is none any more.
    fn ask(&self, ask: ControlRequest) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.ask(ask))
    }

    /// Hears what the control plane has to tell; how much that was.
    pub(crate) fn hear_control(&mut self) -> usize {
        let Some(desk) = self.desk.as_ref().filter(|desk| desk.is_rung()) else { return 0 };
        desk.heard();
        let tells: ArrayVec<ControlEvent, { ControlBridge::BATCH }> =
            std::iter::from_fn(|| desk.next()).take(ControlBridge::BATCH).collect();
        if tells.is_full() {
            desk.ring_again();
        }
        let count = tells.len();
        for tell in tells {
            self.hear_tell(tell);
            self.perform();
        }
        count.max(1)
    }

    fn hear_tell(&mut self, tell: ControlEvent) {
        match tell {
            ControlEvent::Name { name, home } => self.engine.set_home(name, home),
            ControlEvent::Names(homes) => self.engine.set_homes(homes),
            ControlEvent::Members(members) => self.take_members(&members),
            ControlEvent::Dead(node) => {
                self.links.lose(self.fabric.as_mut(), node);
                self.engine.node_dead(self.now, node);
            }
            ControlEvent::Alive(node) => self.engine.node_alive(node),
            ControlEvent::Gone(node) => self.links.forbid(node),
            ControlEvent::Duty(duty) => self.engine.assign_role(self.now, &duty),
            ControlEvent::NoDuty(segment) => self.engine.remove_role(self.now, segment),
            ControlEvent::Lease { until } => {
                let until_us = until.saturating_duration_since(self.began).as_micros() as u64;
                self.engine.lease(self.now, until_us);
            }
            ControlEvent::Claimed { claim, result } => self.engine.claimed(self.now, claim, result),
            ControlEvent::Disclaimed { claim, result } => self.engine.disclaimed(claim, result),
            ControlEvent::Majority(has_majority) => self.engine.set_majority(has_majority),
            ControlEvent::Confirmed { step, result } => self.engine.confirmed(step, result),
        }
    }

    /// These are the other nodes of the cluster, and nobody else.
    fn take_members(&mut self, members: &[PeerAddress]) {
        for node in self.links.nodes() {
            if !members.iter().any(|member| member.node == node) {
                tracing::info!(node = node.0, "is no node of this cluster any more");
                self.links.remove(self.fabric.as_mut(), node);
                self.engine.peer_gone(self.now, node);
            }
        }
        for member in members {
            self.admit(member);
            self.engine.peer_known(member.node);
        }
        self.members_changed = true;
    }

    /// Takes a node in, or notes its new address.
    pub(crate) fn admit(&mut self, member: &PeerAddress) {
        if let Err(error) = self.links.add(self.fabric.as_mut(), member) {
            tracing::warn!(node = member.node.0, error, "cannot give staging memory");
        }
    }

    /// Does everything that the engine has decided.
    pub(crate) fn perform(&mut self) {
        while let Some(action) = self.engine.next_action() {
            self.perform_one(action);
        }
    }

    /// Does one thing.
    #[inline]
    pub(crate) fn perform_one(&mut self, action: Action) {
        match action {
            Action::Format { record, header, bytes } => self.format(&record, &header, bytes),
            Action::RewriteRecord { record } => self.memory.rewrite(&record),
            Action::Move { record, from, bytes } => self.relocate(&record, from, bytes),
            Action::DeleteRecord { segment } => {
                self.memory.strike(segment);
                self.tally.released(segment);
            }
            Action::EraseHeader { at } => self.memory.erase(at),
            Action::ZeroFill { at, bytes } => self.clear(at, bytes),
            Action::CopyOut { at, parts, client, into } => self.copy_out(at, &parts, client, into),
            Action::Commit { at, parts, source, version, timestamp } => {
                self.commit(at, &parts, source, (version, timestamp));
            }
            Action::CopyAside { source, bytes, to } => self.put_aside(source, bytes, to),
            Action::Fill { at, source, parts } => self.fill(at, source, &parts),
            Action::WriteVersion { at, version, timestamp } => self.memory.stamp(at, version, timestamp),
            Action::Propose { decision } => {
                // Nobody there to decide: it is said again.
                let _ = self.ask(ControlRequest::Decide(decision));
            }
            Action::SaveVersion { at, to, header } => self.memory.keep(at, to, &header),
            Action::Snapshot { at, parts, to } => self.snapshot(at, &parts, to),
            Action::SendStaged { node, served_get: hand, at, from, bytes, message, table } => {
                self.hand(node, hand, at, (from, bytes), &message, table);
            }
            Action::Unstage { node, at, client, into } => self.unstage(node, at, client, into),
            Action::WriteOut { buffer: kept, client, into } => self.write_out(kept, client, into),
            Action::ReadWord { at } => {
                let word = self.memory.word(at);
                self.engine.word_read(word);
            }
            Action::SetLockHolder { at, holder } => self.memory.mark(at, holder),
            Action::Fetch { node, step, window, line, parts, target } => {
                self.fetch(node, step, window, line, &parts, target);
            }
            Action::Stage { node, step, at, client, from, message, table } => {
                self.stage(node, step, at, client, from, &message, table);
            }
            Action::Send { node, message, tail } => self.send(node, &message, tail),
            Action::GrantWindow { node, message, at, bytes } => self.introduce(node, message, at, bytes),
            Action::RevokeWindow { at } => self.links.withdraw(self.fabric.as_mut(), at),
            Action::ClaimName { claim, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.ask(ControlRequest::Claim { claim, name, within }) {
                    self.engine.claimed(self.now, claim, Err(Failure::NodeDown));
                }
            }
            Action::ReleaseName { claim, name } => {
                if !self.ask(ControlRequest::Disclaim { claim, name }) {
                    self.engine.disclaimed(claim, Ok(()));
                }
            }
            Action::ConfirmName { step, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.ask(ControlRequest::Confirm { step, name, within }) {
                    self.engine.confirmed(step, Err(Failure::NodeDown));
                }
            }
            Action::Disconnect { node } => self.links.cut(self.fabric.as_mut(), node),
            Action::Reply { lane, completion, data } => self.reply(lane, &completion, data),
        }
    }

    fn format(&mut self, record: &Record, header: &Header, bytes: u64) {
        let known = self.know_area(area_of(record.at), record.permissions.audience(), record.spec.storage);
        if known.is_ok() && bytes > BackgroundTasks::SLICE {
            return self.chores.add(BackgroundTask::Form { record: *record, header: *header, bytes });
        }
        let format = |()| self.memory.format(record, header, bytes).map_err(|error| with_cause(&error));
        let made = known.and_then(format);
        self.formatted(record, bytes, made);
    }

    fn formatted(&mut self, record: &Record, bytes: u64, made: Result<(), String>) {
        if let Err(error) = &made {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory for a segment");
        }
        self.tally.add(Counter::SegmentsMade, made.is_ok().into());
        self.engine.formatted(self.now, record.segment, made.is_ok());
    }

    /// Does a slice of what takes long, if it is time for one after a round that did so much else. 0 if nothing waits.
    pub(crate) fn do_chores(&mut self, work: usize) -> usize {
        let waits = !self.chores.is_empty();
        if self.chores.are_due(work)
            && let Some((chore, ended)) = self.chores.step(&mut self.memory)
        {
            match chore {
                BackgroundTask::Form { record, bytes, .. } => {
                    self.formatted(&record, bytes, ended.map_err(|error| with_cause(&error)));
                }
                BackgroundTask::Move { record, bytes, .. } => {
                    self.relocated(&record, bytes, ended.map_err(|error| with_cause(&error)));
                }
                BackgroundTask::Clear { at, bytes } => self.cleared(at, bytes, ended),
            }
            self.perform();
        }
        waits.into()
    }

    fn relocate(&mut self, record: &Record, from: u64, bytes: u64) {
        let known = self.know_area(area_of(record.at), record.permissions.audience(), record.spec.storage);
        // What has a mirror may become one while it is under way: that is done at once.
        if known.is_ok() && bytes > BackgroundTasks::SLICE && record.spec.copies == 1 {
            return self.chores.add(BackgroundTask::Move { record: *record, from, bytes });
        }
        let relocate = |()| self.memory.relocate(record, from, 0, bytes).map_err(|error| with_cause(&error));
        let moved = known.and_then(relocate);
        self.relocated(record, bytes, moved);
    }

    fn relocated(&mut self, record: &Record, bytes: u64, moved: Result<(), String>) {
        if let Err(error) = &moved {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory to move a segment to");
        }
        self.engine.moved(self.now, record.segment, moved.is_ok());
    }

    /// Sees that an area is there, known to the fabric, and open to those who may look at it.
    pub(crate) fn know_area(&mut self, area: usize, audience: Audience, storage: Storage) -> Result<(), String> {
        self.register_area(area, storage)?;
        self.audiences.tell(area, audience, self.memory.place_of(area, storage).0);
        Ok(())
    }

    /// Sees that an area is there and known to the fabric.
    pub(crate) fn register_area(&mut self, area: usize, storage: Storage) -> Result<(), String> {
        if self.area_regions.len() <= area {
            self.area_regions.resize(area + 1, None);
        }
        if self.area_regions[area].is_none() {
            let memory = self.memory.open_area(area, storage).map_err(|error| with_cause(&error))?;
            let bytes = memory.len() as u64;
            // Clients look at an area, and only this thread writes it.
            let region = self.fabric.register(memory.descriptor(), Trust::Exclusive, 0, bytes);
            self.area_regions[area] = Some(region.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// What the fabric calls the area of a place, and the offset of that place in it.
    pub(crate) fn region_at(&self, place: u64) -> Option<(RegionId, u64)> {
        Some(((*self.area_regions.get(area_of(place))?)?, offset_of(place)))
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        if bytes > BackgroundTasks::SLICE {
            return self.chores.add(BackgroundTask::Clear { at, bytes });
        }
        let ended = self.memory.clear(at, bytes);
        self.cleared(at, bytes, ended);
    }

    fn cleared(&mut self, at: u64, bytes: u64, ended: Result<(), MemoryError>) {
        match ended {
            Ok(()) => self.engine.cleared(at, bytes),
            // Better lost to this run of the daemon than shown to the next segment.
            Err(error) => {
                let error = with_cause(&error);
                tracing::error!(at, bytes, error, "memory cannot be cleared and stays unused");
            }
        }
    }

    fn copy_out(&self, at: u64, parts: &RangeSet, client: ClientId, into: ArenaRange) {
        let Some(arena) = self.arena(client) else { return };
        let mut to = into.offset() as usize;
        let (area, data) = self.memory.at(at);
        self.engine.ranges(parts).iter().for_each(|range| {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, &arena.memory, to, bytes).expect(CHECKED);
            to += bytes;
        });
    }

    fn snapshot(&self, at: u64, parts: &RangeSet, to: u64) {
        let ((area, data), (aside, mut to)) = (self.memory.at(at), self.memory.at(to));
        for range in &self.engine.ranges(parts) {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, aside, to, bytes).expect(CHECKED);
            to += bytes;
        }
    }

    /// Bytes that will be committed, where nobody can change them.
    fn put_aside(&mut self, source: CommitSource, bytes: u32, to: u64) {
        if let CommitSource::Buffer(kept) = source {
            let Self { engine, memory, .. } = self;
            let (area, at) = memory.at(to);
            return engine.consume_buffer(kept, |bytes| area.write(at, bytes).expect(CHECKED));
        }
        let (area, at) = self.memory.at(to);
        self.copy_in(area, at, bytes, &source, 0);
    }

    /// A piece of a copy that is not whole yet.
    fn fill(&mut self, at: u64, source: CommitSource, parts: &RangeSet) {
        for range in &self.engine.ranges(parts) {
            self.put_aside(source, range.bytes, at + range.offset);
        }
    }

    fn unstage(&self, node: NodeId, at: u64, client: ClientId, into: ArenaRange) {
        if let (Some(arena), Some(staging)) = (self.arena(client), self.links.staging_of(node)) {
            let (to, bytes) = (into.offset() as usize, into.bytes as usize);
            SharedMemory::copy(staging, at as usize, &arena.memory, to, bytes).expect(CHECKED);
        }
    }

    fn write_out(&self, kept: BufferId, client: ClientId, into: ArenaRange) {
        if let Some(arena) = self.arena(client) {
            arena.memory.write(into.offset() as usize, self.engine.buffer(kept)).expect(CHECKED);
        }
    }

    fn commit(&mut self, at: u64, parts: &RangeSet, source: CommitSource, stamp: (Version, Timestamp)) {
        let (one, several);
        let ranges: &[Range] = match *parts {
            RangeSet::One { offset, bytes } => {
                one = [Range { offset, bytes }];
                &one
            }
            RangeSet::Many { .. } => {
                several = self.engine.ranges(parts);
                &several
            }
        };
        if let CommitSource::Buffer(kept) = source {
            let Self { engine, memory, .. } = self;
            engine.consume_buffer(kept, |bytes| {
                memory.commit(at, stamp, ranges, |area, data| {
                    let mut left = bytes;
                    for range in ranges {
                        let (now, later) = left.split_at(range.bytes as usize);
                        area.write(data + range.offset as usize, now).expect(CHECKED);
                        left = later;
                    }
                });
            });
            return;
        }
        self.memory.commit(at, stamp, ranges, |area, data| {
            let mut done = 0;
            for range in ranges {
                self.copy_in(area, data + range.offset as usize, range.bytes, &source, done);
                done += u64::from(range.bytes);
            }
        });
    }

    /// Copies `length` bytes of what is committed, from the `skip`th on.
    fn copy_in(&self, area: &SharedMemory, to: usize, length: u32, source: &CommitSource, skip: u64) {
        let bytes = length as usize;
        match *source {
            CommitSource::Client(_, Payload::Inline { bytes: held, .. }) => {
                area.write(to, &held[..bytes]).expect(CHECKED)
            }
            CommitSource::Client(client, Payload::Arena(range)) => {
                if let Some(arena) = self.arena(client) {
                    let from = (range.offset() + skip) as usize;
                    SharedMemory::copy(&arena.memory, from, area, to, bytes).expect(CHECKED);
                }
            }
            CommitSource::Staged { node, at } => {
                if let Some(staging) = self.links.staging_of(node) {
                    SharedMemory::copy(staging, (at + skip) as usize, area, to, bytes).expect(CHECKED);
                }
            }
            CommitSource::Pool(at) => {
                let (pool, from) = self.memory.at(at);
                SharedMemory::copy(pool, from + skip as usize, area, to, bytes).expect(CHECKED);
            }
            CommitSource::Word(word) => area.write(to, &word.to_le_bytes()).expect(CHECKED),
            CommitSource::Buffer(_) => unreachable!("the engine's own bytes are written by `commit`"),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of one action")]
    fn stage(
        &mut self,
        node: NodeId,
        step: StepId,
        at: u64,
        client: ClientId,
        from: ArenaRange,
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some(arena)) = (self.links.road_to(node), self.arena(client)) else {
            return self.engine.refused(step, Failure::NodeDown);
        };
        let write = Work::Write {
            peer,
            tag: Tag::Stage(step).to_bits(),
            local: LocalRange { region: arena.region, offset: from.offset(), bytes: from.bytes.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => {
                self.tally.wrote(from.bytes);
                let tail = table.map_or(&[][..], |table| self.engine.buffer(table));
                self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), tail));
            }
            Err(error) => self.engine.refused(step, failure_of(error.kind)),
        }
    }

    /// The bytes first, then the message that says where they are. If they cannot go out, the one who waits for them is
    /// told to try in another way.
    fn hand(
        &mut self,
        node: NodeId,
        hand: ServedGetId,
        at: u64,
        from: (u64, u32),
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some((region, offset))) = (self.links.road_to(node), self.region_at(from.0)) else {
            return self.engine.served_get_sent(hand);
        };
        let write = Work::Write {
            peer,
            tag: Tag::Hand(hand).to_bits(),
            local: LocalRange { region, offset, bytes: from.1.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => {
                self.tally.wrote(from.1);
                let tail = table.map_or(&[][..], |table| self.engine.buffer(table));
                self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), tail));
            }
            Err(_) => self.engine.served_get_failed(node, hand, message),
        }
    }

    fn send(&mut self, node: NodeId, message: &Message, tail: MessageBody) {
        let mut bytes = [0; Message::PUT_BYTES_MAX];
        let length = match tail {
            MessageBody::None => 0,
            MessageBody::Client(_, Payload::Inline { bytes: held, length }) => {
                bytes[..held.len()].copy_from_slice(&held);
                usize::from(length)
            }
            MessageBody::Client(client, Payload::Arena(range)) => {
                let length = range.bytes as usize;
                let Some(arena) = self.arena(client) else { return };
                arena.memory.read(range.offset() as usize, &mut bytes[..length]).expect(CHECKED);
                length
            }
            MessageBody::Buffer(kept) => {
                let kept = self.engine.buffer(kept);
                bytes[..kept.len()].copy_from_slice(kept);
                kept.len()
            }
            MessageBody::Pool(at, parts) => {
                let mut length = 0;
                let (area, data) = self.memory.at(at);
                for range in &self.engine.ranges(&parts) {
                    let part = &mut bytes[length..length + range.bytes as usize];
                    area.read(data + range.offset as usize, part).expect(CHECKED);
                    length += part.len();
                }
                length
            }
        };
        self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), &bytes[..length]));
    }

    fn introduce(&mut self, node: NodeId, message: Message, at: u64, bytes: u64) {
        let Message::Found { step, facts, .. } = message else { return };
        let window = self
            .area_regions
            .get(area_of(at))
            .copied()
            .flatten()
            .and_then(|region| self.links.window(self.fabric.as_mut(), node, region, (at, offset_of(at)), bytes));
        let message = match window {
            Some(window) => Message::Found { step, facts, window },
            None => Message::Ended {
                step,
                // The segment may have been made for this very message.
                outcome: ddss_core::Outcome::Indeterminate(Failure::Busy),
                version: Default::default(),
                timestamp: Default::default(),
                word: 0,
            },
        };
        self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), &[]));
    }

    pub(crate) fn reply(&mut self, lane: ChannelId, completion: &Completion, data: Option<(u64, u8)>) {
        let entry = self.memory.encoded(completion, data);
        self.replies.push((lane, entry));
    }

    /// The answer to a request, if it is among the replies that are on their way.
    pub(crate) fn reply_to(&mut self, lane: ChannelId, request: u64) -> Option<Entry> {
        let at = self.replies.iter().position(|&(to, reply)| to == lane && reply[1] == request);
        at.map(|at| self.replies.swap_remove(at).1)
    }
}

/// What went wrong, and why: the system's own word for it says what to do.
/// The arena of a client that is attached.
#[inline]
pub(crate) fn arena_of(arenas: &[Option<ClientArena>], client: ClientId) -> Option<&ClientArena> {
    arenas.get(client.index as usize)?.as_ref().filter(|arena| arena.client == client)
}

fn with_cause(error: &MemoryError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// What a client is told when the fabric took nothing.
pub(crate) fn failure_of(kind: PostErrorKind) -> Failure {
    match kind {
        PostErrorKind::Busy | PostErrorKind::NotLocked => Failure::Busy,
        PostErrorKind::UnknownPeer | PostErrorKind::NotConnected => Failure::NodeDown,
        _ => Failure::OutOfRange,
    }
}
