//! Bytes of the messages: a byte for the kind, then the fields.

use super::error::MessageError;
use super::kinds::Message;
use super::reader::Reader;
use super::writer::Writer;
use crate::diff::PackedRuns;
use crate::limits::RANGE_BYTES;
use crate::model::Config;

const LOCK_REQUEST: u8 = 1;
const LOCK_FORWARD: u8 = 2;
const LOCK_GRANT: u8 = 3;
const BARRIER_ARRIVE: u8 = 4;
const BARRIER_DEPART: u8 = 5;
const SEMAPHORE_POST: u8 = 6;
const SEMAPHORE_WAIT: u8 = 7;
const SEMAPHORE_GRANT: u8 = 8;
const COUNTER_ADD: u8 = 9;
const COUNTER_VALUE: u8 = 10;
const STAMP: u8 = 11;
const DIFF: u8 = 12;
const DIFF_ACK: u8 = 13;
const PAGE_REQUEST: u8 = 14;
const PAGE_FORWARD: u8 = 15;
const PAGE_WRITTEN: u8 = 16;
const APPOINTED: u8 = 17;
const AWAIT: u8 = 18;
const REACHED: u8 = 19;
const LOST: u8 = 20;
const GAVE_UP: u8 = 21;

/// Bytes of a diff message in front of its runs.
const DIFF_HEADER_BYTES: usize = 17;
/// Bytes of a stamp message in front of its ranges.
const STAMP_HEADER_BYTES: usize = 7;

/// Encodes and decodes the messages of one space.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    ranks: usize,
    pages: u32,
    page_bytes: u32,
    message_bytes: usize,
}

impl Codec {
    /// Returns the codec of a space.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let Config { ranks, pages, page_bytes, message_bytes, .. } = *config;
        Self { ranks, pages, page_bytes, message_bytes }
    }

    /// Returns the bytes of runs that a diff message has room for.
    pub(crate) const fn diff_capacity(&self) -> usize {
        self.message_bytes - DIFF_HEADER_BYTES
    }

    /// Returns the ranges that a stamp message has room for.
    pub(crate) const fn stamp_ranges(&self) -> usize {
        (self.message_bytes - STAMP_HEADER_BYTES) / RANGE_BYTES
    }

    /// Returns true if a message of this many bytes can be sent.
    pub(crate) const fn fits(&self, bytes: usize) -> bool {
        bytes <= self.message_bytes
    }

    /// Appends a message.
    pub fn encode(&self, message: &Message<'_>, into: &mut Vec<u8>) {
        let mut writer = Writer { bytes: into, ranks: self.ranks };
        match message {
            Message::Stamp { .. }
            | Message::Diff { .. }
            | Message::DiffAck { .. }
            | Message::PageRequest { .. }
            | Message::PageForward { .. }
            | Message::PageWritten { .. }
            | Message::Appointed { .. }
            | Message::Await { .. }
            | Message::Reached { .. } => encode_page_message(&mut writer, message),
            _ => encode_sync_message(&mut writer, message),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The first field that no rank of the space sends.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Message<'a>, MessageError> {
        let mut reader = Reader { bytes, ranks: self.ranks, pages: self.pages };
        let kind = reader.byte()?;
        let message = match kind {
            LOCK_REQUEST..=COUNTER_VALUE | LOST | GAVE_UP => decode_sync_message(kind, &mut reader)?,
            _ => decode_page_message(kind, &mut reader, self.page_bytes)?,
        };
        if reader.bytes.is_empty() { Ok(message) } else { Err(MessageError::Long(reader.bytes.len())) }
    }
}

fn encode_sync_message(w: &mut Writer<'_>, message: &Message<'_>) {
    let (kind, index, time) = match message {
        Message::LockRequest { lock, time } => (LOCK_REQUEST, *lock, Some(time)),
        Message::LockForward { lock, time, .. } => (LOCK_FORWARD, *lock, Some(time)),
        Message::LockGrant { lock, time, .. } => (LOCK_GRANT, *lock, Some(time)),
        Message::BarrierArrive { barrier, time } => (BARRIER_ARRIVE, *barrier, Some(time)),
        Message::BarrierDepart { barrier, time } => (BARRIER_DEPART, *barrier, Some(time)),
        Message::SemaphorePost { semaphore, time } => (SEMAPHORE_POST, *semaphore, Some(time)),
        Message::SemaphoreWait { semaphore } => (SEMAPHORE_WAIT, *semaphore, None),
        Message::SemaphoreGrant { semaphore, time } => (SEMAPHORE_GRANT, *semaphore, Some(time)),
        Message::CounterAdd { counter, time, .. } => (COUNTER_ADD, *counter, Some(time)),
        Message::CounterValue { counter, time, .. } => (COUNTER_VALUE, *counter, Some(time)),
        Message::Lost { rank } => {
            w.byte(LOST);
            return w.rank(*rank);
        }
        Message::GaveUp { rank, missing } => {
            w.byte(GAVE_UP);
            w.rank(*rank);
            return w.half(missing.bits());
        }
        _ => unreachable!("messages about pages have an encoder of their own"),
    };
    w.byte(kind);
    w.word(index);
    if let Some(time) = time {
        w.time(time);
    }
    match message {
        Message::LockForward { requester, .. } => w.rank(*requester),
        Message::LockGrant { notices, .. } => w.notices(notices.as_deref()),
        Message::CounterAdd { delta: value, .. } | Message::CounterValue { value, .. } => w.long(*value),
        _ => {}
    }
}

fn encode_page_message(w: &mut Writer<'_>, message: &Message<'_>) {
    match message {
        Message::Stamp { interval, pages } => {
            w.byte(STAMP);
            w.word(*interval);
            w.ranges(pages);
        }
        Message::Diff { page, interval, sequence, runs } => {
            w.byte(DIFF);
            w.word(page.0);
            w.word(*interval);
            w.long(*sequence);
            w.bytes.extend_from_slice(runs.bytes());
        }
        Message::DiffAck { sequence } => {
            w.byte(DIFF_ACK);
            w.long(*sequence);
        }
        Message::PageRequest { page, slot, needed } | Message::Await { page, slot, needed } => {
            w.byte(if matches!(message, Message::Await { .. }) { AWAIT } else { PAGE_REQUEST });
            w.word(page.0);
            w.half(*slot);
            w.time(needed);
        }
        Message::PageForward { page, requester, slot, needed } => {
            w.byte(PAGE_FORWARD);
            w.word(page.0);
            w.half(*slot);
            w.time(needed);
            w.rank(*requester);
        }
        Message::PageWritten { page, slot } | Message::Appointed { page, slot } | Message::Reached { page, slot } => {
            w.byte(match message {
                Message::PageWritten { .. } => PAGE_WRITTEN,
                Message::Appointed { .. } => APPOINTED,
                _ => REACHED,
            });
            w.word(page.0);
            w.half(*slot);
        }
        _ => unreachable!("messages of synchronisation have an encoder of their own"),
    }
}

fn decode_sync_message<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Message<'a>, MessageError> {
    if kind == LOST {
        return Ok(Message::Lost { rank: r.rank()? });
    }
    if kind == GAVE_UP {
        return Ok(Message::GaveUp { rank: r.rank()?, missing: r.rank_set()? });
    }
    let index = r.index()?;
    if kind == SEMAPHORE_WAIT {
        return Ok(Message::SemaphoreWait { semaphore: index });
    }
    let time = r.time()?;
    Ok(match kind {
        LOCK_REQUEST => Message::LockRequest { lock: index, time },
        LOCK_FORWARD => Message::LockForward { lock: index, time, requester: r.rank()? },
        LOCK_GRANT => Message::LockGrant { lock: index, time, notices: r.notices()? },
        BARRIER_ARRIVE => Message::BarrierArrive { barrier: index, time },
        BARRIER_DEPART => Message::BarrierDepart { barrier: index, time },
        SEMAPHORE_POST => Message::SemaphorePost { semaphore: index, time },
        SEMAPHORE_GRANT => Message::SemaphoreGrant { semaphore: index, time },
        COUNTER_ADD => Message::CounterAdd { counter: index, time, delta: r.long()? },
        COUNTER_VALUE => Message::CounterValue { counter: index, time, value: r.long()? },
        _ => return Err(MessageError::Kind(kind)),
    })
}

fn decode_page_message<'a>(kind: u8, r: &mut Reader<'a>, page_bytes: u32) -> Result<Message<'a>, MessageError> {
    Ok(match kind {
        STAMP => Message::Stamp { interval: r.interval()?, pages: r.ranges()? },
        DIFF => {
            let (page, interval, sequence) = (r.page()?, r.interval()?, r.long()?);
            let runs = r.rest();
            let length = runs.len() as u64;
            let runs = PackedRuns::check(runs, page_bytes).map_err(|_| MessageError::Field("runs of", length))?;
            Message::Diff { page, interval, sequence, runs }
        }
        DIFF_ACK => Message::DiffAck { sequence: r.long()? },
        PAGE_REQUEST => Message::PageRequest { page: r.page()?, slot: r.slot()?, needed: r.time()? },
        AWAIT => Message::Await { page: r.page()?, slot: r.slot()?, needed: r.time()? },
        PAGE_FORWARD => {
            let (page, slot, needed) = (r.page()?, r.slot()?, r.time()?);
            Message::PageForward { page, slot, needed, requester: r.rank()? }
        }
        PAGE_WRITTEN => Message::PageWritten { page: r.page()?, slot: r.slot()? },
        APPOINTED => Message::Appointed { page: r.page()?, slot: r.slot()? },
        REACHED => Message::Reached { page: r.page()?, slot: r.slot()? },
        _ => return Err(MessageError::Kind(kind)),
    })
}
