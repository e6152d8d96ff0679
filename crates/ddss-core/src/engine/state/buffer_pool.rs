//! Bytes that the engine keeps for a while: those of small puts, from the message to the commit; tables of ranges; pages
//! of a list.

use crate::Message;
use arrayvec::ArrayVec;

/// Which bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferId(u32);

/// The bytes of one of them.
pub(crate) type Bytes = ArrayVec<u8, { Message::PUT_BYTES_MAX }>;

/// All bytes that are kept. Places are used again, so that a busy home allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    places: Vec<Bytes>,
    free: Vec<u32>,
}

impl BufferPool {
    /// Keeps what was checked to be at most [`Message::PUT_BYTES_MAX`] bytes.
    pub(crate) fn insert(&mut self, bytes: &[u8]) -> BufferId {
        let bytes: Bytes = bytes.try_into().expect("tails, tables and pages are bounded");
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = bytes;
                BufferId(place)
            }
            None => {
                self.places.push(bytes);
                BufferId(self.places.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn get(&self, id: BufferId) -> &[u8] {
        &self.places[id.0 as usize]
    }

    pub(crate) fn remove(&mut self, id: &BufferId) {
        debug_assert!(!self.free.contains(&id.0), "bytes are given up once");
        self.free.push(id.0);
    }
}

const _: () = assert!(crate::Listing::PAGE_BYTES <= Message::PUT_BYTES_MAX);
const _: () = assert!(crate::Ranges::TABLE_BYTES_MAX <= Message::PUT_BYTES_MAX);
