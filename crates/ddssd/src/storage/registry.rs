//! The register: what lives in this node's memory, written down where the next daemon finds it.
//!
//! ```text
//!   0       8         16     24            32       40                    256      512
//!  +-------+---------+------+-------------+--------+---------------------+--------+-----------------------
//!  | magic | version | node | clock floor | in use | release, reserved   | intent | one record an index ..
//!  +-------+---------+------+-------------+--------+---------------------+--------+-----------------------
//! ```
//!
//! A record that is written again is written as the *intent* first, so that a daemon that dies meanwhile leaves the old
//! one or the new one.
//! Only the progress thread writes. A record is live when its first word says so, and that word is written last; so a
//! daemon that dies at any instruction leaves each record live and whole, or free.

use ddss_core::limits::SEGMENTS_PER_NODE_MAX;
use ddss_core::{NodeId, Record, SegmentId, Timestamp};
use ddss_ipc::{MemoryError, SharedMemory};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

/// The register of one node.
#[derive(Debug)]
pub(crate) struct Registry {
    memory: SharedMemory,
    floor: u64,
}

/// Why a register that was found cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// It is no register, or of another release.
    Version(u64),
    /// It is of another node.
    Node(NodeId),
}

/// Of which format a register's file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// The format of this release.
    Ours,
    /// No format yet: a daemon died as it made the file.
    Unclaimed,
    /// The format of another release, which may have signed it.
    Other { version: u64, release: String },
    /// The file is no register.
    Foreign,
    /// The file ends within its head.
    Part,
}

/// What the register says of one index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Live(Record),
    /// Nothing lives there; the last id that did.
    Free(SegmentId),
    /// It says live and makes no sense.
    Broken,
}

const CHECKED: &str = "the register has room for every index";

impl Registry {
    const MAGIC: u64 = u64::from_le_bytes(*b"DDSSREG\0");
    pub(crate) const VERSION: u64 = 1;
    const MAGIC_AT: usize = 0;
    const VERSION_AT: usize = 8;
    const NODE_AT: usize = 16;
    const FLOOR_AT: usize = 24;
    const IN_USE_AT: usize = 32;
    /// The release that wrote here last, as text with zeroes behind it. A reader of any format finds it there.
    const RELEASE_AT: usize = 40;
    const RELEASE_BYTES: usize = 32;
    const INTENT_AT: usize = Record::BYTES;
    const RECORDS_AT: usize = 2 * Record::BYTES;
    const BYTES: usize = Self::RECORDS_AT + SEGMENTS_PER_NODE_MAX * Record::BYTES;
    /// How far ahead of the clock the floor is set, so that it is not set often.
    const AHEAD_US: u64 = 1_000_000;

    /// Whether the one at `path` was longer once. It is made at its full length, and before any area; a daemon that died in
    /// between leaves an empty one.
    pub(crate) fn is_cut_short(path: &Path, has_areas: bool) -> bool {
        let found = path.metadata().map(|found| found.len());
        found.is_ok_and(|found| found < Self::BYTES as u64 && (found > 0 || has_areas))
    }

    /// Reads what says of which format the register at `path` is. Only that: the rest may be laid out in another way.
    pub(crate) fn head(path: &Path) -> io::Result<Head> {
        let mut head = Vec::new();
        File::open(path)?.take((Self::RELEASE_AT + Self::RELEASE_BYTES) as u64).read_to_end(&mut head)?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        Ok(match (word(Self::MAGIC_AT), word(Self::VERSION_AT)) {
            _ if head.is_empty() => Head::Unclaimed,
            (Some(0), Some(0)) => Head::Unclaimed,
            (Some(Self::MAGIC), Some(Self::VERSION)) => Head::Ours,
            (Some(Self::MAGIC), Some(version)) => {
                let release = head.get(Self::RELEASE_AT..).unwrap_or_default();
                let letters = release.iter().take_while(|letter| letter.is_ascii_graphic());
                Head::Other { version, release: letters.map(|&letter| char::from(letter)).collect() }
            }
            (Some(Self::MAGIC) | None, None) => Head::Part,
            _ => Head::Foreign,
        })
    }

    /// Opens the register at `path`, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_sparse_file(path, Self::BYTES)?;
        let mut register = Self { memory, floor: 0 };
        register.memory.reserve(0, Self::RECORDS_AT)?;
        register.floor = register.word(Self::FLOOR_AT);
        Ok(register)
    }

    /// Opens the register at `path`, if there is one of this release.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_file(path)?;
        if memory.len() < Self::BYTES {
            return Err(MemoryError::TooSmall { wanted: Self::BYTES, found: memory.len() as u64 });
        }
        let register = Self { memory, floor: 0 };
        match (register.word(Self::MAGIC_AT), register.word(Self::VERSION_AT)) {
            (Self::MAGIC, Self::VERSION) => Ok(register),
            _ => Err(MemoryError::Empty),
        }
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load(at, Ordering::Acquire).expect(CHECKED)
    }

    fn set(&self, at: usize, value: u64, ordering: Ordering) {
        self.memory.store(at, value, ordering).expect(CHECKED);
    }

    /// Whether it is one that this node may go on with; a fresh one is made its own.
    pub(crate) fn claim(&self, node: NodeId) -> Result<(), Unusable> {
        let found = (self.word(Self::MAGIC_AT), self.word(Self::VERSION_AT));
        if found == (0, 0) {
            self.sign();
            self.set(Self::NODE_AT, node.0.into(), Ordering::Relaxed);
            self.set(Self::VERSION_AT, Self::VERSION, Ordering::Relaxed);
            self.set(Self::MAGIC_AT, Self::MAGIC, Ordering::Release);
            return Ok(());
        }
        if found != (Self::MAGIC, Self::VERSION) {
            return Err(Unusable::Version(found.1));
        }
        let theirs = NodeId(self.word(Self::NODE_AT) as u16);
        if theirs != node {
            return Err(Unusable::Node(theirs));
        }
        // Only now: what is another's is left as it is.
        self.sign();
        self.end_intent();
        Ok(())
    }

    /// Names the release that writes here.
    fn sign(&self) {
        let mut release = [0; Self::RELEASE_BYTES];
        let text = env!("CARGO_PKG_VERSION").as_bytes();
        let length = text.len().min(release.len());
        release[..length].copy_from_slice(&text[..length]);
        self.memory.write(Self::RELEASE_AT, &release).expect(CHECKED);
    }

    fn record_at(index: usize) -> usize {
        Self::RECORDS_AT + index * Record::BYTES
    }

    /// What it says, index by index.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let in_use = usize::try_from(self.word(Self::IN_USE_AT)).unwrap_or(usize::MAX);
        (0..in_use.min(SEGMENTS_PER_NODE_MAX)).map(|index| {
            let at = Self::record_at(index);
            let mut bytes = [0; Record::BYTES];
            self.memory.read(at, &mut bytes).expect(CHECKED);
            match self.word(at + Record::STATE_OFFSET) {
                Record::LIVE => match Record::decode(&bytes) {
                    Ok(record) if usize::from(record.segment.index()) == index => Entry::Live(record),
                    _ => Entry::Broken,
                },
                _ => Entry::Free(SegmentId::from_bits(self.word(at + Record::SEGMENT_OFFSET))),
            }
        })
    }

    /// Writes a segment down. Fails only for want of memory, and then nothing is written.
    pub(crate) fn write(&self, record: &Record) -> Result<(), MemoryError> {
        let index = usize::from(record.segment.index());
        let at = Self::record_at(index);
        self.memory.reserve(at, Record::BYTES)?;
        self.memory.write(at, &record.encode())?;
        if self.word(Self::IN_USE_AT) <= index as u64 {
            self.set(Self::IN_USE_AT, index as u64 + 1, Ordering::Release);
        }
        fence(Ordering::Release);
        self.set(at + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
        Ok(())
    }

    /// Writes a record again.
    pub(crate) fn rewrite(&self, record: &Record) {
        self.memory.write(Self::INTENT_AT, &record.encode()).expect(CHECKED);
        fence(Ordering::Release);
        self.set(Self::INTENT_AT + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
        self.end_intent();
    }

    /// The record that was being written again when the daemon ended, if one was.
    pub(crate) fn intent(&self) -> Option<Record> {
        let mut bytes = [0; Record::BYTES];
        self.memory.read(Self::INTENT_AT, &mut bytes).expect(CHECKED);
        let live = self.word(Self::INTENT_AT + Record::STATE_OFFSET) == Record::LIVE;
        if live { Record::decode(&bytes).ok() } else { None }
    }

    /// Whose it is.
    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.word(Self::NODE_AT) as u16)
    }

    /// Writes what was intended, if anything was.
    fn end_intent(&self) {
        if self.word(Self::INTENT_AT + Record::STATE_OFFSET) != Record::LIVE {
            return;
        }
        let mut bytes = [0; Record::BYTES];
        self.memory.read(Self::INTENT_AT, &mut bytes).expect(CHECKED);
        if let Ok(record) = Record::decode(&bytes) {
            let at = Self::record_at(usize::from(record.segment.index()));
            self.set(at + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
            fence(Ordering::Release);
            self.memory.write(at, &record.encode()).expect(CHECKED);
            fence(Ordering::Release);
            self.set(at + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
        }
        fence(Ordering::Release);
        self.set(Self::INTENT_AT + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
    }

    /// The memory in which it is.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Whether that segment is written down here.
    pub(crate) fn holds(&self, segment: SegmentId) -> bool {
        let at = Self::record_at(usize::from(segment.index()));
        self.word(at + Record::STATE_OFFSET) == Record::LIVE
            && self.word(at + Record::SEGMENT_OFFSET) == segment.to_bits()
    }

    /// Strikes a segment; its id stays.
    pub(crate) fn strike(&self, segment: SegmentId) {
        let at = Self::record_at(usize::from(segment.index()));
        self.set(at + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
    }

    /// No timestamp or token above this was ever given.
    pub(crate) fn floor(&self) -> Timestamp {
        Timestamp(self.floor)
    }

    /// Sees that the floor stays above whatever may be given soon.
    #[inline]
    pub(crate) fn raise_floor(&mut self, wall_us: u64, last: Timestamp) {
        let soon = (wall_us + Self::AHEAD_US / 2) << Timestamp::COUNTER_BITS;
        if soon.max(last.0) > self.floor {
            let ahead = Self::AHEAD_US << Timestamp::COUNTER_BITS;
            self.floor = (wall_us << Timestamp::COUNTER_BITS).max(last.0).saturating_add(ahead);
            self.set(Self::FLOOR_AT, self.floor, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Name, Permissions, Principal, Spec};

    #[test]
    fn the_next_daemon_reads_what_the_last_one_wrote_down() {
        // If this broke, a restart would lose segments, or give one segment's id to another.
        let path = std::env::temp_dir().join(format!("ddssd-register-{}", std::process::id()));
        let record = |index, generation| Record {
            segment: SegmentId::new(NodeId(1), index, generation),
            known_as: SegmentId::new(NodeId(1), index, generation),
            at: 4096,
            name: Name::new("n").unwrap(),
            spec: Spec::new(8),
            permissions: Permissions { owner: Principal { uid: 1, gid: 2 }, mode: 0o600 },
        };
        let mut register = Registry::open(&path).unwrap();
        register.claim(NodeId(1)).unwrap();
        register.write(&record(0, 5)).unwrap();
        register.write(&record(2, 9)).unwrap();
        register.strike(record(0, 5).segment);
        register.raise_floor(1000, Timestamp(7));
        let floor = register.floor();
        assert!(floor.micros() > 1000);
        drop(register);
        let register = Registry::open(&path).unwrap();
        assert_eq!(register.claim(NodeId(2)), Err(Unusable::Node(NodeId(1))));
        register.claim(NodeId(1)).unwrap();
        let entries: Vec<_> = register.entries().collect();
        assert_eq!(entries[0], Entry::Free(record(0, 5).segment));
        assert_eq!(entries[2], Entry::Live(record(2, 9)));
        assert_eq!(entries.len(), 3);
        assert_eq!(register.floor(), floor);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_record_that_was_being_written_again_is_the_new_one_after_a_crash() {
        // If this broke, a crash in the middle of a chmod would lose the segment, or open it to whom it was closed.
        let path = std::env::temp_dir().join(format!("ddssd-intent-{}", std::process::id()));
        let record = |mode| Record {
            segment: SegmentId::new(NodeId(1), 4, 9),
            known_as: SegmentId::new(NodeId(1), 4, 9),
            at: 1 << 48,
            name: Name::new("n").unwrap(),
            spec: Spec::new(8),
            permissions: Permissions { owner: Principal { uid: 1, gid: 2 }, mode },
        };
        let live = |register: &Registry| register.entries().nth(4);
        // The daemon dies before the old record is touched, while it is free, and when it is half the new one.
        for touched in [0, 1, 2] {
            let register = Registry::open(&path).unwrap();
            register.claim(NodeId(1)).unwrap();
            register.write(&record(0o644)).unwrap();
            register.memory.write(Registry::INTENT_AT, &record(0o600).encode()).unwrap();
            assert_eq!(live(&register), Some(Entry::Live(record(0o644))), "without its state the intent is none");
            register.set(Registry::INTENT_AT + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
            if touched > 0 {
                register.set(Registry::record_at(4) + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
            }
            if touched > 1 {
                register.memory.write(Registry::record_at(4) + 8, &record(0o600).encode()[8..40]).unwrap();
            }
            drop(register);
            let register = Registry::open(&path).unwrap();
            assert_eq!(register.claim(NodeId(2)), Err(Unusable::Node(NodeId(1))));
            assert_eq!(register.word(Registry::INTENT_AT + Record::STATE_OFFSET), Record::LIVE, "left alone");
            register.claim(NodeId(1)).unwrap();
            assert_eq!(live(&register), Some(Entry::Live(record(0o600))));
            assert_eq!(register.word(Registry::INTENT_AT + Record::STATE_OFFSET), Record::FREE);
            register.rewrite(&record(0o640));
            assert_eq!(live(&register), Some(Entry::Live(record(0o640))));
            std::fs::remove_file(&path).unwrap();
        }
    }
}
