//! The reader of a mirrored part.

use super::chunks::{Chunks, ReadOrder};
use crate::fault_injection::planted;
use crate::limits::{CHUNK_WINDOW_MAX, CHUNKS_MAX, GENERATION_MAX};
use crate::model::{ChunkReply, ChunkRequest, ConfigError, Mirror, PartId, Progress, ReaderId};

/// Settings of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderConfig {
    /// Number of the reader.
    pub reader: ReaderId,
    /// Part.
    pub part: PartId,
    /// Generation that the catalogue names.
    pub generation: u64,
    /// Chunks of the part.
    pub chunks: u32,
    /// Requests at one mirror at most.
    pub window: u16,
    /// Order in which the program wants the chunks.
    pub order: ReadOrder,
}

/// Something that happened to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaderEvent {
    /// A connection to a mirror begins.
    Connected(Mirror),
    /// The connection to a mirror ended. It may come back.
    Lost(Mirror),
    /// A mirror is dead, or has no such part.
    Dead(Mirror),
    /// A reply arrived.
    Reply {
        /// Sender.
        from: Mirror,
        /// Reply.
        reply: ChunkReply,
        /// True if the checksum of the bytes is that of the reply.
        is_intact: bool,
    },
}

/// A step that the driver of a reader executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaderAction {
    /// Asks a mirror for a chunk.
    Ask {
        /// Mirror.
        at: Mirror,
        /// Request.
        request: ChunkRequest,
    },
    /// Gives the program a chunk. Its buffer is in use until [`PartReader::release`].
    Deliver {
        /// Number of the chunk.
        chunk: u32,
        /// Chunk buffer.
        slot: u16,
    },
    /// The program has all chunks.
    Ended,
    /// No mirror has the chunk: the program gets an error that names it.
    Failed {
        /// Part.
        part: PartId,
        /// Number of the chunk.
        chunk: u32,
    },
}

/// State of a mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MirrorState {
    Away,
    Connected,
    Dead,
}

/// Use of a chunk buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Free,
    /// A mirror was asked for a chunk. True if the other one could not deliver it.
    Asked(Mirror, u32, bool),
    /// The program has the chunk.
    Delivered,
}

/// The reader of a mirrored part.
///
/// One mirror is asked from the front and the other from the back, until they meet. What a mirror cannot deliver is asked
/// of the other.
#[derive(Clone, Debug)]
pub struct PartReader {
    config: ReaderConfig,
    chunks: Chunks,
    mirrors: [MirrorState; 2],
    slots: Box<[Slot]>,
    done: u32,
    has_ended: bool,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

impl PartReader {
    /// Returns a reader without connections. A part without chunks has ended.
    ///
    /// # Errors
    /// A setting outside its limits.
    pub fn new(config: ReaderConfig) -> Result<Self, ConfigError> {
        let limits = [
            ("window", u64::from(config.window), 1, u64::from(CHUNK_WINDOW_MAX)),
            ("chunks", config.chunks.into(), 0, CHUNKS_MAX.into()),
            ("generation", config.generation, 0, GENERATION_MAX),
        ];
        if let Some((name, value, _, max)) = limits.into_iter().find(|(_, value, min, max)| value < min || value > max)
        {
            return Err(ConfigError { name, value, max });
        }
        let slots = 2 * config.window;
        Ok(Self {
            config,
            chunks: Chunks::new(config.chunks, config.order, slots),
            mirrors: [MirrorState::Away; 2],
            slots: vec![Slot::Free; slots.into()].into(),
            done: 0,
            has_ended: config.chunks == 0,
            #[cfg(feature = "planted")]
            bug: None,
        })
    }

    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Returns true if the program has all chunks, or an error.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns a chunk that a mirror could not deliver while the other one is away, and the mirror that is away.
    #[must_use]
    pub fn awaited(&self) -> Option<(u32, Mirror)> {
        self.chunks.awaited()
    }

    /// Returns a mirror that was asked for this chunk, or for any one, if the other mirror is connected and may have it as well. A driver
    /// to which the mirror owes it for too long says that it lost the mirror; with its next reply the mirror is connected again.
    #[must_use]
    pub fn replaceable(&self, chunk: Option<u32>) -> Option<Mirror> {
        let asked = self.slots.iter().filter_map(|slot| match *slot {
            Slot::Asked(mirror, asked, false) if chunk.is_none_or(|chunk| chunk == asked) => Some(mirror),
            _ => None,
        });
        asked.into_iter().find(|mirror| self.mirrors[mirror.other().index()] == MirrorState::Connected)
    }

    /// Returns the number of chunk buffers.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Frees the buffer of a delivered chunk, which the program has copied.
    ///
    /// # Panics
    /// If no chunk was delivered in the buffer.
    pub fn release(&mut self, slot: u16, out: &mut Vec<ReaderAction>) {
        let place = &mut self.slots[usize::from(slot)];
        assert_eq!(*place, Slot::Delivered, "chunk buffer {slot} was not delivered");
        *place = Slot::Free;
        self.ask(out);
    }

    /// Handles an event. A reply to no request changes nothing.
    pub fn handle(&mut self, event: ReaderEvent, out: &mut Vec<ReaderAction>) {
        if self.has_ended {
            return;
        }
        match event {
            ReaderEvent::Connected(mirror) => {
                if self.mirrors[mirror.index()] == MirrorState::Away {
                    self.mirrors[mirror.index()] = MirrorState::Connected;
                }
            }
            ReaderEvent::Lost(mirror) => {
                if self.mirrors[mirror.index()] == MirrorState::Connected {
                    self.mirrors[mirror.index()] = MirrorState::Away;
                    self.ask_again(mirror, out);
                }
            }
            ReaderEvent::Dead(mirror) => {
                self.mirrors[mirror.index()] = MirrorState::Dead;
                self.ask_again(mirror, out);
                self.fail_without_mirrors(mirror, out);
            }
            ReaderEvent::Reply { from, reply, is_intact } => self.take_reply(from, &reply, is_intact, out),
        }
        self.ask(out);
    }

    /// Gives the chunks back that a lost mirror was asked for.
    fn ask_again(&mut self, mirror: Mirror, out: &mut Vec<ReaderAction>) {
        if planted!(self, ChunksForgotten) {
            self.slots
                .iter_mut()
                .filter(|slot| matches!(slot, Slot::Asked(at, ..) if *at == mirror))
                .for_each(|slot| *slot = Slot::Free);
            return;
        }
        for slot in 0..self.slots.len() {
            if let Slot::Asked(at, chunk, is_last) = self.slots[slot]
                && at == mirror
            {
                self.slots[slot] = Slot::Free;
                if is_last && self.mirrors[mirror.index()] == MirrorState::Dead {
                    self.fail(chunk, out);
                } else {
                    // The mirror may come back for a chunk that the other one cannot deliver.
                    self.chunks.give_back(chunk, is_last.then_some(mirror));
                }
            }
        }
    }

    /// Fails if a chunk is left that only a dead mirror has, or both mirrors are dead.
    fn fail_without_mirrors(&mut self, dead: Mirror, out: &mut Vec<ReaderAction>) {
        let are_dead = self.mirrors == [MirrorState::Dead; 2];
        let left = self.chunks.take_only_at(dead).or_else(|| if are_dead { self.chunks.take(dead) } else { None });
        left.into_iter().for_each(|chunk| self.fail(chunk, out));
    }

    fn fail(&mut self, chunk: u32, out: &mut Vec<ReaderAction>) {
        if !self.has_ended {
            self.has_ended = true;
            out.push(ReaderAction::Failed { part: self.config.part, chunk });
        }
    }

    fn take_reply(&mut self, from: Mirror, reply: &ChunkReply, is_intact: bool, out: &mut Vec<ReaderAction>) {
        let place = self.slots.get(usize::from(reply.slot)).copied();
        let Some(Slot::Asked(at, chunk, is_last)) = place else { return };
        if at != from || chunk != reply.chunk || reply.part != self.config.part || reply.reader != self.config.reader {
            return;
        }
        let slot = &mut self.slots[usize::from(reply.slot)];
        let is_current = reply.generation == Some(self.config.generation)
            || planted!(self, ForeignGeneration) && reply.generation.is_some();
        if is_current && is_intact {
            *slot = Slot::Delivered;
            self.done += 1;
            out.push(ReaderAction::Deliver { chunk, slot: reply.slot });
            if self.done == self.config.chunks {
                self.has_ended = true;
                out.push(ReaderAction::Ended);
            }
            return;
        }
        *slot = Slot::Free;
        let other = from.other();
        if is_last || self.mirrors[other.index()] == MirrorState::Dead {
            self.fail(chunk, out);
        } else {
            self.chunks.give_back(chunk, Some(other));
        }
    }

    /// Asks both mirrors for chunks, as far as windows and buffers go.
    fn ask(&mut self, out: &mut Vec<ReaderAction>) {
        if self.has_ended {
            return;
        }
        let ReaderConfig { reader, part, generation, chunks: total, window, .. } = self.config;
        let progress = Progress { done: self.done, total };
        loop {
            let mut has_asked = false;
            for mirror in Mirror::BOTH {
                let asked =
                    self.slots.iter().filter(|slot| matches!(slot, Slot::Asked(at, ..) if *at == mirror)).count();
                let can_ask = self.mirrors[mirror.index()] == MirrorState::Connected && asked < usize::from(window);
                let free = self.slots.iter().filter(|slot| **slot == Slot::Free).count();
                let slot = self.slots.iter().position(|slot| *slot == Slot::Free).filter(|_| can_ask);
                let Some(slot) = slot else { continue };
                let has_room = free > self.chunks.kept_buffers();
                let (chunk, is_last) = match self.chunks.take_only_at(mirror) {
                    Some(chunk) => (chunk, true),
                    None => match if has_room { self.chunks.take(mirror) } else { self.chunks.take_returned() } {
                        Some(chunk) => (chunk, self.mirrors[mirror.other().index()] == MirrorState::Dead),
                        None => continue,
                    },
                };
                self.slots[slot] = Slot::Asked(mirror, chunk, is_last);
                let slot = slot as u16;
                let request = ChunkRequest { reader, part, generation, chunk, slot, progress };
                out.push(ReaderAction::Ask { at: mirror, request });
                has_asked = true;
            }
            if !has_asked {
                return;
            }
        }
    }
}
