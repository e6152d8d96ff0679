//! Counts of a rank in the note of its row.

use ddss_dsm_core::Statistics;
use ddss_group::{NOTE_BYTES, Note};

/// First bytes of the note, with the release of their format.
const FORMAT: [u8; 4] = *b"DSL1";
const COUNTS: usize = 9;

/// Counts of a rank, as it publishes them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct RankLoad(pub(crate) Statistics);

impl RankLoad {
    fn counts(statistics: &mut Statistics) -> [&mut u64; COUNTS] {
        let Statistics {
            fetches, retries, diffs, diff_bytes, invalidations, handled, handler_ns, locks, barriers, ..
        } = statistics;
        [fetches, retries, diffs, diff_bytes, invalidations, handled, handler_ns, locks, barriers]
    }

    pub(crate) fn encode(mut self) -> Note {
        let mut note = [0; NOTE_BYTES];
        note[..4].copy_from_slice(&FORMAT);
        // A space has at most 2^24 pages.
        note[4..8].copy_from_slice(&(self.0.pages as u32).to_le_bytes());
        for (part, count) in note[8..].chunks_exact_mut(8).zip(Self::counts(&mut self.0)) {
            part.copy_from_slice(&count.to_le_bytes());
        }
        note
    }

    /// Decodes a note. A rank that has published nothing yet has counted nothing.
    pub(crate) fn decode(note: &Note) -> Self {
        let mut load = Self::default();
        if note[..4] != FORMAT {
            return load;
        }
        load.0.pages = u32::from_le_bytes([note[4], note[5], note[6], note[7]]).into();
        let (parts, _) = note[8..].as_chunks::<8>();
        for (part, count) in parts.iter().zip(Self::counts(&mut load.0)) {
            *count = u64::from_le_bytes(*part);
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_round_trips() {
        // If this broke, `ddss dsm top` would show one count as another.
        let mut load = RankLoad::default();
        RankLoad::counts(&mut load.0).into_iter().zip(1 << 40..).for_each(|(count, value)| *count = value);
        load.0.pages = 1 << 24;
        assert_eq!(RankLoad::decode(&load.encode()), load);
        assert_eq!((load.0.fetches, load.0.barriers), (1 << 40, (1 << 40) + 8));
        assert_eq!(RankLoad::decode(&[7; NOTE_BYTES]), RankLoad::default());
    }
}
