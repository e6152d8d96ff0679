//! The segment registry: the persistent table of the segments in a shard's memory, for the next daemon.
//!
//! ```text
//!   0       8         16     24            32       40                    200      400
//!  +-------+---------+------+-------------+--------+---------------------+--------+-----------------------
//!  | magic | version | node | clock floor | in use | release, reserved   | intent | one record an index ..
//!  +-------+---------+------+-------------+--------+---------------------+--------+-----------------------
//! ```
//!
//! A rewritten record goes to the *intent* slot first, so that a crash in between leaves the old record or the new one.
//! Only the progress thread writes. A record is live when its first word says so, and that word is written last; so a
//! crash at any instruction leaves each record live and complete, or free.

use crate::release::Release;
use ddss_core::limits::SEGMENTS_PER_NODE_MAX;
use ddss_core::{NodeId, Record, SegmentId, Timestamp};
use ddss_ipc::{MemoryError, SharedMemory};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

/// Segment registry of one shard.
#[derive(Debug)]
pub struct Registry {
    memory: SharedMemory,
    floor: u64,
}

/// Reason why an existing registry is unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// The file is not a registry, or has the format of another release.
    Version(u64),
    /// The registry belongs to another node.
    Node(NodeId),
}

/// Format of a registry file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// Format of this release.
    Current,
    /// No format yet: a daemon died while it created the file.
    Unclaimed,
    /// Format of another release, with its name if the file holds one.
    Other {
        /// Number of the format.
        version: u64,
        /// Name of the release, or empty.
        release: String,
    },
    /// The file is not a registry.
    Foreign,
    /// Truncated within its header.
    Truncated,
}

/// Entry of one index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegistryEntry {
    /// A segment.
    Live(Record),
    /// Unused; the last id that was in use.
    Free(SegmentId),
    /// Marked live but invalid.
    Broken,
}

const CHECKED: &str = "the registry has room for every index";

impl Registry {
    const MAGIC: u64 = u64::from_le_bytes(*b"DDSSREG\0");
    /// Format of this release.
    pub const VERSION: u64 = Release::REGISTER;
    /// Name of the file in the directory of a shard.
    pub const FILE_NAME: &str = "register";
    const MAGIC_AT: usize = 0;
    const VERSION_AT: usize = 8;
    const NODE_AT: usize = 16;
    const FLOOR_AT: usize = 24;
    const IN_USE_AT: usize = 32;
    /// Offset of the writing release, as zero-padded text. It is at this place in every format.
    const RELEASE_AT: usize = 40;
    const RELEASE_BYTES: usize = 32;
    const INTENT_AT: usize = Record::BYTES;
    const RECORDS_AT: usize = 2 * Record::BYTES;
    const BYTES: usize = Self::RECORDS_AT + SEGMENTS_PER_NODE_MAX * Record::BYTES;
    /// Distance from the clock at which the floor is set, so that it changes rarely.
    const FLOOR_AHEAD_US: u64 = 1_000_000;

    /// Returns true if the file at `path` is truncated. A registry is created at its full length, before any area; a
    /// daemon that died in between leaves an empty file.
    pub fn is_truncated(path: &Path, has_areas: bool) -> bool {
        let found = path.metadata().map(|found| found.len());
        found.is_ok_and(|found| found < Self::BYTES as u64 && (found > 0 || has_areas))
    }

    /// Reads the format of the registry at `path`, and nothing else: the rest may have another layout.
    pub fn head(path: &Path) -> io::Result<Head> {
        let mut head = Vec::new();
        File::open(path)?.take((Self::RELEASE_AT + Self::RELEASE_BYTES) as u64).read_to_end(&mut head)?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        Ok(match (word(Self::MAGIC_AT), word(Self::VERSION_AT)) {
            _ if head.is_empty() => Head::Unclaimed,
            (Some(0), Some(0)) => Head::Unclaimed,
            (Some(Self::MAGIC), Some(Self::VERSION)) => Head::Current,
            (Some(Self::MAGIC), Some(version)) => {
                let release = head.get(Self::RELEASE_AT..).unwrap_or_default();
                let letters = release.iter().take_while(|letter| letter.is_ascii_graphic());
                Head::Other { version, release: letters.map(|&letter| char::from(letter)).collect() }
            }
            (Some(Self::MAGIC) | None, None) => Head::Truncated,
            _ => Head::Foreign,
        })
    }

    /// Opens the registry at `path`, or creates it.
    pub fn open(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_sparse_file(path, Self::BYTES)?;
        let mut registry = Self { memory, floor: 0 };
        registry.memory.reserve(0, Self::RECORDS_AT)?;
        registry.floor = registry.word(Self::FLOOR_AT);
        Ok(registry)
    }

    /// Opens the registry at `path`, if there is one of this release.
    pub fn open_existing(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_file(path)?;
        if memory.len() < Self::BYTES {
            return Err(MemoryError::TooSmall { wanted: Self::BYTES, found: memory.len() as u64 });
        }
        let registry = Self { memory, floor: 0 };
        match (registry.word(Self::MAGIC_AT), registry.word(Self::VERSION_AT)) {
            (Self::MAGIC, Self::VERSION) => Ok(registry),
            _ => Err(MemoryError::Empty),
        }
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load(at, Ordering::Acquire).expect(CHECKED)
    }

    fn set(&self, at: usize, value: u64, ordering: Ordering) {
        self.memory.store(at, value, ordering).expect(CHECKED);
    }

    /// Checks that the registry belongs to this node and format; claims a fresh one.
    pub fn claim(&self, node: NodeId) -> Result<(), Unusable> {
        let found = (self.word(Self::MAGIC_AT), self.word(Self::VERSION_AT));
        if found == (0, 0) {
            self.write_release();
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
        // Only now: a registry of another node or release stays untouched.
        self.write_release();
        self.complete_intent();
        Ok(())
    }

    /// Records the name of the writing release.
    fn write_release(&self) {
        let mut release = [0; Self::RELEASE_BYTES];
        let text = Release::name().as_bytes();
        let length = text.len().min(release.len());
        release[..length].copy_from_slice(&text[..length]);
        self.memory.write(Self::RELEASE_AT, &release).expect(CHECKED);
    }

    fn record_at(index: usize) -> usize {
        Self::RECORDS_AT + index * Record::BYTES
    }

    /// Returns all entries in the order of their indexes.
    pub fn entries(&self) -> impl Iterator<Item = RegistryEntry> + '_ {
        let in_use = usize::try_from(self.word(Self::IN_USE_AT)).unwrap_or(usize::MAX);
        (0..in_use.min(SEGMENTS_PER_NODE_MAX)).map(|index| {
            let at = Self::record_at(index);
            let mut bytes = [0; Record::BYTES];
            self.memory.read(at, &mut bytes).expect(CHECKED);
            match self.word(at + Record::STATE_OFFSET) {
                Record::LIVE => match Record::decode(&bytes) {
                    Ok(record) if record.segment.index() as usize == index => RegistryEntry::Live(record),
                    _ => RegistryEntry::Broken,
                },
                _ => RegistryEntry::Free(SegmentId::from_bits(self.word(at + Record::SEGMENT_OFFSET))),
            }
        })
    }

    /// Writes a record. Fails only if memory is short, and then writes nothing.
    pub fn write(&self, record: &Record) -> Result<(), MemoryError> {
        let index = record.segment.index() as usize;
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

    /// Replaces a record atomically.
    pub fn rewrite(&self, record: &Record) {
        self.memory.write(Self::INTENT_AT, &record.encode()).expect(CHECKED);
        fence(Ordering::Release);
        self.set(Self::INTENT_AT + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
        self.complete_intent();
    }

    /// Returns the record that was being rewritten when the daemon died.
    pub fn intent(&self) -> Option<Record> {
        let mut bytes = [0; Record::BYTES];
        self.memory.read(Self::INTENT_AT, &mut bytes).expect(CHECKED);
        let live = self.word(Self::INTENT_AT + Record::STATE_OFFSET) == Record::LIVE;
        if live { Record::decode(&bytes).ok() } else { None }
    }

    /// Returns the owner of the registry.
    pub fn node(&self) -> NodeId {
        NodeId(self.word(Self::NODE_AT) as u16)
    }

    /// Completes an interrupted rewrite.
    fn complete_intent(&self) {
        if self.word(Self::INTENT_AT + Record::STATE_OFFSET) != Record::LIVE {
            return;
        }
        let mut bytes = [0; Record::BYTES];
        self.memory.read(Self::INTENT_AT, &mut bytes).expect(CHECKED);
        if let Ok(record) = Record::decode(&bytes) {
            let at = Self::record_at(record.segment.index() as usize);
            self.set(at + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
            fence(Ordering::Release);
            self.memory.write(at, &record.encode()).expect(CHECKED);
            fence(Ordering::Release);
            self.set(at + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
        }
        fence(Ordering::Release);
        self.set(Self::INTENT_AT + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
    }

    /// Returns the memory of the registry.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns true if the segment has a live record.
    pub fn has_record(&self, segment: SegmentId) -> bool {
        let at = Self::record_at(segment.index() as usize);
        self.word(at + Record::STATE_OFFSET) == Record::LIVE
            && self.word(at + Record::SEGMENT_OFFSET) == segment.to_bits()
    }

    /// Returns the record of a segment. Its home may be rewriting it: the record is then missing, or as it was.
    pub fn record_of(&self, segment: SegmentId) -> Option<Record> {
        let index = segment.index() as usize;
        if index >= SEGMENTS_PER_NODE_MAX || !self.has_record(segment) {
            return None;
        }
        let mut bytes = [0; Record::BYTES];
        self.memory.read(Self::record_at(index), &mut bytes).ok()?;
        Record::decode(&bytes).ok().filter(|record| record.segment == segment)
    }

    /// Removes a segment's record; its id stays used.
    pub fn remove(&self, segment: SegmentId) {
        let at = Self::record_at(segment.index() as usize);
        self.set(at + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
    }

    /// Returns a bound that no issued timestamp or token exceeds.
    pub fn floor(&self) -> Timestamp {
        Timestamp(self.floor)
    }

    /// Keeps the floor above every timestamp that may be issued soon.
    #[inline]
    pub fn raise_floor(&mut self, wall_us: u64, last: Timestamp) {
        let soon = (wall_us + Self::FLOOR_AHEAD_US / 2) << Timestamp::COUNTER_BITS;
        if soon.max(last.0) > self.floor {
            let ahead = Self::FLOOR_AHEAD_US << Timestamp::COUNTER_BITS;
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
    fn registry_survives_restart() {
        // If this failed, a restart would lose segments, or give one segment's id to another.
        let path = std::env::temp_dir().join(format!("ddss-admin-registry-{}", std::process::id()));
        let record = |index, generation| Record {
            segment: SegmentId::new(NodeId(1), index, generation),
            known_as: SegmentId::new(NodeId(1), index, generation),
            epoch: 0,
            at: 4096,
            name: Name::new("n").unwrap(),
            spec: Spec::new(8),
            permissions: Permissions { owner: Principal { uid: 1, gid: 2 }, mode: 0o600 },
        };
        let mut registry = Registry::open(&path).unwrap();
        registry.claim(NodeId(1)).unwrap();
        registry.write(&record(0, 5)).unwrap();
        registry.write(&record(2, 9)).unwrap();
        registry.write(&record(70_000, 3)).unwrap();
        registry.remove(record(0, 5).segment);
        registry.raise_floor(1000, Timestamp(7));
        let floor = registry.floor();
        assert!(floor.micros() > 1000);
        drop(registry);
        let registry = Registry::open(&path).unwrap();
        assert_eq!(registry.claim(NodeId(2)), Err(Unusable::Node(NodeId(1))));
        registry.claim(NodeId(1)).unwrap();
        let entries: Vec<_> = registry.entries().collect();
        assert_eq!(entries[0], RegistryEntry::Free(record(0, 5).segment));
        assert_eq!(entries[2], RegistryEntry::Live(record(2, 9)));
        assert_eq!((entries.len(), entries[70_000]), (70_001, RegistryEntry::Live(record(70_000, 3))));
        assert_eq!(registry.floor(), floor);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn interrupted_rewrite_is_completed_after_crash() {
        // If this failed, a crash in the middle of a chmod would lose the segment, or leave it open to a user who lost
        // access.
        let path = std::env::temp_dir().join(format!("ddss-admin-intent-{}", std::process::id()));
        let record = |mode| Record {
            segment: SegmentId::new(NodeId(1), 4, 9),
            known_as: SegmentId::new(NodeId(1), 4, 9),
            epoch: 0,
            at: 1 << 48,
            name: Name::new("n").unwrap(),
            spec: Spec::new(8),
            permissions: Permissions { owner: Principal { uid: 1, gid: 2 }, mode },
        };
        let live = |registry: &Registry| registry.entries().nth(4);
        // The daemon dies before the old record is touched, while it is free, and when it is half the new one.
        for touched in [0, 1, 2] {
            let registry = Registry::open(&path).unwrap();
            registry.claim(NodeId(1)).unwrap();
            registry.write(&record(0o644)).unwrap();
            registry.memory.write(Registry::INTENT_AT, &record(0o600).encode()).unwrap();
            assert_eq!(
                live(&registry),
                Some(RegistryEntry::Live(record(0o644))),
                "without its state the intent is none"
            );
            registry.set(Registry::INTENT_AT + Record::STATE_OFFSET, Record::LIVE, Ordering::Release);
            if touched > 0 {
                registry.set(Registry::record_at(4) + Record::STATE_OFFSET, Record::FREE, Ordering::Release);
            }
            if touched > 1 {
                registry.memory.write(Registry::record_at(4) + 8, &record(0o600).encode()[8..40]).unwrap();
            }
            drop(registry);
            let registry = Registry::open(&path).unwrap();
            assert_eq!(registry.claim(NodeId(2)), Err(Unusable::Node(NodeId(1))));
            assert_eq!(registry.word(Registry::INTENT_AT + Record::STATE_OFFSET), Record::LIVE, "left alone");
            registry.claim(NodeId(1)).unwrap();
            assert_eq!(live(&registry), Some(RegistryEntry::Live(record(0o600))));
            assert_eq!(registry.word(Registry::INTENT_AT + Record::STATE_OFFSET), Record::FREE);
            registry.rewrite(&record(0o640));
            assert_eq!(live(&registry), Some(RegistryEntry::Live(record(0o640))));
            std::fs::remove_file(&path).unwrap();
        }
    }
}
