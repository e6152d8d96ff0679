//! Messages between file servers and their users, apart from those of the engine.

use ddss_group::RemoteWindow;

/// Bytes of a chunk. The last one of a part may be shorter.
pub(super) const CHUNK_BYTES: u32 = 256 << 10;
/// Chunks of a writer in flight.
pub(super) const WRITE_WINDOW: u16 = 4;
/// Bytes of a part at most.
pub(super) const PART_BYTES_MAX: u64 = 1 << 40;

/// Message of a member to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileMessage<'a> {
    /// A window over the sender's memory. `server` is 0 for users.
    Window { window: RemoteWindow, server: u64 },
    /// Messages of the engine.
    Chunks(&'a [u8]),
    /// A chunk is in a slot of the window, and belongs to a part that is written.
    Store { generation: u64, chunk: u32, slot: u16, length: u32, checksum: u32 },
    /// A chunk is written, or not.
    Stored { generation: u64, chunk: u32, is_done: bool },
    /// The part has this length, and no more chunks follow.
    Commit { generation: u64, bytes: u64 },
    /// The sender drops a part that it has written, complete or not.
    Abort { generation: u64 },
    /// The part is on the disk, or not.
    Committed { generation: u64, is_done: bool },
}

const WINDOW: u8 = 0;
const CHUNKS: u8 = 1;
const STORE: u8 = 2;
const STORED: u8 = 3;
const COMMIT: u8 = 4;
const COMMITTED: u8 = 5;
const ABORT: u8 = 6;

impl<'a> FileMessage<'a> {
    /// Encodes a message. `Window` needs the own window in its encoded form: see [`encode_window`].
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match *self {
            Self::Window { .. } => unreachable!("a window is encoded by `encode_window`"),
            Self::Chunks(messages) => {
                bytes.push(CHUNKS);
                bytes.extend_from_slice(messages);
            }
            Self::Store { generation, chunk, slot, length, checksum } => {
                bytes.push(STORE);
                bytes.extend_from_slice(&generation.to_le_bytes());
                bytes.extend_from_slice(&chunk.to_le_bytes());
                bytes.extend_from_slice(&slot.to_le_bytes());
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(&checksum.to_le_bytes());
            }
            Self::Stored { generation, chunk, is_done } => {
                bytes.push(STORED);
                bytes.extend_from_slice(&generation.to_le_bytes());
                bytes.extend_from_slice(&chunk.to_le_bytes());
                bytes.push(is_done.into());
            }
            Self::Commit { generation, bytes: length } => {
                bytes.push(COMMIT);
                bytes.extend_from_slice(&generation.to_le_bytes());
                bytes.extend_from_slice(&length.to_le_bytes());
            }
            Self::Abort { generation } => {
                bytes.push(ABORT);
                bytes.extend_from_slice(&generation.to_le_bytes());
            }
            Self::Committed { generation, is_done } => {
                bytes.push(COMMITTED);
                bytes.extend_from_slice(&generation.to_le_bytes());
                bytes.push(is_done.into());
            }
        }
        bytes
    }

    /// Decodes a message. `None` if no member sends it.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let message = match *kind {
            CHUNKS => return Some(Self::Chunks(rest)),
            WINDOW => Self::Window { window: RemoteWindow::decode(&fields.take()?)?, server: fields.long()? },
            STORE => Self::Store {
                generation: fields.long()?,
                chunk: fields.word()?,
                slot: u16::from_le_bytes(fields.take()?),
                length: fields.word()?,
                checksum: fields.word()?,
            },
            STORED => Self::Stored { generation: fields.long()?, chunk: fields.word()?, is_done: fields.flag()? },
            COMMIT => Self::Commit { generation: fields.long()?, bytes: fields.long()? },
            ABORT => Self::Abort { generation: fields.long()? },
            COMMITTED => Self::Committed { generation: fields.long()?, is_done: fields.flag()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(message)
    }
}

/// Encodes a window of this process.
pub(super) fn encode_window(window: &[u8; RemoteWindow::BYTES], server: u64) -> Vec<u8> {
    let mut bytes = vec![WINDOW];
    bytes.extend_from_slice(window);
    bytes.extend_from_slice(&server.to_le_bytes());
    bytes
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// Returns the number of chunks of so many bytes.
pub(super) fn chunks_of(bytes: u64) -> u32 {
    bytes.div_ceil(CHUNK_BYTES.into()) as u32
}

/// Returns the length of a chunk of a part of so many bytes. 0 behind its end.
pub(super) fn length_of(chunk: u32, bytes: u64) -> u32 {
    let start = u64::from(chunk) * u64::from(CHUNK_BYTES);
    bytes.saturating_sub(start).min(CHUNK_BYTES.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_cut_ones_are_refused() {
        // If this broke, a member of another release could make a server write a wrong chunk.
        let messages = [
            FileMessage::Chunks(b"abc"),
            FileMessage::Store { generation: 1 << 50, chunk: 7, slot: 3, length: 9, checksum: 11 },
            FileMessage::Stored { generation: 5, chunk: 7, is_done: true },
            FileMessage::Commit { generation: 5, bytes: 1 << 40 },
            FileMessage::Committed { generation: 5, is_done: false },
            FileMessage::Abort { generation: 5 },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(FileMessage::decode(&bytes), Some(message));
            if bytes[0] != CHUNKS {
                assert_eq!(FileMessage::decode(&bytes[..bytes.len() - 1]), None);
                assert_eq!(FileMessage::decode(&[&bytes[..], &[0]].concat()), None);
            }
        }
        assert_eq!((FileMessage::decode(&[]), FileMessage::decode(&[9])), (None, None));
        let bytes = u64::from(CHUNK_BYTES) + 5;
        assert_eq!([0, 1, 2].map(|chunk| length_of(chunk, bytes)), [CHUNK_BYTES, 5, 0]);
        assert_eq!((chunks_of(0), chunks_of(bytes)), (0, 2));
    }
}
