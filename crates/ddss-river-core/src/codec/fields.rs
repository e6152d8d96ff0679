//! Fields of a message: little-endian, without gaps.

use super::error::MessageError;
use crate::limits::{CHUNK_SLOTS_MAX, CHUNKS_MAX, MESSAGE_BYTES_MAX, SEND_SLOTS_MAX, WINDOW_MAX};
use crate::model::{Attempt, ConsumerId, EdgeId, Load, PartId, ProducerId, Progress, ReaderId, Route};

/// Appends fields to a message.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn half(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn route(&mut self, route: Route) {
        self.word(route.edge.0);
        self.half(route.producer.0);
        self.half(route.consumer.0);
    }

    pub(super) fn attempt(&mut self, attempt: Attempt) {
        self.long(attempt.index);
        self.half(attempt.place);
        self.half(attempt.number);
    }

    pub(super) fn load(&mut self, load: Load) {
        self.word(load.messages);
        self.word(load.service_us);
    }

    pub(super) fn chunk(&mut self, reader: ReaderId, part: PartId, chunk: u32, slot: u16) {
        self.word(reader.0);
        self.word(part.0);
        self.word(chunk);
        self.half(slot);
    }

    pub(super) fn progress(&mut self, progress: Progress) {
        self.word(progress.done);
        self.word(progress.total);
    }
}

/// Takes fields from the front of a message. Each is checked against its limit.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn byte(&mut self) -> Result<u8, MessageError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn half(&mut self) -> Result<u16, MessageError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn word(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn route(&mut self) -> Result<Route, MessageError> {
        let edge = EdgeId(self.word()?);
        Ok(Route { edge, producer: ProducerId(self.half()?), consumer: ConsumerId(self.half()?) })
    }

    pub(super) fn attempt(&mut self) -> Result<Attempt, MessageError> {
        let (index, place, number) = (self.long()?, self.half()?, self.half()?);
        if place >= SEND_SLOTS_MAX {
            return Err(MessageError::Field("send slot", place.into()));
        }
        if number == 0 {
            return Err(MessageError::Field("attempt", 0));
        }
        Ok(Attempt { index, place, number })
    }

    pub(super) fn slot(&mut self) -> Result<u16, MessageError> {
        let slot = self.half()?;
        if slot < WINDOW_MAX { Ok(slot) } else { Err(MessageError::Field("slot", slot.into())) }
    }

    pub(super) fn length(&mut self) -> Result<u32, MessageError> {
        let length = self.word()?;
        if length <= MESSAGE_BYTES_MAX { Ok(length) } else { Err(MessageError::Field("length", length.into())) }
    }

    pub(super) fn load(&mut self) -> Result<Load, MessageError> {
        Ok(Load { messages: self.word()?, service_us: self.word()? })
    }

    pub(super) fn chunk(&mut self) -> Result<(ReaderId, PartId, u32, u16), MessageError> {
        let (reader, part, chunk, slot) = (ReaderId(self.word()?), PartId(self.word()?), self.word()?, self.half()?);
        if chunk >= CHUNKS_MAX {
            return Err(MessageError::Field("chunk", chunk.into()));
        }
        if slot >= CHUNK_SLOTS_MAX {
            return Err(MessageError::Field("chunk buffer", slot.into()));
        }
        Ok((reader, part, chunk, slot))
    }

    pub(super) fn progress(&mut self) -> Result<Progress, MessageError> {
        let (done, total) = (self.word()?, self.word()?);
        let is_valid = done <= total && (1..=CHUNKS_MAX).contains(&total);
        if is_valid { Ok(Progress { done, total }) } else { Err(MessageError::Field("progress", done.into())) }
    }

    /// Takes zeros.
    pub(super) fn padding<const N: usize>(&mut self) -> Result<(), MessageError> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(MessageError::Field("padding", 1)) }
    }

    /// Takes bytes.
    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], MessageError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }
}
