//! One run of readers and file servers.

use super::checker::{GENERATION, content};
use super::plan::{Fault, FilesPlan};
use super::world::{Event, FileCounts, World};
use crate::random::Random;
use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::{ChunkReply, ChunkRequest, Mirror, ReaderAction, ReaderEvent, ReaderId};

/// Time after which a lost node is declared dead.
const LEASE_US: u64 = 6_000;
/// Time after which readers end the connection to a stopped file server.
const STALL_US: u64 = 1_000;
/// Events of a run at most.
const EVENTS_MAX: u64 = 1_000_000;

/// Result of one run.
pub(crate) struct FilesResult {
    pub(crate) counts: FileCounts,
    pub(crate) trace: u64,
    pub(crate) violations: Vec<String>,
}

/// Runs a plan to its end.
pub(crate) fn run_files(plan: FilesPlan, random: Random) -> FilesResult {
    let mut world = World::new(plan, random);
    for reader in 0..world.readers.len() as u32 {
        world.agenda.add(0, Event::Connect { reader, to: Mirror::First });
        let second = if world.plan.has_second {
            Event::Connect { reader, to: Mirror::Second }
        } else {
            Event::NoticeDeath { reader, from: Mirror::Second }
        };
        world.agenda.add(0, second);
    }
    for (at_us, fault) in world.plan.faults.clone() {
        world.agenda.add_at(at_us, Event::Fault(fault));
    }
    let (mut trace, mut events) = (0_u64, 0);
    while let Some(event) = world.agenda.next() {
        events += 1;
        trace = (trace.rotate_left(5) ^ world.agenda.now_us).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        world.handle(event);
        if !world.violations.is_empty() || events > EVENTS_MAX {
            break;
        }
    }
    world.check_end();
    FilesResult { counts: world.counts, trace, violations: world.violations }
}

impl World {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { reader, at, epoch, bytes } => self.take_request(reader, at, epoch, bytes),
            Event::Read { node, request, epoch } => self.reply(node, request, epoch),
            Event::Reply { reader, from, epoch, bytes, content } => {
                if self.connection(reader, from).epoch == epoch {
                    self.take_reply(reader, from, &bytes, content);
                }
            }
            Event::Copied { reader, slot } => {
                let mut out = Vec::new();
                self.readers[reader as usize].engine.release(slot, &mut out);
                self.execute(reader, out);
            }
            Event::NoticeLoss { reader, from } => self.reader_event(reader, ReaderEvent::Lost(from)),
            Event::NoticeDeath { reader, from } => self.reader_event(reader, ReaderEvent::Dead(from)),
            Event::Connect { reader, to } => self.connect(reader, to),
            Event::Resume(node) => {
                let node = &mut self.nodes[node as usize];
                node.is_stopped = false;
                std::mem::take(&mut node.deferred).into_iter().for_each(|event| self.agenda.add(0, event));
            }
            Event::Fault(fault) => self.inject(fault),
        }
    }

    fn connect(&mut self, reader: u32, to: Mirror) {
        let index = self.node_of(reader, to);
        let node = &mut self.nodes[index as usize];
        if node.is_killed || self.connection(reader, to).is_intact {
            return;
        }
        if self.nodes[index as usize].is_stopped {
            let after_us = 1 + self.random.below(500);
            return self.agenda.add(after_us, Event::Connect { reader, to });
        }
        let connection = self.connection(reader, to);
        connection.epoch += 1;
        connection.is_intact = true;
        let node = &mut self.nodes[index as usize];
        node.server.connect(ReaderId(reader));
        node.waiting.forget(ReaderId(reader));
        self.reader_event(reader, ReaderEvent::Connected(to));
    }

    /// Ends a connection: what is on its way is lost.
    fn cut(&mut self, reader: u32, to: Mirror) {
        let (notice_us, connect_us) = (self.random.below(500), 500 + self.random.below(1_000));
        let connection = self.connection(reader, to);
        if connection.is_intact {
            connection.is_intact = false;
            connection.epoch += 1;
            self.agenda.add(notice_us, Event::NoticeLoss { reader, from: to });
            self.agenda.add(connect_us, Event::Connect { reader, to });
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(reader, to) => self.cut(reader, to),
            Fault::Kill(index) => {
                let node = &mut self.nodes[index as usize];
                if std::mem::replace(&mut node.is_killed, true) {
                    return;
                }
                self.counts.nodes_lost += 1;
                for (reader, from) in self.readers_of(index) {
                    self.cut(reader, from);
                    self.agenda.add(LEASE_US, Event::NoticeDeath { reader, from });
                }
            }
            Fault::Stop(index, for_us) => {
                let node = &mut self.nodes[index as usize];
                if node.is_killed || std::mem::replace(&mut node.is_stopped, true) {
                    return;
                }
                self.agenda.add(for_us, Event::Resume(index));
                if for_us > STALL_US {
                    self.readers_of(index).into_iter().for_each(|(reader, from)| self.cut(reader, from));
                }
            }
        }
    }

    fn readers_of(&self, node: u32) -> Vec<(u32, Mirror)> {
        let all = (0..self.readers.len() as u32).flat_map(|reader| Mirror::BOTH.map(|copy| (reader, copy)));
        all.filter(|(reader, copy)| self.node_of(*reader, *copy) == node).collect()
    }

    fn reader_event(&mut self, reader: u32, event: ReaderEvent) {
        let mut out = Vec::new();
        self.readers[reader as usize].engine.handle(event, &mut out);
        self.execute(reader, out);
    }

    fn execute(&mut self, reader: u32, actions: Vec<ReaderAction>) {
        for action in actions {
            match action {
                ReaderAction::Ask { at, request } => {
                    let mut bytes = Vec::new();
                    encode(&Message::ChunkRequest(request), &mut bytes);
                    let latency_us = self.plan.latency_us;
                    let arrival_us = self.agenda.now_us + self.vary(latency_us);
                    let connection = self.connection(reader, at);
                    if connection.is_intact {
                        let at_us = arrival_us.max(connection.last_request_us);
                        connection.last_request_us = at_us;
                        let epoch = connection.epoch;
                        self.agenda.add_at(at_us, Event::Request { reader, at, epoch, bytes });
                    }
                }
                ReaderAction::Deliver { chunk, slot } => {
                    self.counts.chunks += 1;
                    let process = &mut self.readers[reader as usize];
                    let found = process.buffers[usize::from(slot)];
                    self.violations.extend(process.checker.on_deliver(chunk, found));
                    let program_us = self.plan.program_us;
                    let after_us = if program_us == 0 { 0 } else { self.vary(program_us) };
                    self.agenda.add(after_us, Event::Copied { reader, slot });
                }
                ReaderAction::Ended => {
                    self.counts.finished_us = self.agenda.now_us;
                    self.violations.extend(self.readers[reader as usize].checker.on_end());
                }
                ReaderAction::Failed { chunk, .. } => {
                    self.counts.parts_failed += 1;
                    self.readers[reader as usize].is_failed = true;
                    self.check_failure(reader, chunk);
                }
            }
        }
    }

    /// Checks that no node could have delivered a chunk.
    fn check_failure(&mut self, part: u32, chunk: u32) {
        for (copy, plan) in Mirror::BOTH.into_iter().zip(self.plan.copies[part as usize].clone()) {
            let node = &self.nodes[self.node_of(part, copy) as usize];
            if !node.is_killed && !plan.is_stale && !plan.damaged.contains(&chunk) {
                self.violations.push(format!("lost: chunk {chunk} of part {part} failed, and {copy:?} has it"));
            }
        }
    }

    fn take_request(&mut self, reader: u32, at: Mirror, epoch: u32, bytes: Vec<u8>) {
        let index = self.node_of(reader, at);
        let node = &mut self.nodes[index as usize];
        if node.is_stopped {
            return node.deferred.push(Event::Request { reader, at, epoch, bytes });
        }
        if node.is_killed || self.connection(reader, at).epoch != epoch {
            return;
        }
        let Ok((Message::ChunkRequest(request), [])) = decode(&bytes) else { panic!("a request of an honest reader") };
        let node = &mut self.nodes[index as usize];
        match node.server.add(request) {
            Ok(()) => node.waiting.add(request.reader, request.progress),
            Err(error) => self.violations.push(format!("memory: {error}")),
        }
        self.read_next(index);
    }

    fn read_next(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        if node.is_reading || node.is_killed || node.is_stopped {
            return;
        }
        let Some(request) = node.server.take() else { return };
        node.is_reading = true;
        self.violations.extend(node.waiting.serve(request.reader));
        let read_us = node.disk.read_us(request.part, request.chunk);
        let after_us = self.vary(read_us);
        let copy = self.copy_at(index, request.part.0);
        let epoch = self.connection(request.reader.0, copy).epoch;
        self.agenda.add(after_us, Event::Read { node: index, request, epoch });
    }

    /// Sends a chunk that the disk has read, if the connection that asked for it is there.
    fn reply(&mut self, index: u32, request: ChunkRequest, epoch: u32) {
        let node = &mut self.nodes[index as usize];
        if node.is_stopped {
            return node.deferred.push(Event::Read { node: index, request, epoch });
        }
        node.is_reading = false;
        if node.is_killed {
            return;
        }
        let ChunkRequest { reader, part, chunk, slot, .. } = request;
        let copy = self.copy_at(index, part.0);
        let plan = &self.plan.copies[part.0 as usize][usize::from(copy == Mirror::Second)];
        let generation = if plan.is_stale { GENERATION - 1 } else { GENERATION };
        let found = content(part.0, chunk, generation);
        // The checksum belongs to the bytes that were written.
        let checksum = found as u32;
        let content = if plan.damaged.contains(&chunk) { found ^ 6 } else { found };
        let mut bytes = Vec::new();
        let reply = ChunkReply { reader, part, generation: Some(generation), chunk, slot, checksum };
        encode(&Message::ChunkReply(reply), &mut bytes);
        let latency_us = self.plan.latency_us;
        let arrival_us = self.agenda.now_us + self.vary(latency_us);
        let connection = self.connection(reader.0, copy);
        if connection.epoch == epoch && connection.is_intact {
            let at_us = arrival_us.max(connection.last_reply_us);
            connection.last_reply_us = at_us;
            self.agenda.add_at(at_us, Event::Reply { reader: reader.0, from: copy, epoch, bytes, content });
        }
        self.read_next(index);
    }

    fn take_reply(&mut self, reader: u32, from: Mirror, bytes: &[u8], content: u64) {
        let Ok((Message::ChunkReply(reply), [])) = decode(bytes) else { panic!("a reply of an honest server") };
        self.readers[reader as usize].buffers[usize::from(reply.slot)] = content;
        let is_intact = content as u32 == reply.checksum;
        self.counts.refused += u64::from(!is_intact || reply.generation != Some(GENERATION));
        self.reader_event(reader, ReaderEvent::Reply { from, reply, is_intact });
    }

    /// Checks that each reader has ended.
    fn check_end(&mut self) {
        if self.violations.is_empty() {
            let open = self.readers.iter().position(|reader| !reader.engine.has_ended());
            self.violations.extend(open.map(|part| format!("end: the reader of part {part} did not end")));
        }
    }
}
