//! Private buffers of a basic stream. All memory is allocated when the stream is made.

use crate::codec::{Advertisement, Body, HEADER_BYTES, SOURCE_BYTES};

/// Buffers of stream bytes that wait to be sent, in order.
pub(crate) struct SendBuffers {
    memory: Box<[u8]>,
    buffer_bytes: usize,
    entries: Box<[SendEntry]>,
    first: usize,
    count: usize,
}

/// State of one send buffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct SendEntry {
    pub(crate) bytes: usize,
    pub(crate) advertisement: Option<Advertisement>,
}

impl SendEntry {
    /// Returns the body of the message that this buffer becomes.
    pub(crate) fn body(&self) -> Body {
        match self.advertisement {
            Some(memory) => Body::SrcAvail(memory, self.bytes),
            None => Body::Data(self.bytes),
        }
    }

    fn is_open(&self) -> bool {
        self.advertisement.is_none()
    }
}

impl SendBuffers {
    pub(crate) fn new(buffers: u16, buffer_bytes: usize) -> SendBuffers {
        let buffers = usize::from(buffers);
        SendBuffers {
            memory: vec![0; buffers * buffer_bytes].into_boxed_slice(),
            buffer_bytes,
            entries: vec![SendEntry::default(); buffers].into_boxed_slice(),
            first: 0,
            count: 0,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.entries.len()
    }

    /// Copies bytes behind those that wait; returns how many fitted.
    pub(crate) fn append(&mut self, mut bytes: &[u8], payload: usize) -> usize {
        let (before, payload) = (bytes.len(), payload.min(self.buffer_bytes));
        while !bytes.is_empty() {
            let has_room = self.last().is_some_and(|last| last.is_open() && last.bytes < payload);
            if !has_room && !self.push(SendEntry::default()) {
                break;
            }
            let slot = self.slot(self.count - 1);
            let at = self.entries[slot].bytes;
            let (piece, rest) = bytes.split_at(bytes.len().min(payload - at));
            let start = slot * self.buffer_bytes + at;
            self.memory[start..start + piece.len()].copy_from_slice(piece);
            self.entries[slot].bytes += piece.len();
            bytes = rest;
        }
        before - bytes.len()
    }

    /// Adds a message of its own with these bytes. Returns false if every buffer is in use.
    pub(crate) fn append_message(&mut self, bytes: &[u8], entry: SendEntry) -> bool {
        if !self.push(SendEntry { bytes: bytes.len(), ..entry }) {
            return false;
        }
        let start = self.slot(self.count - 1) * self.buffer_bytes;
        self.memory[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }

    pub(crate) fn front(&self) -> Option<SendEntry> {
        (self.count > 0).then(|| self.entries[self.first])
    }

    /// Removes the first buffer. Its bytes stay in place until the next append.
    pub(crate) fn pop(&mut self) -> &[u8] {
        let (slot, bytes) = (self.first, self.entries[self.first].bytes);
        self.first = (self.first + 1) % self.entries.len();
        self.count -= 1;
        &self.memory[slot * self.buffer_bytes..][..bytes]
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    fn push(&mut self, entry: SendEntry) -> bool {
        if self.is_full() {
            return false;
        }
        self.count += 1;
        let slot = self.slot(self.count - 1);
        self.entries[slot] = entry;
        true
    }

    fn last(&self) -> Option<SendEntry> {
        (self.count > 0).then(|| self.entries[self.slot(self.count - 1)])
    }

    fn slot(&self, at: usize) -> usize {
        (self.first + at) % self.entries.len()
    }
}

/// Buffers for whole messages of the peer. Those with payload stay until the application has read them.
pub(crate) struct ReceiveBuffers {
    memory: Box<[u8]>,
    buffer_bytes: usize,
    /// Start and end of the unread payload of each buffer.
    unread: Box<[(usize, usize)]>,
    first: usize,
    count: usize,
    bytes: usize,
}

impl ReceiveBuffers {
    pub(crate) fn new(buffers: u16, buffer_bytes: usize) -> ReceiveBuffers {
        let buffers = usize::from(buffers);
        ReceiveBuffers {
            memory: vec![0; buffers * buffer_bytes].into_boxed_slice(),
            buffer_bytes,
            unread: vec![(0, 0); buffers].into_boxed_slice(),
            first: 0,
            count: 0,
            bytes: 0,
        }
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the number of free buffers.
    pub(crate) fn posted(&self) -> u16 {
        (self.unread.len() - self.count) as u16
    }

    /// Returns the bytes that the application can read.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next free buffer. `None` if every buffer holds unread bytes.
    pub(crate) fn next_free(&mut self) -> Option<&mut [u8]> {
        let slot = (self.first + self.count) % self.unread.len();
        (self.count < self.unread.len()).then(|| &mut self.memory[slot * self.buffer_bytes..][..self.buffer_bytes])
    }

    /// Takes the next free buffer into use: it holds the payload of a message with `body`.
    pub(crate) fn take(&mut self, body: &Body) {
        let start = HEADER_BYTES + if matches!(body, Body::SrcAvail(..)) { SOURCE_BYTES } else { 0 };
        let bytes = body.payload_bytes();
        if bytes > 0 {
            let slot = (self.first + self.count) % self.unread.len();
            self.unread[slot] = (start, start + bytes);
            self.count += 1;
            self.bytes += bytes;
        }
    }

    /// Copies unread bytes out; returns how many there were.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() && self.count > 0 {
            let (start, end) = self.unread[self.first];
            let taken = (end - start).min(out.len() - done);
            let place = self.first * self.buffer_bytes + start;
            out[done..done + taken].copy_from_slice(&self.memory[place..place + taken]);
            done += taken;
            self.unread[self.first].0 += taken;
            if start + taken == end {
                self.first = (self.first + 1) % self.unread.len();
                self.count -= 1;
            }
        }
        self.bytes -= done;
        done
    }
}
