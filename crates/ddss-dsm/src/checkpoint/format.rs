//! Bytes of the root, and of the head of a part.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const ROOT: [u8; 8] = *b"DSMroot1";
const PART: [u8; 8] = *b"DSMpart1";

/// A root is damaged, or of another release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("its root is damaged, or of another release: use the release that wrote it, or remove it with `ddss dsm rm`")]
pub(crate) struct RootError;

/// A checkpoint that all ranks have written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct CompleteCheckpoint {
    /// Number of the attempt: 0 if there is no checkpoint. No attempt of another life of the space has it.
    attempt: U64,
    /// Step of the program.
    step: U64,
    /// Which of the two segments of each rank.
    slot: U64,
}

impl CompleteCheckpoint {
    pub(crate) fn new(attempt: u64, step: u64, slot: u64) -> Self {
        Self { attempt: attempt.into(), step: step.into(), slot: (slot & 1).into() }
    }

    pub(crate) fn attempt(&self) -> u64 {
        self.attempt.get()
    }

    pub(crate) fn step(&self) -> u64 {
        self.step.get()
    }

    pub(crate) fn slot(&self) -> u64 {
        self.slot.get() & 1
    }
}

/// The complete checkpoints of a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Root {
    magic: [u8; 8],
    ranks: U32,
    pages: U32,
    page_bytes: U32,
    /// Checksum of all bytes, with 0 in this place.
    checksum: U32,
    /// The last one, and the one before it, in the other slot.
    entries: [CompleteCheckpoint; 2],
}

impl Root {
    pub(crate) const BYTES: usize = size_of::<Self>();

    pub(crate) fn new(ranks: u16, pages: u32, page_bytes: u32, entries: [CompleteCheckpoint; 2]) -> Self {
        let (ranks, pages, page_bytes) = (u32::from(ranks).into(), pages.into(), page_bytes.into());
        let mut root = Self { magic: ROOT, ranks, pages, page_bytes, checksum: 0.into(), entries };
        root.checksum = crc32c::crc32c(root.as_bytes()).into();
        root
    }

    /// Reads a root. `None` if it was never written.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, RootError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let root = Self::read_from_bytes(bytes).map_err(|_| RootError)?;
        let checksum = crc32c::crc32c(Self { checksum: 0.into(), ..root }.as_bytes());
        if root.magic == ROOT && root.checksum.get() == checksum { Ok(Some(root)) } else { Err(RootError) }
    }

    /// Returns the number of the last complete checkpoint.
    pub(crate) fn last_attempt(&self) -> u64 {
        self.entries[0].attempt()
    }

    /// Returns the complete checkpoints, the last one first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = CompleteCheckpoint> {
        self.entries.into_iter().filter(|entry| entry.attempt() > 0)
    }

    /// Names the first property that differs from those of a space, with both values.
    pub(crate) fn compare(&self, ranks: u16, pages: u32, page_bytes: u32) -> Result<(), (&'static str, u64, u64)> {
        let pairs = [
            ("ranks", self.ranks.get(), u32::from(ranks)),
            ("pages", self.pages.get(), pages),
            ("bytes a page", self.page_bytes.get(), page_bytes),
        ];
        match pairs.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            Some((what, theirs, ours)) => Err((what, theirs.into(), ours.into())),
            None => Ok(()),
        }
    }
}

/// Head of the part of a rank. The numbers of its pages follow, then the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Head {
    magic: [u8; 8],
    attempt: U64,
    rank: U32,
    pages: U32,
    /// Checksum of the numbers and the pages.
    body: U32,
    /// Checksum of all bytes of the head, with 0 in this place.
    checksum: U32,
}

impl Head {
    pub(crate) const BYTES: usize = size_of::<Self>();

    pub(crate) fn new(attempt: u64, rank: u16, pages: u32, body: u32) -> Self {
        let (attempt, rank, pages, body) = (attempt.into(), u32::from(rank).into(), pages.into(), body.into());
        let mut head = Self { magic: PART, attempt, rank, pages, body, checksum: 0.into() };
        head.checksum = crc32c::crc32c(head.as_bytes()).into();
        head
    }

    /// Reads the head of the part of a rank in an attempt. Returns the number of its pages and the checksum of its body. `None` if it
    /// is another one, or damaged.
    pub(crate) fn decode(bytes: &[u8], attempt: u64, rank: u16) -> Option<(u32, u32)> {
        let head = Self::read_from_bytes(bytes).ok()?;
        (head == Self::new(attempt, rank, head.pages.get(), head.body.get()))
            .then_some((head.pages.get(), head.body.get()))
    }
}

/// Returns the place of the first page in a part, behind the numbers of so many pages.
pub(crate) fn pages_at(pages: u32) -> u64 {
    (Head::BYTES as u64 + 4 * u64::from(pages)).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_heads_and_those_of_other_attempts_are_refused() {
        // If this broke, a restart could go on from pages of two checkpoints.
        let head = Head::new(7, 3, 20, 0xabcd);
        assert_eq!(Head::decode(head.as_bytes(), 7, 3), Some((20, 0xabcd)));
        assert_eq!(Head::decode(head.as_bytes(), 8, 3), None);
        assert_eq!(Head::decode(head.as_bytes(), 7, 2), None);
        let root = Root::new(4, 100, 4096, [CompleteCheckpoint::new(7, 40, 1), CompleteCheckpoint::default()]);
        assert_eq!(Root::decode(root.as_bytes()), Ok(Some(root)));
        // A root that a rank has made, and not written.
        assert_eq!(Root::decode(&[0; Root::BYTES]), Ok(None));
        assert_eq!(
            root.entries().map(|entry| (entry.attempt(), entry.step(), entry.slot())).collect::<Vec<_>>(),
            [(7, 40, 1)]
        );
        for (bytes, decodes) in [
            (head.as_bytes(), (|bytes| Head::decode(bytes, 7, 3).is_some()) as fn(&[u8]) -> bool),
            (root.as_bytes(), |bytes| Root::decode(bytes) != Err(RootError)),
        ] {
            for at in 0..bytes.len() {
                let mut bad = bytes.to_vec();
                bad[at] ^= 0x10;
                assert!(!decodes(&bad), "byte {at}");
            }
            assert!(!decodes(&bytes[1..]));
        }
        assert_eq!(Head::decode(&[0; Head::BYTES], 0, 0), None);
        assert_eq!(root.compare(4, 100, 4096), Ok(()));
        assert_eq!(root.compare(2, 100, 4096), Err(("ranks", 4, 2)));
        assert_eq!((pages_at(0), pages_at(1), pages_at(2)), (32, 40, 40));
    }
}
