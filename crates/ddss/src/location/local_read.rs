//! Local reads: a segment whose home is this node is read in place, without the daemon.
//!
//! A process that may read a segment maps its area read-only; everything in an area has the same readers. The reader
//! checks the state word in front of the bytes before and after it copies them. If both values are equal and even, the
//! copy is consistent. The daemon serves every get that may have to wait: under an exclusive lock, or under a model
//! whose gets exclude each other. It also serves gets of a segment that changed since it was opened.

use crate::value::Stamp;
use ddss_core::{Header, LockDependency, Model, OpenedSegment, TableLayout, Timestamp, Version, offset_of};
use ddss_ipc::SharedMemory;
use ddss_ipc::lock_free::Seqlock;
use std::sync::atomic::{Ordering, fence};

/// A segment that this process can read in place.
#[derive(Debug)]
pub(crate) struct MappedSegment {
    framed: Seqlock,
    segment: u64,
    model: Model,
    /// Layout and number of the rows of a table.
    table: Option<(TableLayout, u64)>,
}

/// Places of a record in the payload of its segment.
#[derive(Clone, Copy)]
struct LocalRecord {
    state: usize,
    timestamp: usize,
    data: usize,
}

/// Kind of a handle's local reads. Computed once from the segment, its model and the model that the handle asks for, so
/// that a read of a plain segment does not look for rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocalReadRules {
    /// No local reads: gets that exclude each other need the home to order them.
    None,
    /// A plain segment: one byte decides, because a second test costs a cycle.
    Words,
    Whole,
    Unlocked,
    Rows(Consistency),
}

/// Consistency that local reads need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Consistency {
    /// Each word is consistent by itself; one attempt is enough.
    Words,
    /// All bytes are of one version, whether or not the lock is taken.
    Whole,
    /// All bytes are of one version, and the lock is not taken exclusively.
    Unlocked,
}

/// Maximum attempts of a get that runs into a put, before the daemon serves it.
const ATTEMPTS_MAX: usize = 64;

/// Converts an offset in the header to a word index.
const fn word_of(offset: u64) -> usize {
    (offset / 8) as usize
}
const STATE: usize = word_of(Header::STATE_OFFSET);
const TIMESTAMP: usize = word_of(Header::TIMESTAMP_OFFSET);
const SEGMENT: usize = word_of(Header::SEGMENT_OFFSET);
const LOCKED: usize = word_of(Header::LOCKED_OFFSET);
/// The header is the cache line in front of the bytes.
const _: () = assert!(Header::DATA_OFFSET == ddss_core::limits::LINE_BYTES as u64);

impl MappedSegment {
    /// Finds the segment in the area that holds it.
    pub(crate) fn find(area: &SharedMemory, opened: &OpenedSegment) -> Option<Self> {
        let header = usize::try_from(offset_of(opened.at?)).ok()?;
        let layout = TableLayout::new(opened.row_bytes);
        let table = layout.map(|layout| (layout, layout.rows(opened.bytes)));
        let bytes = layout.map_or(opened.bytes, |layout| layout.pool_bytes(opened.bytes) - Header::DATA_OFFSET);
        let framed = area.seqlock_at(header, usize::try_from(bytes).ok()?).ok()?;
        Some(Self { framed, segment: opened.segment.to_bits(), model: opened.model, table })
    }

    /// Selects the rules for a handle that asks for this model.
    pub(crate) fn rules(&self, requested_model: Option<Model>) -> LocalReadRules {
        let consistency = match self.model.get_rules(requested_model).lock_dependency {
            LockDependency::Any => return LocalReadRules::None,
            LockDependency::Exclusive => Consistency::Unlocked,
            LockDependency::None
                if self.model == Model::Null && requested_model.is_none_or(|model| model == Model::Null) =>
            {
                Consistency::Words
            }
            LockDependency::None => Consistency::Whole,
        };
        match consistency {
            consistency if self.table.is_some() => LocalReadRules::Rows(consistency),
            Consistency::Words => LocalReadRules::Words,
            Consistency::Whole => LocalReadRules::Whole,
            Consistency::Unlocked => LocalReadRules::Unlocked,
        }
    }

    /// Reads a range. `None`: the daemon has to serve the get, which also reports an invalid range. Inlined into the caller, which
    /// mostly knows how many bytes it reads: a word of a plain segment is then one load between two looks at its state.
    #[inline(always)]
    pub(crate) fn get(&self, rules: LocalReadRules, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let minds_holders = rules == LocalReadRules::Unlocked;
        if minds_holders || rules == LocalReadRules::Whole {
            return self.get_whole(minds_holders, offset, into);
        }
        self.get_otherwise(rules, offset, into)
    }

    /// Reads a range that is not one version of a plain segment.
    #[inline(never)]
    fn get_otherwise(&self, rules: LocalReadRules, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        match rules {
            LocalReadRules::Words => self.get_words(offset, into),
            LocalReadRules::Rows(consistency) => self.get_row(consistency, offset, into),
            LocalReadRules::None | LocalReadRules::Whole | LocalReadRules::Unlocked => None,
        }
    }

    /// Reads once, whatever the writer does, as long as the memory still belongs to this segment.
    fn get_words(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        if !self.framed.read(usize::try_from(offset).ok()?, into) {
            return None;
        }
        // Memory that moves to another segment first loses its id and gets the new id together with the new bytes. A
        // reader that finds the id after the bytes therefore knows to which segment they belonged.
        fence(Ordering::Acquire);
        let (state, timestamp) =
            (self.framed.word::<STATE>(Ordering::Relaxed), self.framed.word::<TIMESTAMP>(Ordering::Relaxed));
        let ours = self.framed.word::<SEGMENT>(Ordering::Relaxed) == self.segment;
        ours.then_some(Stamp { version: Version(state >> 1), timestamp: Timestamp(timestamp) })
    }

    /// Reads bytes of one row, by the version of its record.
    fn get_row(&self, consistency: Consistency, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let (layout, rows) = self.table?;
        let row = layout.row_of(offset, u32::try_from(into.len()).ok()?).filter(|&row| row < rows)?;
        let place = layout.record(row);
        let at = |place: u64| usize::try_from(place - Header::DATA_OFFSET).ok();
        let state = at(place.header)?;
        let record = LocalRecord {
            state: state + Header::STATE_OFFSET as usize,
            timestamp: state + Header::TIMESTAMP_OFFSET as usize,
            data: at(place.data)? + usize::try_from(offset).ok()?,
        };
        match consistency {
            Consistency::Words => self.get_row_attempt(record, false, into, |_, _| true),
            Consistency::Whole => self.get_row_whole(record, false, into),
            Consistency::Unlocked => self.get_row_whole(record, true, into),
        }
    }

    /// Begins to read a row piece by piece. `None`: the daemon has to serve it, or it is being written.
    #[inline(always)]
    pub(crate) fn begin_row(&self, rules: LocalReadRules, row: u64) -> Option<LocalRow<'_>> {
        let ((layout, rows), LocalReadRules::Rows(consistency)) = (self.table?, rules) else { return None };
        if row >= rows {
            return None;
        }
        let header = usize::try_from(layout.record(row).header - Header::DATA_OFFSET).ok()?;
        let state_at = header + Header::STATE_OFFSET as usize;
        // Acquire: as for a whole row.
        let state = self.framed.payload_word(state_at, Ordering::Acquire)?;
        let is_held = consistency == Consistency::Unlocked && self.framed.word::<LOCKED>(Ordering::Relaxed) != 0;
        if state & 1 != 0 || is_held {
            return None;
        }
        let (from, to) = layout.bounds(0);
        let data_at = header + TableLayout::RECORD_HEADER_BYTES as usize;
        Some(LocalRow { mapped: self, state_at, data_at, row_bytes: (to - from) as usize, state })
    }

    #[inline]
    fn get_row_whole(&self, record: LocalRecord, minds_holders: bool, into: &mut [u8]) -> Option<Stamp> {
        for _ in 0..ATTEMPTS_MAX {
            if minds_holders && self.framed.word::<LOCKED>(Ordering::Acquire) != 0 {
                return None;
            }
            let is_whole = |before: u64, after: u64| before & 1 == 0 && before == after;
            if let Some(stamp) = self.get_row_attempt(record, minds_holders, into, is_whole) {
                return Some(stamp);
            }
            if self.framed.word::<SEGMENT>(Ordering::Relaxed) != self.segment {
                return None;
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Reads a row once. `accept` decides about the state word before and after the bytes.
    #[inline(always)]
    fn get_row_attempt(
        &self,
        record: LocalRecord,
        minds_holders: bool,
        into: &mut [u8],
        accept: impl FnOnce(u64, u64) -> bool,
    ) -> Option<Stamp> {
        // Acquire: pairs with the daemon's Release of the record's state word. A reader that sees a version sees its
        // bytes, and whether its writer still has the lock.
        let state = self.framed.payload_word(record.state, Ordering::Acquire)?;
        if minds_holders && self.framed.word::<LOCKED>(Ordering::Relaxed) != 0 {
            return None;
        }
        let timestamp = self.framed.payload_word(record.timestamp, Ordering::Relaxed)?;
        if !self.framed.read(record.data, into) {
            return None;
        }
        // Acquire fence: pairs with the daemon's fence behind the odd state word, as for a whole segment.
        fence(Ordering::Acquire);
        let ours = self.framed.word::<SEGMENT>(Ordering::Relaxed) == self.segment;
        let after = self.framed.payload_word(record.state, Ordering::Relaxed)?;
        let stamp = Stamp { version: Version(state >> 1), timestamp: Timestamp(timestamp) };
        (ours && accept(state, after)).then_some(stamp)
    }

    /// Reads bytes that are all of one version.
    #[inline(always)]
    fn get_whole(&self, minds_holders: bool, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let offset = usize::try_from(offset).ok()?;
        for _ in 0..ATTEMPTS_MAX {
            // Acquire: pairs with the daemon's Release of the state word. A reader that sees a version sees its bytes,
            // and whether its writer still has the lock.
            let state = self.framed.word::<STATE>(Ordering::Acquire);
            if minds_holders && self.framed.word::<LOCKED>(Ordering::Relaxed) != 0 {
                return None;
            }
            let timestamp = self.framed.word::<TIMESTAMP>(Ordering::Relaxed);
            if !self.framed.read(offset, into) {
                return None;
            }
            // Acquire fence: pairs with the daemon's fence behind the odd state word. A reader that sees any byte of
            // the next put also sees that it has begun.
            fence(Ordering::Acquire);
            // The memory now belongs to another segment. The daemon knows where this segment is, if it still exists.
            if self.framed.word::<SEGMENT>(Ordering::Relaxed) != self.segment {
                return None;
            }
            if state & 1 == 0 && self.framed.word::<STATE>(Ordering::Relaxed) == state {
                return Some(Stamp { version: Version(state >> 1), timestamp: Timestamp(timestamp) });
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// Row of a table that is read in place, piece by piece. All that was read is of one version if [`is_whole`](Self::is_whole)
/// says so at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalRow<'a> {
    mapped: &'a MappedSegment,
    /// Places in the payload: of the record's state word, and of the row's first byte.
    state_at: usize,
    data_at: usize,
    row_bytes: usize,
    state: u64,
}

impl LocalRow<'_> {
    /// Returns the version of the row.
    #[inline(always)]
    pub(crate) fn version(&self) -> Version {
        Version(self.state >> 1)
    }

    /// Returns version and timestamp of the row.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let timestamp_at = self.state_at + Header::TIMESTAMP_OFFSET as usize;
        let timestamp = self.mapped.framed.payload_word(timestamp_at, Ordering::Relaxed)?;
        Some(Stamp { version: self.version(), timestamp: Timestamp(timestamp) })
    }

    /// Returns an aligned word of the row; `None` outside of it.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> Option<u64> {
        if at >= self.row_bytes {
            return None;
        }
        self.mapped.framed.payload_word(self.data_at + at, Ordering::Relaxed).map(u64::from_le)
    }

    /// Copies bytes of the row; `None` outside of it.
    #[inline(always)]
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let is_inside = into.len() <= self.row_bytes && at <= self.row_bytes - into.len();
        (is_inside && self.mapped.framed.read(self.data_at + at, into)).then_some(())
    }

    /// Returns true if nothing has changed since the row was begun, so that all pieces belong together.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        // Acquire fence: pairs with the daemon's fence behind the odd state word, as for a whole segment.
        fence(Ordering::Acquire);
        let Self { mapped, state_at, state, .. } = *self;
        mapped.framed.word::<SEGMENT>(Ordering::Relaxed) == mapped.segment
            && mapped.framed.payload_word(state_at, Ordering::Relaxed) == Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Client, ErrorKind, Spec};

    const MODELS: [Model; 7] =
        [Model::Null, Model::Read, Model::Write, Model::Strict, Model::Version, Model::Delta(2), Model::Temporal(1000)];

    #[test]
    fn local_read_equals_read_through_daemon() {
        // If this broke, two readers of one node would see different values.
        let node = TestNode::start();
        let (local, remote) = (node.local_read_client(), node.client());
        for (index, model) in MODELS.into_iter().enumerate() {
            let name = format!("model-{index}");
            let here = local.segment(&name).allocate(Spec::new(200).model(model)).unwrap();
            let there = remote.segment(&name).open().unwrap();
            assert_eq!(here.location().can_read_locally(), model != Model::Read, "{model:?}");
            assert!(
                !here.with_model(Model::Read).location().can_read_locally() && !there.location().can_read_locally()
            );
            let put = there.put_if(Version(0), 3, b"what was put there").unwrap();
            for here in [here.clone(), here.with_model(Model::Strict), here.with_model(Model::Null)] {
                for (offset, bytes) in [(0, 8), (8, 64), (3, 18), (0, 200), (199, 1), (200, 0)] {
                    let (mut seen, mut told) = (vec![1; bytes], vec![2; bytes]);
                    assert_eq!(here.get_into(offset, &mut seen).unwrap(), put, "{model:?}");
                    assert_eq!(there.get_into(offset, &mut told).unwrap(), put);
                    assert_eq!(seen, told, "{model:?}");
                }
                for (offset, bytes) in [(200, 1), (193, 8), (u64::MAX, 8), (0, 201)] {
                    let error = here.get_into(offset, &mut vec![0; bytes]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::OutOfRange);
                }
            }
            there.release().unwrap();
            let gone = here.get_into(0, &mut [0; 8]).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound, "{model:?}");
        }
    }

    /// Reads concurrently with a writer whose values repeat one byte.
    fn beside_a_writer(node: &TestNode, model: Model, mut look: impl FnMut(&[u8])) {
        let (local, remote): (Client, Client) = (node.local_read_client(), node.client());
        let here = local.segment("beside").allocate(Spec::new(192).model(model)).unwrap();
        let there = remote.segment("beside").open().unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for turn in 0..10_000 {
                    there.put(0, &[turn as u8; 192]).unwrap();
                }
            });
            let (mut last, mut steps) = (Version(0), 0);
            while !writer.is_finished() {
                let mut bytes = [0; 192];
                let version = here.get_into(0, &mut bytes).unwrap().version;
                assert!(version >= last, "time ran backwards");
                steps += u64::from(version > last);
                last = version;
                look(&bytes);
            }
            assert!(steps > 0, "nothing was seen to change");
        });
        here.release().unwrap();
    }

    #[test]
    fn local_reads_are_atomic_during_puts_and_word_atomic_under_null() {
        // If this broke, a reader would act on a torn value that was never written.
        let node = TestNode::start();
        beside_a_writer(&node, Model::Write, |bytes| {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "two values in one: {bytes:?}");
        });
        beside_a_writer(&node, Model::Null, |bytes| {
            let mut words = bytes.chunks(8);
            assert!(words.all(|word| word.iter().all(|byte| *byte == word[0])), "half a word: {bytes:?}");
        });
    }
}
