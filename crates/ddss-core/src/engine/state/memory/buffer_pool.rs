//! Buffers for bytes that the engine holds for a while: small puts from message to commit, range tables, list pages.

use crate::Message;
use crate::engine::ids::BufferId;
use arrayvec::ArrayVec;

/// Content of one buffer.
pub(crate) type Bytes = ArrayVec<u8, { Message::PUT_BYTES_MAX }>;

/// All buffers. Entries are reused, so that a busy home allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    places: Vec<Bytes>,
    free: Vec<u32>,
}

impl BufferPool {
    /// Stores bytes that were checked to be at most [`Message::PUT_BYTES_MAX`] long.
    pub(crate) fn insert(&mut self, bytes: &[u8]) -> BufferId {
        let bytes: Bytes = bytes.try_into().expect("tails, tables and pages are bounded");
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = bytes;
                BufferId::new(place)
            }
            None => {
                self.places.push(bytes);
                BufferId::new(self.places.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn get(&self, id: BufferId) -> &[u8] {
        &self.places[id.index()]
    }

    pub(crate) fn remove(&mut self, id: &BufferId) {
        assert!(id.index() < self.places.len() && self.free.len() < self.places.len(), "a buffer is freed once");
        debug_assert!(!self.free.contains(&(id.index() as u32)), "bytes are given up once");
        self.free.push(id.index() as u32);
    }
}

const _: () = assert!(crate::Listing::PAGE_BYTES <= Message::PUT_BYTES_MAX);
const _: () = assert!(crate::Ranges::TABLE_BYTES_MAX <= Message::PUT_BYTES_MAX);
