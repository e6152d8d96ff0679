//! Pieces of work: blocks of an input, and what a module makes of one. Each has the place of its block with it, so that a module
//! notices a piece that comes twice.

use super::records::RECORD_BYTES;
use ddss_river::flow::ModuleError;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes of a block at most: complete records.
pub(super) const BLOCK_BYTES: u64 = 320 * RECORD_BYTES as u64;

/// A block: its part of the input, and its number in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Block {
    pub(super) part: u16,
    pub(super) number: u32,
}

impl Block {
    /// Bytes of a block's place.
    const BYTES: usize = 6;

    /// Returns the blocks of a part.
    pub(super) fn all(folder: &Path, part: u16) -> io::Result<impl Iterator<Item = Self> + use<>> {
        let blocks = fs::metadata(part_path(folder, part))?.len().div_ceil(BLOCK_BYTES);
        Ok((0..blocks as u32).map(move |number| Self { part, number }))
    }

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let ([p0, p1], [n0, n1, n2, n3]) = (self.part.to_le_bytes(), self.number.to_le_bytes());
        [p0, p1, n0, n1, n2, n3]
    }

    /// Returns the block of a message, and the bytes behind.
    pub(super) fn split(message: &[u8]) -> Result<(Self, &[u8]), ModuleError> {
        let (place, bytes) = message.split_first_chunk::<{ Self::BYTES }>().ok_or("a message without its block")?;
        let [p0, p1, n0, n1, n2, n3] = *place;
        let (part, number) = (u16::from_le_bytes([p0, p1]), u32::from_le_bytes([n0, n1, n2, n3]));
        Ok((Self { part, number }, bytes))
    }

    /// Returns the offset of the block in its part.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.number) * BLOCK_BYTES
    }

    /// Reads the block: a message with its place and its bytes.
    pub(super) fn read(self, folder: &Path) -> io::Result<Vec<u8>> {
        let mut message = self.encode().to_vec();
        let mut file = File::open(part_path(folder, self.part))?;
        file.seek(SeekFrom::Start(self.offset()))?;
        file.take(BLOCK_BYTES).read_to_end(&mut message)?;
        Ok(message)
    }
}

/// Returns the path of a part.
pub(super) fn part_path(folder: &Path, part: u16) -> PathBuf {
    folder.join(part_name(part))
}

/// Returns the name of the file of a part.
pub(super) fn part_name(part: u16) -> String {
    format!("{part:05}")
}

/// Pieces that a module has processed: what comes twice is left out.
#[derive(Default)]
pub(super) struct Seen(HashSet<(u16, Block)>);

impl Seen {
    /// Notes a piece of a block. Returns false if it came before.
    pub(super) fn is_new(&mut self, partition: u16, block: Block) -> bool {
        self.0.insert((partition, block))
    }
}

/// Writes a file of a directory. It appears complete: a message that comes twice writes the same file again. `writer` differs between
/// those that may write at the same time. A writer that dies leaves a file behind whose name begins with a dot.
pub(super) fn write_complete(folder: &Path, name: &str, writer: &str, bytes: &[u8]) -> io::Result<()> {
    let begun = folder.join(format!(".{name}-{writer}"));
    fs::write(&begun, bytes)?;
    fs::rename(&begun, folder.join(name))
}

/// Returns the names of the complete files of a directory, in order.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.read_dir()? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    Ok(names)
}
