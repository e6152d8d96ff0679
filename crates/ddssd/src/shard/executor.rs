//! Execution of the engine's actions: copies in this node's memory, work for the fabric, replies to clients.

use super::background::{BackgroundTask, BackgroundTasks};
use super::client_arena::{CHECKED, ClientArena, arena_of};
use super::inflight_reads::InflightReads;
use super::latency_estimate::LatencyEstimate;
use crate::control::{ControlBridge, ControlEvent, ControlRequest};
use crate::peers::links::Links;
use crate::peers::work_tag::Tag;
use crate::status::Recorder;
use crate::storage::area_access::AreaAudiences;
use crate::storage::memory::NodeMemory;
use arrayvec::ArrayVec;
use ddss_admin::PeerAddress;
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

/// State of the progress thread, apart from the clients' rings.
pub(crate) struct ActionExecutor {
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) engine: Engine,
    pub(crate) links: Links,
    pub(crate) memory: NodeMemory,
    /// Long-running work on the memory.
    pub(crate) background_tasks: BackgroundTasks,
    pub(crate) inflight_reads: InflightReads,
    /// Fabric regions of the registered memory areas, by area.
    pub(crate) area_regions: Vec<Option<RegionId>>,
    pub(crate) audiences: AreaAudiences,
    pub(crate) scratch_region: RegionId,
    pub(crate) arenas: Vec<Option<ClientArena>>,
    /// Replies that are not in the rings yet.
    pub(crate) replies: Vec<(ChannelId, Entry)>,
    /// Average latency of calls.
    pub(crate) latency: LatencyEstimate,
    /// Counters and histograms.
    pub(crate) recorder: Recorder,
    pub(crate) began: Instant,
    /// Bridge to the control plane, if the node belongs to a cluster.
    pub(crate) bridge: Option<ControlBridge>,
    /// Membership has changed: a peer may be due for a connection.
    pub(crate) members_changed: bool,
    /// A client that has called goes on working on this core.
    pub(crate) has_company: bool,
    /// A clock value that is a few rounds old at most: no request waits for a clock read.
    pub(crate) now: Now,
}

impl ActionExecutor {
    pub(crate) fn read_clocks(began: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_us: began.elapsed().as_micros() as u64, wall_us: wall.as_micros() as u64 }
    }

    /// Reads the clocks, and persists a floor so that no later run reuses their timestamps.
    pub(crate) fn read_time(&mut self) {
        self.now = Self::read_clocks(self.began);
        self.recorder.set_time(self.now.wall_us);
        self.persist_clock_floor();
    }

    /// Reads the clocks before a request, if the engine needs the exact time. A lease of this home may have expired,
    /// or a cached copy may be stale, while this thread was stopped. Only replicas and read caches cost this clock
    /// read.
    #[inline]
    pub(crate) fn refresh_time(&mut self) {
        if self.engine.needs_time() {
            self.read_time();
        }
    }

    pub(crate) fn persist_clock_floor(&mut self) {
        self.memory.registry.raise_floor(self.now.wall_us, self.engine.last_timestamp());
    }

    /// Returns the arena of an attached client.
    pub(crate) fn arena(&self, client: ClientId) -> Option<&ClientArena> {
        arena_of(&self.arenas, client)
    }

    /// Sends a request to the control plane. Returns false if there is no control plane any more.
    fn send_control(&self, request: ControlRequest) -> bool {
        self.bridge.as_ref().is_some_and(|bridge| bridge.send_request(request))
    }

    /// Handles the events of the control plane, and returns their number.
    pub(crate) fn poll_control(&mut self) -> usize {
        let Some(bridge) = self.bridge.as_ref().filter(|bridge| bridge.is_signaled()) else { return 0 };
        bridge.clear_signal();
        let events: ArrayVec<ControlEvent, { ControlBridge::BATCH }> =
            std::iter::from_fn(|| bridge.next_event()).take(ControlBridge::BATCH).collect();
        if events.is_full() {
            bridge.signal_again();
        }
        let count = events.len();
        for event in events {
            self.handle_control_event(event);
            self.execute_actions();
        }
        count.max(1)
    }

    fn handle_control_event(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Name { name, home } => self.engine.set_home(name, home),
            ControlEvent::Names(homes) => self.engine.set_homes(homes),
            ControlEvent::Members(members) => self.set_members(&members),
            ControlEvent::Dead(node) => {
                self.links.close_connection(self.fabric.as_mut(), node);
                self.engine.node_dead(self.now, node);
            }
            ControlEvent::Alive(node) => self.engine.node_alive(node),
            ControlEvent::Removed(node) => self.links.mark_removed(node),
            ControlEvent::RoleAssigned(assignment) => self.engine.assign_role(self.now, &assignment),
            ControlEvent::RoleReleased(segment) => self.engine.remove_role(self.now, segment),
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

    /// Replaces the list of peers with the members of the cluster.
    fn set_members(&mut self, members: &[PeerAddress]) {
        for node in self.links.nodes() {
            if !members.iter().any(|member| member.node == node) {
                tracing::info!(node = node.0, "a node left this cluster");
                self.links.remove(self.fabric.as_mut(), node);
                self.engine.peer_gone(self.now, node);
            }
        }
        for member in members {
            self.add_peer(member);
            self.engine.peer_known(member.node);
        }
        self.members_changed = true;
    }

    /// Adds a peer, or updates its address.
    pub(crate) fn add_peer(&mut self, member: &PeerAddress) {
        if let Err(error) = self.links.add(self.fabric.as_mut(), member) {
            tracing::warn!(node = member.node.0, error, "cannot create staging memory for the peer");
        }
    }

    /// Executes all actions that the engine has decided.
    pub(crate) fn execute_actions(&mut self) {
        while let Some(action) = self.engine.next_action() {
            self.execute(action);
        }
    }

    /// Executes one action.
    #[inline]
    pub(crate) fn execute(&mut self, action: Action) {
        match action {
            Action::Format { record, header, bytes } => self.format(&record, &header, bytes),
            Action::RewriteRecord { record } => self.memory.rewrite(&record),
            Action::Move { record, from, bytes } => self.relocate(&record, from, bytes),
            Action::DeleteRecord { segment } => {
                self.memory.remove(segment);
                self.recorder.record_release(segment);
            }
            Action::EraseHeader { at } => self.memory.erase(at),
            Action::ZeroFill { at, bytes } => self.clear(at, bytes),
            Action::CopyOut { at, parts, client, into } => self.copy_out(at, &parts, client, into),
            Action::Commit { at, parts, source, version, timestamp } => {
                self.commit(at, &parts, source, (version, timestamp));
            }
            Action::CopyAside { source, bytes, to } => self.copy_to_pool(source, bytes, to),
            Action::Fill { at, source, parts } => self.fill_replica(at, source, &parts),
            Action::WriteVersion { at, version, timestamp } => self.memory.set_version(at, version, timestamp),
            Action::Propose { decision } => {
                // Without a control plane the decision is lost; the engine repeats it.
                let _ = self.send_control(ControlRequest::Decide(decision));
            }
            Action::SaveVersion { at, to, header } => self.memory.store_version(at, to, &header),
            Action::Snapshot { at, parts, to } => self.snapshot(at, &parts, to),
            Action::SendStaged { node, served_get: hand, at, from, bytes, message, table } => {
                self.send_served_get(node, hand, at, (from, bytes), &message, table);
            }
            Action::Unstage { node, at, client, into } => self.copy_from_staging(node, at, client, into),
            Action::WriteOut { buffer: kept, client, into } => self.copy_from_buffer(kept, client, into),
            Action::ReadWord { at } => {
                let word = self.memory.load_word(at);
                self.engine.word_read(word);
            }
            Action::SetLockHolder { at, holder } => self.memory.set_lock_holder(at, holder),
            Action::Fetch { node, step, window, line, parts, target } => {
                self.post_remote_get(node, step, window, line, &parts, target);
            }
            Action::Stage { node, step, at, client, from, message, table } => {
                self.send_staged_put(node, step, at, client, from, &message, table);
            }
            Action::Send { node, message, tail } => self.send(node, &message, tail),
            Action::GrantWindow { node, message, at, bytes } => self.send_window(node, message, at, bytes),
            Action::RevokeWindow { at } => self.links.withdraw(self.fabric.as_mut(), at),
            Action::ClaimName { claim, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.send_control(ControlRequest::Claim { claim, name, within }) {
                    self.engine.claimed(self.now, claim, Err(Failure::NodeDown));
                }
            }
            Action::ReleaseName { claim, name } => {
                if !self.send_control(ControlRequest::Disclaim { claim, name }) {
                    self.engine.disclaimed(claim, Ok(()));
                }
            }
            Action::ConfirmName { step, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.send_control(ControlRequest::Confirm { step, name, within }) {
                    self.engine.confirmed(step, Err(Failure::NodeDown));
                }
            }
            Action::Disconnect { node } => self.links.close_for_violation(self.fabric.as_mut(), node),
            Action::Reply { channel, completion, data } => self.reply(channel, &completion, data),
        }
    }

    fn format(&mut self, record: &Record, header: &Header, bytes: u64) {
        let known = self.publish_area(area_of(record.at), record.permissions.audience(), record.spec.storage);
        if known.is_ok() && bytes > BackgroundTasks::SLICE_BYTES {
            return self.background_tasks.add(BackgroundTask::Form { record: *record, header: *header, bytes });
        }
        let format = |()| self.memory.format(record, header, bytes).map_err(|error| format_with_cause(&error));
        let made = known.and_then(format);
        self.finish_format(record, bytes, made);
    }

    fn finish_format(&mut self, record: &Record, bytes: u64, made: Result<(), String>) {
        if let Err(error) = &made {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory for a segment");
        }
        self.recorder.add(Counter::SegmentsMade, made.is_ok().into());
        self.engine.formatted(self.now, record.segment, made.is_ok());
    }

    /// Does one slice of background work, if it is due after a round that did `work` other work. Returns 0 if none
    /// waits.
    pub(crate) fn run_background(&mut self, work: usize) -> usize {
        let waits = !self.background_tasks.is_empty();
        if self.background_tasks.is_due(work)
            && let Some((task, ended)) = self.background_tasks.step(&mut self.memory)
        {
            match task {
                BackgroundTask::Form { record, bytes, .. } => {
                    self.finish_format(&record, bytes, ended.map_err(|error| format_with_cause(&error)));
                }
                BackgroundTask::Move { record, bytes, .. } => {
                    self.finish_move(&record, bytes, ended.map_err(|error| format_with_cause(&error)));
                }
                BackgroundTask::Clear { at, bytes } => self.finish_clear(at, bytes, ended),
            }
            self.execute_actions();
        }
        waits.into()
    }

    fn relocate(&mut self, record: &Record, from: u64, bytes: u64) {
        let known = self.publish_area(area_of(record.at), record.permissions.audience(), record.spec.storage);
        // A segment with replicas may change its role during the move, so the move completes at once.
        if known.is_ok() && bytes > BackgroundTasks::SLICE_BYTES && record.spec.copies == 1 {
            return self.background_tasks.add(BackgroundTask::Move { record: *record, from, bytes });
        }
        let relocate = |()| self.memory.relocate(record, from, 0, bytes).map_err(|error| format_with_cause(&error));
        let moved = known.and_then(relocate);
        self.finish_move(record, bytes, moved);
    }

    fn finish_move(&mut self, record: &Record, bytes: u64, moved: Result<(), String>) {
        if let Err(error) = &moved {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory to move a segment into");
        }
        self.engine.moved(self.now, record.segment, moved.is_ok());
    }

    /// Opens an area, registers it with the fabric, and grants its audience access.
    pub(crate) fn publish_area(&mut self, area: usize, audience: Audience, storage: Storage) -> Result<(), String> {
        self.register_area(area, storage)?;
        self.audiences.record(area, audience, self.memory.area_file(area, storage).0);
        Ok(())
    }

    /// Opens an area and registers it with the fabric.
    pub(crate) fn register_area(&mut self, area: usize, storage: Storage) -> Result<(), String> {
        if self.area_regions.len() <= area {
            self.area_regions.resize(area + 1, None);
        }
        if self.area_regions[area].is_none() {
            let memory = self.memory.open_area(area, storage).map_err(|error| format_with_cause(&error))?;
            let bytes = memory.len() as u64;
            // Clients map an area read-only; only this thread writes it.
            let region = self.fabric.register(memory.descriptor(), Trust::Exclusive, 0, bytes);
            self.area_regions[area] = Some(region.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Returns the fabric region and the offset of a pool address.
    pub(crate) fn region_at(&self, place: u64) -> Option<(RegionId, u64)> {
        Some(((*self.area_regions.get(area_of(place))?)?, offset_of(place)))
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        if bytes > BackgroundTasks::SLICE_BYTES {
            return self.background_tasks.add(BackgroundTask::Clear { at, bytes });
        }
        let ended = self.memory.clear(at, bytes);
        self.finish_clear(at, bytes, ended);
    }

    fn finish_clear(&mut self, at: u64, bytes: u64, ended: Result<(), MemoryError>) {
        match ended {
            Ok(()) => self.engine.cleared(at, bytes),
            // Losing the memory for this run is better than leaking its bytes to the next segment.
            Err(error) => {
                let error = format_with_cause(&error);
                tracing::error!(at, bytes, error, "cannot clear memory: it stays unused");
            }
        }
    }

    fn copy_out(&self, at: u64, parts: &RangeSet, client: ClientId, into: ArenaRange) {
        let Some(arena) = self.arena(client) else { return };
        let mut to = into.offset() as usize;
        let (area, data) = self.memory.area_at(at);
        self.engine.ranges(parts).iter().for_each(|range| {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, &arena.memory, to, bytes).expect(CHECKED);
            to += bytes;
        });
    }

    fn snapshot(&self, at: u64, parts: &RangeSet, to: u64) {
        let ((area, data), (aside, mut to)) = (self.memory.area_at(at), self.memory.area_at(to));
        for range in &self.engine.ranges(parts) {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, aside, to, bytes).expect(CHECKED);
            to += bytes;
        }
    }

    /// Copies bytes that will be committed to pool memory, where no client can change them.
    fn copy_to_pool(&mut self, source: CommitSource, bytes: u32, to: u64) {
        if let CommitSource::Buffer(kept) = source {
            let Self { engine, memory, .. } = self;
            let (area, at) = memory.area_at(to);
            return engine.consume_buffer(kept, |bytes| area.write(at, bytes).expect(CHECKED));
        }
        let (area, at) = self.memory.area_at(to);
        self.copy_in(area, at, bytes, &source, 0);
    }

    /// Writes a part of a replica that is still incomplete.
    fn fill_replica(&mut self, at: u64, source: CommitSource, parts: &RangeSet) {
        for range in &self.engine.ranges(parts) {
            self.copy_to_pool(source, range.bytes, at + range.offset);
        }
    }

    fn copy_from_staging(&self, node: NodeId, at: u64, client: ClientId, into: ArenaRange) {
        if let (Some(arena), Some(staging)) = (self.arena(client), self.links.staging_of(node)) {
            let (to, bytes) = (into.offset() as usize, into.bytes as usize);
            SharedMemory::copy(staging, at as usize, &arena.memory, to, bytes).expect(CHECKED);
        }
    }

    fn copy_from_buffer(&self, kept: BufferId, client: ClientId, into: ArenaRange) {
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

    /// Copies `length` bytes of the committed source, from offset `skip` on.
    fn copy_in(&self, area: &SharedMemory, to: usize, length: u32, source: &CommitSource, skip: u64) {
        let bytes = length as usize;
        match *source {
            CommitSource::Client(_, Payload::Inline { bytes: inline, .. }) => {
                area.write(to, &inline[..bytes]).expect(CHECKED)
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
                let (pool, from) = self.memory.area_at(at);
                SharedMemory::copy(pool, from + skip as usize, area, to, bytes).expect(CHECKED);
            }
            CommitSource::Word(word) => area.write(to, &word.to_le_bytes()).expect(CHECKED),
            CommitSource::Buffer(_) => unreachable!("the engine's own bytes are written by `commit`"),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of one action")]
    fn send_staged_put(
        &mut self,
        node: NodeId,
        step: StepId,
        at: u64,
        client: ClientId,
        from: ArenaRange,
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some(arena)) = (self.links.connection_to(node), self.arena(client)) else {
            return self.engine.refused(step, Failure::NodeDown);
        };
        let write = Work::Write {
            peer,
            tag: Tag::StagedPut(step).to_bits(),
            local: LocalRange { region: arena.region, offset: from.offset(), bytes: from.bytes.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => {
                self.recorder.count_write(from.bytes);
                let tail = table.map_or(&[][..], |table| self.engine.buffer(table));
                self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), tail));
            }
            Err(error) => self.engine.refused(step, failure_from_post(error.kind)),
        }
    }

    /// Writes the bytes of a served get to the requester, then sends the message that locates them. If the write
    /// cannot be posted, the requester is told to read in another way.
    fn send_served_get(
        &mut self,
        node: NodeId,
        hand: ServedGetId,
        at: u64,
        from: (u64, u32),
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some((region, offset))) = (self.links.connection_to(node), self.region_at(from.0))
        else {
            return self.engine.served_get_sent(hand);
        };
        let write = Work::Write {
            peer,
            tag: Tag::ServedGet(hand).to_bits(),
            local: LocalRange { region, offset, bytes: from.1.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => {
                self.recorder.count_write(from.1);
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
            MessageBody::Client(_, Payload::Inline { bytes: inline, length }) => {
                bytes[..inline.len()].copy_from_slice(&inline);
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
                let (area, data) = self.memory.area_at(at);
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

    fn send_window(&mut self, node: NodeId, message: Message, at: u64, bytes: u64) {
        let Message::Found { step, info, .. } = message else { return };
        let window = self
            .area_regions
            .get(area_of(at))
            .copied()
            .flatten()
            .and_then(|region| self.links.window(self.fabric.as_mut(), node, region, (at, offset_of(at)), bytes));
        let message = match window {
            Some(window) => Message::Found { step, info, window },
            None => Message::Ended {
                step,
                // The segment may have been created by this very message.
                outcome: ddss_core::Outcome::Indeterminate(Failure::Busy),
                version: Default::default(),
                timestamp: Default::default(),
                word: 0,
            },
        };
        self.links.send(self.fabric.as_mut(), node, &message.encode(self.engine.clock(), &[]));
    }

    pub(crate) fn reply(&mut self, channel: ChannelId, completion: &Completion, data: Option<(u64, u8)>) {
        let entry = self.memory.encode_completion(completion, data);
        self.replies.push((channel, entry));
    }

    /// Takes the reply to a request out of the pending replies.
    pub(crate) fn reply_to(&mut self, channel: ChannelId, request: u64) -> Option<Entry> {
        let at = self.replies.iter().position(|&(to, reply)| to == channel && reply[1] == request);
        at.map(|at| self.replies.swap_remove(at).1)
    }
}

/// Formats a memory error with its cause: the system's own error says what to do.
fn format_with_cause(error: &MemoryError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Maps a refused post to the failure that the client sees.
pub(crate) fn failure_from_post(kind: PostErrorKind) -> Failure {
    match kind {
        PostErrorKind::Busy | PostErrorKind::NotLocked => Failure::Busy,
        PostErrorKind::UnknownPeer | PostErrorKind::NotConnected => Failure::NodeDown,
        _ => Failure::OutOfRange,
    }
}
