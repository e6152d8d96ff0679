//! Queue of encoded bytes for a connection's socket: frames in a private buffer, and payload sent from registered
//! memory.
//!
//! Bytes in the private buffer never change, so a frame that was sent in part stays consistent. Payload in registered
//! memory may change while it waits; only its length is fixed. Payload under a CRC therefore stays in memory only if
//! the polling thread is its sole writer, and only until the end of the poll ([`SendQueue::copy_in_place_payload`]).

use std::collections::VecDeque;

use crate::id::RegionId;
use crate::iwarp::mpa::{MarkedFrame, frame_bytes, marked_frame_bytes, sealed_frame_bytes};
use crate::limits::{SEND_QUEUE_BYTES, SNAPSHOT_BYTES};
use crate::memory::RegionTable;
use crate::sealing::{Seal, TAG_BYTES};
use crate::sys::{Part, crc};

/// Buffer that a quiet connection retains: one answer of [`SNAPSHOT_BYTES`] and the small messages around it. An
/// occasional read of that size then causes no allocation.
const QUIET_BUFFER_BYTES: usize = 128 << 10;

const _: () = assert!(SNAPSHOT_BYTES + (32 << 10) <= QUIET_BUFFER_BYTES);

/// Chunks that wait before encoding pauses.
const CHUNKS_MAX: usize = 72;

#[derive(Clone, Copy)]
enum Chunk {
    Owned(usize),
    Memory { region: RegionId, offset: u64, bytes: usize },
}

/// Source of a frame's payload.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// Registered memory on which the caller has a hold.
    Memory {
        region: RegionId,
        offset: u64,
        bytes: usize,
    },
}

/// End of a frame, which protects it.
#[derive(Default)]
pub(crate) enum Integrity {
    /// Zeros.
    #[default]
    None,
    Crc,
    /// The tag of the cipher, which encrypts all but the length.
    Sealed(Seal),
}

impl Integrity {
    pub(crate) fn of_crc(crc: bool) -> Self {
        if crc { Self::Crc } else { Self::None }
    }

    fn is_crc(&self) -> bool {
        matches!(self, Self::Crc)
    }
}

/// Encoded bytes that wait for the socket.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// Initialized memory; `head..tail` waits.
    buffer: Vec<u8>,
    /// Previous buffer of [`copy_in_place_payload`](SendQueue::copy_in_place_payload).
    spare: Vec<u8>,
    head: usize,
    tail: usize,
    chunks: VecDeque<Chunk>,
    waiting: usize,
    /// Bytes appended to the stream, start frames included.
    appended: u64,
    consumed: u64,
    /// Stream position of the first frame, from which markers count.
    origin: u64,
    integrity: Integrity,
    markers: bool,
}

impl SendQueue {
    /// Starts to send frames, with these options.
    pub(crate) fn begin(&mut self, integrity: Integrity, markers: bool) {
        self.origin = self.appended;
        self.integrity = integrity;
        self.markers = markers;
    }

    /// Returns true if payload may stay in memory until it is sent. `steady`: only the polling thread writes it.
    pub(crate) fn can_gather(&self, steady: bool) -> bool {
        match self.integrity {
            Integrity::None => !self.markers,
            Integrity::Crc => !self.markers && steady && crc::has_wide_vectors(),
            Integrity::Sealed(_) => false,
        }
    }

    /// Returns the bytes appended to the stream so far.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns the bytes of the stream that the socket has accepted.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns true if less than `limit` bytes wait, and the private buffer and the chunks have room.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.waiting < limit && self.tail - self.head < SEND_QUEUE_BYTES && self.chunks.len() < CHUNKS_MAX
    }

    /// Appends a start frame.
    pub(crate) fn append_raw(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Appends a frame with a header and payload. Payload in memory is copied now.
    pub(crate) fn append_frame(&mut self, header: &[u8], payload: Payload<'_>, memory: &RegionTable) {
        let payload_bytes = match payload {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Memory { bytes, .. } => bytes,
        };
        let ulpdu = header.len() + payload_bytes;
        if let Integrity::Sealed(_) = self.integrity {
            self.append_sealed(header, payload, ulpdu, memory);
            return;
        }
        let crc = self.integrity.is_crc();
        if self.markers {
            let position = self.appended - self.origin;
            let total = marked_frame_bytes(ulpdu, position);
            encode_marked_frame(self.reserve(total), position, header, payload, crc, memory);
            self.commit(total);
            return;
        }
        let total = frame_bytes(ulpdu);
        encode_frame(self.reserve(total), header, payload, crc, memory);
        self.commit(total);
    }

    /// Copies a frame into the private buffer and encrypts it there, while it is in the processor's cache.
    fn append_sealed(&mut self, header: &[u8], payload: Payload<'_>, ulpdu: usize, memory: &RegionTable) {
        let total = sealed_frame_bytes(ulpdu);
        self.reserve(total);
        let Integrity::Sealed(seal) = &mut self.integrity else { return };
        let (length, rest) = self.buffer[self.tail..self.tail + total].split_at_mut(2);
        let (body, tag) = rest.split_at_mut(total - 2 - TAG_BYTES);
        length.copy_from_slice(&(ulpdu as u16).to_be_bytes());
        body[..header.len()].copy_from_slice(header);
        let target = &mut body[header.len()..];
        match payload {
            Payload::Bytes(bytes) => target.copy_from_slice(bytes),
            Payload::Memory { region, offset, .. } => memory.mapping(region).copy_out(offset as usize, target),
        }
        tag.copy_from_slice(&seal(length, body));
        self.commit(total);
    }

    /// Appends a frame whose payload stays in memory, under a hold, until the socket accepts it.
    pub(crate) fn append_gathered(
        &mut self,
        header: &[u8],
        region: RegionId,
        offset: u64,
        bytes: usize,
        memory: &mut RegionTable,
    ) {
        debug_assert!(!self.markers);
        let (ulpdu, summed) = (header.len() + bytes, self.integrity.is_crc());
        let head = self.reserve(2 + header.len());
        head[..2].copy_from_slice(&(ulpdu as u16).to_be_bytes());
        head[2..].copy_from_slice(header);
        let sum = if summed { memory.mapping(region).sum(offset as usize, bytes, crc::checksum(head)) } else { 0 };
        self.commit(2 + header.len());
        memory.hold(region);
        self.chunks.push_back(Chunk::Memory { region, offset, bytes });
        self.waiting += bytes;
        self.appended += bytes as u64;
        let trailer = frame_bytes(ulpdu) - 2 - ulpdu;
        let (padding, last) = self.reserve(trailer).split_at_mut(trailer - 4);
        padding.fill(0);
        let sum = if summed { crc::append(sum, padding) } else { 0 };
        last.copy_from_slice(&sum.to_le_bytes());
        self.commit(trailer);
    }

    /// Returns the parts to send next, in one call.
    pub(crate) fn parts<'a>(&'a self, memory: &'a RegionTable) -> impl Iterator<Item = Part<'a>> {
        let mut at = self.head;
        self.chunks.iter().map(move |chunk| match *chunk {
            Chunk::Owned(bytes) => {
                at += bytes;
                Part::Bytes(&self.buffer[at - bytes..at])
            }
            Chunk::Memory { region, offset, bytes } => {
                Part::Memory { mapping: memory.mapping(region), offset: offset as usize, bytes }
            }
        })
    }

    /// Returns the bytes to send next, if all of them are in one private chunk.
    pub(crate) fn single(&self) -> Option<&[u8]> {
        match (self.chunks.len(), self.chunks.front()) {
            (1, Some(Chunk::Owned(bytes))) => Some(&self.buffer[self.head..self.head + bytes]),
            _ => None,
        }
    }

    /// Removes bytes that the socket has accepted.
    pub(crate) fn sent(&mut self, mut count: usize, memory: &mut RegionTable) {
        assert!(count <= self.waiting, "a socket cannot take more than it was given");
        self.waiting -= count;
        self.consumed += count as u64;
        while count > 0 {
            let chunk = self.chunks.front_mut().expect("bytes that wait are in a chunk");
            let (taken, done) = match chunk {
                Chunk::Owned(bytes) => {
                    let taken = count.min(*bytes);
                    *bytes -= taken;
                    self.head += taken;
                    (taken, *bytes == 0)
                }
                Chunk::Memory { region, offset, bytes } => {
                    let taken = count.min(*bytes);
                    *bytes -= taken;
                    *offset += taken as u64;
                    if *bytes == 0 {
                        memory.release(*region);
                    }
                    (taken, *bytes == 0)
                }
            };
            count -= taken;
            if done {
                self.chunks.pop_front();
            }
        }
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Copies payload under a CRC that still waits in memory, because memory may change after the poll.
    pub(crate) fn copy_in_place_payload(&mut self, memory: &mut RegionTable) {
        let is_outside = |chunk: &Chunk| matches!(chunk, Chunk::Memory { .. });
        if !self.integrity.is_crc() || !self.chunks.iter().any(is_outside) {
            return;
        }
        let mut taken = std::mem::take(&mut self.spare);
        taken.resize(self.waiting.max(taken.len()), 0);
        let mut at = 0;
        for part in self.parts(memory) {
            match part {
                Part::Bytes(bytes) => {
                    taken[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                }
                Part::Memory { mapping, offset, bytes } => {
                    mapping.copy_out(offset, &mut taken[at..at + bytes]);
                    at += bytes;
                }
            }
        }
        for chunk in self.chunks.drain(..) {
            if let Chunk::Memory { region, .. } = chunk {
                memory.release(region);
            }
        }
        self.spare = std::mem::replace(&mut self.buffer, taken);
        (self.head, self.tail) = (0, at);
        self.chunks.push_back(Chunk::Owned(at));
    }

    /// Drops everything that waits, and the holds on its memory.
    pub(crate) fn clear(&mut self, memory: &mut RegionTable) {
        for chunk in self.chunks.drain(..) {
            if let Chunk::Memory { region, .. } = chunk {
                memory.release(region);
            }
        }
        self.waiting = 0;
        self.head = 0;
        self.tail = 0;
    }

    /// Frees the buffers of a burst, if nothing waits.
    pub(crate) fn shrink_buffers(&mut self) {
        if self.waiting == 0 && self.buffer.len() > QUIET_BUFFER_BYTES {
            self.buffer.truncate(QUIET_BUFFER_BYTES);
            self.buffer.shrink_to_fit();
        }
        self.spare = Vec::new();
    }

    /// Returns `bytes` of space at the tail.
    fn reserve(&mut self, bytes: usize) -> &mut [u8] {
        if self.tail + bytes > self.buffer.len() {
            if self.head >= self.buffer.len() / 2 && self.head > 0 {
                self.buffer.copy_within(self.head..self.tail, 0);
                self.tail -= self.head;
                self.head = 0;
            }
            let wanted = self.tail + bytes;
            if wanted > self.buffer.len() {
                self.buffer.resize(wanted.next_power_of_two().max(4096), 0);
            }
        }
        &mut self.buffer[self.tail..self.tail + bytes]
    }

    fn commit(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.tail += bytes;
        self.waiting += bytes;
        self.appended += bytes as u64;
        if let Some(Chunk::Owned(last)) = self.chunks.back_mut() {
            *last += bytes;
        } else {
            self.chunks.push_back(Chunk::Owned(bytes));
        }
    }
}

/// Encodes a complete frame. Payload in memory is read once, so the checksum covers exactly the copied bytes.
fn encode_frame(out: &mut [u8], header: &[u8], payload: Payload<'_>, crc: bool, memory: &RegionTable) {
    let (body, sum) = out.split_at_mut(out.len() - 4);
    let (head, rest) = body.split_at_mut(2 + header.len());
    let bytes = match payload {
        Payload::Bytes(bytes) => bytes.len(),
        Payload::Memory { bytes, .. } => bytes,
    };
    head[..2].copy_from_slice(&((header.len() + bytes) as u16).to_be_bytes());
    head[2..].copy_from_slice(header);
    let (target, padding) = rest.split_at_mut(bytes);
    padding.fill(0);
    let value = match payload {
        Payload::Bytes(bytes) => {
            target.copy_from_slice(bytes);
            if crc { crc::checksum(body) } else { 0 }
        }
        Payload::Memory { region, offset, .. } => {
            let mapping = memory.mapping(region);
            if crc {
                let value = mapping.copy_out_summed(offset as usize, target, crc::checksum(head));
                crc::append(value, padding)
            } else {
                mapping.copy_out(offset as usize, target);
                0
            }
        }
    };
    sum.copy_from_slice(&value.to_le_bytes());
}

/// Encodes a complete frame with markers, in place. The checksum is taken over the copied bytes.
fn encode_marked_frame(
    out: &mut [u8],
    position: u64,
    header: &[u8],
    payload: Payload<'_>,
    crc: bool,
    memory: &RegionTable,
) {
    let bytes = match payload {
        Payload::Bytes(bytes) => bytes.len(),
        Payload::Memory { bytes, .. } => bytes,
    };
    let ulpdu = header.len() + bytes;
    let mut frame = MarkedFrame::new(out, position);
    frame.put(&(ulpdu as u16).to_be_bytes());
    frame.put(header);
    match payload {
        Payload::Bytes(bytes) => frame.put(bytes),
        Payload::Memory { region, offset, .. } => {
            let mapping = memory.mapping(region);
            frame.put_words(offset as usize, bytes, |from, to| mapping.copy_out(from, to));
        }
    }
    frame.put(&[0; 3][..frame_bytes(ulpdu) - 4 - 2 - ulpdu]);
    frame.finish(crc);
}
