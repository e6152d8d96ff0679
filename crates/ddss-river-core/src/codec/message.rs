//! Messages: a byte for the kind, the route, then the fields. Several may follow one another in one transfer.

use super::error::MessageError;
use super::fields::{Reader, Writer};
use crate::limits::{HEADER_BYTES, INLINE_BYTES_MAX};
use crate::model::{ChunkReply, ChunkRequest, Flags, Header, Route, ToConsumer, ToProducer, UnitId};

const PUT: u8 = 1;
const RECALL: u8 = 2;
const CLOSED: u8 = 3;
const ASK: u8 = 4;
const ACKNOWLEDGED: u8 = 5;
const BEGUN: u8 = 6;
const RECALLED: u8 = 7;
const REJECTED: u8 = 8;
const WITHDRAWN: u8 = 9;
const CHUNK_REQUEST: u8 = 10;
const CHUNK_REPLY: u8 = 11;

const REDELIVERED_FLAG: u8 = 1;
const RECALLED_FLAG: u8 = 2;
const INLINE_FLAG: u8 = 4;
const ALL_FLAGS: u8 = REDELIVERED_FLAG | RECALLED_FLAG | INLINE_FLAG;

/// Stands for a message without a work unit.
const NO_UNIT: u64 = u64::MAX;
/// Stands for a chunk that the server cannot read.
const NO_GENERATION: u64 = u64::MAX;
/// Zeros that fill a header to [`HEADER_BYTES`].
const PADDING_BYTES: usize = HEADER_BYTES - 40;

/// A message between the members of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A message of the application is in its slot, or behind the header.
    Put {
        /// Route.
        route: Route,
        /// Header.
        header: Header,
        /// The bytes, at most [`INLINE_BYTES_MAX`], if they are not in the slot.
        inline: Option<&'a [u8]>,
    },
    /// A notice of a producer.
    ToConsumer(Route, ToConsumer),
    /// A notice of a consumer.
    ToProducer(Route, ToProducer),
    /// A request of a reader to a file server.
    ChunkRequest(ChunkRequest),
    /// A reply of a file server: the chunk is in its buffer.
    ChunkReply(ChunkReply),
}

/// Appends a message.
///
/// # Panics
/// If inline bytes are more than [`INLINE_BYTES_MAX`], or others than the header says.
pub fn encode(message: &Message<'_>, into: &mut Vec<u8>) {
    let mut writer = Writer(into);
    match message {
        Message::Put { route, header, inline } => encode_put(&mut writer, *route, header, *inline),
        Message::ToConsumer(route, notice) => {
            let (kind, attempt) = match notice {
                ToConsumer::Recall(attempt) => (RECALL, Some(*attempt)),
                ToConsumer::Closed => (CLOSED, None),
            };
            writer.byte(kind);
            writer.route(*route);
            attempt.into_iter().for_each(|attempt| writer.attempt(attempt));
        }
        Message::ToProducer(route, notice) => {
            let (kind, attempt, load) = match notice {
                ToProducer::Ask => (ASK, None, None),
                ToProducer::Acknowledged { attempt, load } => (ACKNOWLEDGED, Some(*attempt), Some(*load)),
                ToProducer::Begun(attempt) => (BEGUN, Some(*attempt), None),
                ToProducer::Recalled(attempt) => (RECALLED, Some(*attempt), None),
                ToProducer::Rejected(attempt) => (REJECTED, Some(*attempt), None),
                ToProducer::Withdrawn => (WITHDRAWN, None, None),
            };
            writer.byte(kind);
            writer.route(*route);
            attempt.into_iter().for_each(|attempt| writer.attempt(attempt));
            load.into_iter().for_each(|load| writer.load(load));
        }
        Message::ChunkRequest(request) => {
            let ChunkRequest { reader, part, generation, chunk, slot, progress } = *request;
            writer.byte(CHUNK_REQUEST);
            writer.chunk(reader, part, chunk, slot);
            writer.long(generation);
            writer.progress(progress);
        }
        Message::ChunkReply(reply) => {
            let ChunkReply { reader, part, generation, chunk, slot, checksum } = *reply;
            writer.byte(CHUNK_REPLY);
            writer.chunk(reader, part, chunk, slot);
            writer.long(generation.unwrap_or(NO_GENERATION));
            writer.word(checksum);
        }
    }
}

/// Decodes the first message. Returns it and the bytes behind it.
///
/// # Errors
/// The first field that no member sends.
pub fn decode(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), MessageError> {
    let mut reader = Reader(bytes);
    let kind = reader.byte()?;
    let message = match kind {
        PUT => decode_put(&mut reader)?,
        CHUNK_REQUEST => decode_request(&mut reader)?,
        CHUNK_REPLY => decode_reply(&mut reader)?,
        _ => decode_notice(kind, &mut reader)?,
    };
    Ok((message, reader.0))
}

fn encode_put(w: &mut Writer<'_>, route: Route, header: &Header, inline: Option<&[u8]>) {
    let start = w.0.len();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(header.flags.is_redelivered, REDELIVERED_FLAG)
        | flag(header.flags.is_recalled, RECALLED_FLAG)
        | flag(inline.is_some(), INLINE_FLAG);
    w.byte(PUT);
    w.byte(flags);
    w.route(route);
    w.attempt(header.attempt);
    w.half(header.slot);
    w.word(header.length);
    w.word(header.checksum);
    w.long(header.unit.map_or(NO_UNIT, |unit| unit.0));
    w.0.resize(start + HEADER_BYTES, 0);
    if let Some(bytes) = inline {
        assert!(bytes.len() <= INLINE_BYTES_MAX && bytes.len() == header.length as usize, "{} bytes", bytes.len());
        w.0.extend_from_slice(bytes);
    }
}

fn decode_put<'a>(r: &mut Reader<'a>) -> Result<Message<'a>, MessageError> {
    let flags = r.byte()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(MessageError::Field("flags", flags.into()));
    }
    let (route, attempt, slot, length, checksum) = (r.route()?, r.attempt()?, r.slot()?, r.length()?, r.word()?);
    let unit = Some(UnitId(r.long()?)).filter(|unit| unit.0 != NO_UNIT);
    r.padding::<PADDING_BYTES>()?;
    let is_inline = flags & INLINE_FLAG != 0;
    if is_inline && length as usize > INLINE_BYTES_MAX {
        return Err(MessageError::Field("inline length", length.into()));
    }
    let inline = if is_inline { Some(r.bytes(length as usize)?) } else { None };
    let is_redelivered = flags & REDELIVERED_FLAG != 0;
    let flags = Flags { is_redelivered, is_recalled: flags & RECALLED_FLAG != 0 };
    Ok(Message::Put { route, header: Header { attempt, slot, length, checksum, unit, flags }, inline })
}

fn decode_notice<'a>(kind: u8, r: &mut Reader<'_>) -> Result<Message<'a>, MessageError> {
    if !(RECALL..=WITHDRAWN).contains(&kind) {
        return Err(MessageError::Kind(kind));
    }
    let route = r.route()?;
    Ok(match kind {
        RECALL => Message::ToConsumer(route, ToConsumer::Recall(r.attempt()?)),
        CLOSED => Message::ToConsumer(route, ToConsumer::Closed),
        ASK => Message::ToProducer(route, ToProducer::Ask),
        ACKNOWLEDGED => {
            let notice = ToProducer::Acknowledged { attempt: r.attempt()?, load: r.load()? };
            Message::ToProducer(route, notice)
        }
        BEGUN => Message::ToProducer(route, ToProducer::Begun(r.attempt()?)),
        RECALLED => Message::ToProducer(route, ToProducer::Recalled(r.attempt()?)),
        REJECTED => Message::ToProducer(route, ToProducer::Rejected(r.attempt()?)),
        _ => Message::ToProducer(route, ToProducer::Withdrawn),
    })
}

fn decode_request<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, MessageError> {
    let (reader, part, chunk, slot) = r.chunk()?;
    let generation = r.long()?;
    if generation == NO_GENERATION {
        return Err(MessageError::Field("generation", generation));
    }
    let progress = r.progress()?;
    Ok(Message::ChunkRequest(ChunkRequest { reader, part, generation, chunk, slot, progress }))
}

fn decode_reply<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, MessageError> {
    let (reader, part, chunk, slot) = r.chunk()?;
    let generation = Some(r.long()?).filter(|generation| *generation != NO_GENERATION);
    Ok(Message::ChunkReply(ChunkReply { reader, part, generation, chunk, slot, checksum: r.word()? }))
}
