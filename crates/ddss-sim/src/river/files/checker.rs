//! Judges each chunk: lost, unexpected, doubled, and each choice of a file server.

use ddss_river_core::{Progress, ReaderId};
use std::collections::BTreeMap;

/// Generation of every part.
pub(crate) const GENERATION: u64 = 5;
/// Chunks that a served reader may be ahead of a waiting one.
const LEAD_MAX: u32 = 2;

/// Returns the content of a chunk.
pub(crate) const fn content(part: u32, chunk: u32, generation: u64) -> u64 {
    ((part as u64) << 40 | (chunk as u64) << 8 | generation).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Requests at a file server, as its readers reported them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(BTreeMap<ReaderId, (Progress, u32)>);

impl Waiting {
    pub(crate) fn add(&mut self, reader: ReaderId, progress: Progress) {
        let entry = self.0.entry(reader).or_insert((progress, 0));
        *entry = (progress, entry.1 + 1);
    }

    pub(crate) fn forget(&mut self, reader: ReaderId) {
        self.0.remove(&reader);
    }

    /// Judges the choice of a server, and removes the request.
    pub(crate) fn serve(&mut self, reader: ReaderId) -> Option<String> {
        let (chosen, count) = self.0.get_mut(&reader).expect("a waiting reader");
        let chosen = *chosen;
        *count -= 1;
        let behind = self.0.iter().find(|(_, (other, count))| *count > 0 && other.is_behind(chosen, LEAD_MAX));
        behind.map(|(other, (progress, _))| format!("lag: {reader} with {chosen:?} before {other} with {progress:?}"))
    }
}

/// Judges the chunks of one reader.
#[derive(Clone, Debug)]
pub(crate) struct ReaderChecker {
    part: u32,
    delivered: Vec<bool>,
}

impl ReaderChecker {
    pub(crate) fn new(part: u32, chunks: u32) -> Self {
        Self { part, delivered: vec![false; chunks as usize] }
    }

    /// Judges a chunk that a program gets.
    pub(crate) fn on_deliver(&mut self, chunk: u32, found: u64) -> Option<String> {
        let part = self.part;
        let Some(delivered) = self.delivered.get_mut(chunk as usize) else {
            return Some(format!("unexpected: part {part} has no chunk {chunk}"));
        };
        if std::mem::replace(delivered, true) {
            return Some(format!("doubled: chunk {chunk} of part {part}"));
        }
        let is_right = found == content(part, chunk, GENERATION);
        (!is_right).then(|| format!("unexpected: chunk {chunk} of part {part} has other bytes"))
    }

    /// Judges the end of a part.
    pub(crate) fn on_end(&self) -> Option<String> {
        let lost = self.delivered.iter().position(|delivered| !delivered)?;
        Some(format!("lost: part {} ended without chunk {lost}", self.part))
    }
}
