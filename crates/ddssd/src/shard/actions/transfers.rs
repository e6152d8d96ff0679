//! Work for the fabric: staged puts, served gets, messages and windows. (`remote_get.rs` posts remote gets.)

use super::inflight_reads::InflightReads;
use crate::peers::links::Links;
use crate::peers::work_tag::Tag;
use crate::shard::client_arena::{CHECKED, ClientArenas};
use crate::status::Recorder;
use crate::storage::memory::NodeMemory;
use crate::storage::registered_areas::RegisteredAreas;
use ddss_core::{ArenaRange, ClientId, Failure, Limit, Message, NodeId, Payload};
use ddss_engine::{BufferId, Engine, MessageBody, Now, ServedGetId, StepId};
use ddss_verbs::{LocalRange, PostErrorKind, RegionId, RemoteRange, Work};

/// Parts of a shard that a transfer to or from another node needs.
pub(crate) struct Transfers<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) links: &'a mut Links,
    pub(crate) memory: &'a NodeMemory,
    pub(crate) areas: &'a RegisteredAreas,
    pub(crate) arenas: &'a ClientArenas,
    pub(crate) inflight_reads: &'a mut InflightReads,
    pub(crate) scratch_region: RegionId,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) now: Now,
}

impl Transfers<'_> {
    #[allow(clippy::too_many_arguments, reason = "these are the fields of one action")]
    pub(crate) fn send_staged_put(
        &mut self,
        node: NodeId,
        step: StepId,
        at: u64,
        client: ClientId,
        from: ArenaRange,
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some(arena)) = (self.links.connection_to(node), self.arenas.of(client)) else {
            return self.engine.on_refused(step, Failure::NodeDown);
        };
        let write = Work::Write {
            peer,
            tag: Tag::StagedPut(step).to_bits(),
            local: LocalRange { region: arena.region, offset: from.offset(), bytes: from.bytes.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.links.fabric_mut().post(&[write]) {
            Ok(()) => {
                self.recorder.count_write(from.bytes);
                let tail = table.map_or(&[][..], |table| self.engine.buffer(table));
                self.links.send(node, &message.encode(self.engine.clock(self.now), tail));
            }
            Err(error) => self.engine.on_refused(step, failure_from_post(error.kind)),
        }
    }

    /// Writes the bytes of a served get to the requester, then sends the message that locates them. If the write
    /// cannot be posted, the requester is told to read in another way.
    pub(crate) fn send_served_get(
        &mut self,
        node: NodeId,
        served_get: ServedGetId,
        at: u64,
        from: (u64, u32),
        message: &Message,
        table: Option<BufferId>,
    ) {
        let (Some((peer, staging)), Some((region, offset))) =
            (self.links.connection_to(node), self.areas.region_at(from.0))
        else {
            return self.engine.on_served_get_sent(served_get);
        };
        let write = Work::Write {
            peer,
            tag: Tag::ServedGet(served_get).to_bits(),
            local: LocalRange { region, offset, bytes: from.1.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.links.fabric_mut().post(&[write]) {
            Ok(()) => {
                self.recorder.count_write(from.1);
                let tail = table.map_or(&[][..], |table| self.engine.buffer(table));
                self.links.send(node, &message.encode(self.engine.clock(self.now), tail));
            }
            Err(_) => self.engine.on_served_get_failed(node, served_get, message),
        }
    }

    pub(crate) fn send(&mut self, node: NodeId, message: &Message, tail: MessageBody) {
        let mut bytes = [0; Message::PUT_BYTES_MAX];
        let length = match tail {
            MessageBody::None => 0,
            MessageBody::Client(_, Payload::Inline { bytes: inline, length }) => {
                bytes[..inline.len()].copy_from_slice(&inline);
                usize::from(length)
            }
            MessageBody::Client(client, Payload::Arena(range)) => {
                let length = range.bytes as usize;
                let Some(arena) = self.arenas.of(client) else { return };
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
        self.links.send(node, &message.encode(self.engine.clock(self.now), &bytes[..length]));
    }

    pub(crate) fn send_window(&mut self, node: NodeId, message: Message, at: u64, bytes: u64) {
        let Message::Found { step, info, .. } = message else { return };
        let window =
            self.areas.region_at(at).and_then(|(region, offset)| self.links.window(node, region, (at, offset), bytes));
        let message = match window {
            Some(window) => Message::Found { step, info, window },
            None => Message::Ended {
                step,
                // The segment may have been created by this very message.
                outcome: ddss_core::Outcome::Indeterminate(Failure::Busy(Limit::Windows)),
                version: Default::default(),
                timestamp: Default::default(),
                word: 0,
            },
        };
        self.links.send(node, &message.encode(self.engine.clock(self.now), &[]));
    }
}

/// Maps a refused post to the failure that the client sees.
pub(crate) fn failure_from_post(kind: PostErrorKind) -> Failure {
    match kind {
        PostErrorKind::Busy => Failure::Busy(Limit::PostedOperations),
        PostErrorKind::NotLocked => Failure::Busy(Limit::LockedMemory),
        PostErrorKind::UnknownPeer | PostErrorKind::NotConnected => Failure::NodeDown,
        _ => Failure::OutOfRange,
    }
}
