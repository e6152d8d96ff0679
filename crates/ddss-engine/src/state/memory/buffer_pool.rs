//! Buffers for bytes that the engine holds for a while: small puts from message to commit, range tables, list pages.

use crate::ids::BufferId;
use arrayvec::ArrayVec;
use ddss_core::Message;

/// Content of one buffer.
pub(crate) type Bytes = ArrayVec<u8, { Message::PUT_BYTES_MAX }>;

/// All buffers. Entries are reused, so that a busy home allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    places: Vec<Bytes>,
    /// Places that hold bytes.
    is_used: Vec<bool>,
    free: Vec<u32>,
}

impl BufferPool {
    /// Stores bytes that were checked to be at most [`Message::PUT_BYTES_MAX`] long.
    pub(crate) fn insert(&mut self, bytes: &[u8]) -> BufferId {
        let bytes: Bytes = bytes.try_into().expect("tails, tables and pages are bounded");
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = bytes;
                let was_used = std::mem::replace(&mut self.is_used[place as usize], true);
                assert!(!was_used, "a free place holds no bytes");
                BufferId::new(place)
            }
            None => {
                self.places.push(bytes);
                self.is_used.push(true);
                BufferId::new(self.places.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn get(&self, id: BufferId) -> &[u8] {
        assert!(self.is_used[id.index()], "a buffer is read before it is freed");
        &self.places[id.index()]
    }

    pub(crate) fn remove(&mut self, id: &BufferId) {
        assert!(std::mem::replace(&mut self.is_used[id.index()], false), "a buffer is freed once");
        self.free.push(id.index() as u32);
    }
}

const _: () = assert!(ddss_core::Listing::PAGE_BYTES <= Message::PUT_BYTES_MAX);
const _: () = assert!(ddss_core::Ranges::TABLE_BYTES_MAX <= Message::PUT_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a buffer is freed once")]
    fn second_free_of_a_buffer_is_caught() {
        // If this were missed, two calls would share one buffer, and one would commit the bytes of the other.
        let mut buffers = BufferPool::default();
        let id = buffers.insert(b"bytes");
        buffers.remove(&id);
        buffers.remove(&id);
    }

    #[test]
    #[should_panic(expected = "a buffer is read before it is freed")]
    fn use_after_free_of_a_buffer_is_caught() {
        let mut buffers = BufferPool::default();
        let id = buffers.insert(b"bytes");
        buffers.remove(&id);
        buffers.get(id);
    }
}
