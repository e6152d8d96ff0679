//! The near road: a segment at home on this node is read in place, without the daemon.
//!
//! A process that may read a segment maps the area it lies in, to be read only: everything in an area has the same
//! readers. The state word in front of the bytes is looked at before and after they are copied; equal and even, and
//! they are whole. What has to wait for somebody (a lock that is held alone, a model whose gets exclude each other)
//! goes to the daemon, as does everything that is not as it was when the segment was opened.

use crate::session::Inner;
use crate::value::Stamp;
use ddss_core::engine::{area_of, offset_of};
use ddss_core::{Header, LockDependency, Model, OpenedSegment, Timestamp, Version};
use ddss_ipc::{Seqlock, SharedMemory};
use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The areas that this process has mapped.
#[derive(Debug, Default)]
pub(crate) struct MappedAreas(Mutex<HashMap<usize, Option<SharedMemory>>>);

impl MappedAreas {
    /// How long the door may take to show an area. Without it the daemon is asked for everything.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// The mapping of an area, if this process may have one.
    fn get(&self, client: &Inner, area: usize) -> Option<SharedMemory> {
        let mut areas = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = || ddss_ipc::map_area(&client.plan.socket, u32::try_from(area).ok()?, Self::PATIENCE).ok();
        areas.entry(area).or_insert_with(view).clone()
    }

    /// The daemon is another one: it may have other files.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A segment that can be read in place.
#[derive(Debug)]
pub(crate) struct MappedSegment {
    framed: Seqlock,
    segment: u64,
    model: Model,
}

/// How a handle's gets look at a segment in place: made once, of its model and of what the handle asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocalReadRules {
    /// Not at all: gets that exclude each other have to meet somewhere.
    None,
    /// Every word is whole, and no more is promised: one look.
    Words,
    /// All bytes are of one version, whoever holds the lock.
    Whole,
    /// The same, if nobody holds the lock alone.
    Unlocked,
}

/// How often a get that met a put tries again before it asks the daemon.
const TRIES: usize = 64;

/// Which word of a header that is.
const fn word_of(offset: u64) -> usize {
    (offset / 8) as usize
}
const STATE: usize = word_of(Header::STATE_OFFSET);
const TIMESTAMP: usize = word_of(Header::TIMESTAMP_OFFSET);
const SEGMENT: usize = word_of(Header::SEGMENT_OFFSET);
const LOCKED: usize = word_of(Header::LOCKED_OFFSET);
/// A header is the line in front of the bytes.
const _: () = assert!(Header::DATA_OFFSET == ddss_core::limits::LINE_BYTES as u64);

impl MappedSegment {
    /// Maps the segment, if it is at home here and this process may read it.
    pub(crate) fn map(client: &Inner, opened: &OpenedSegment) -> Option<Self> {
        let at = opened.at?;
        let area = client.areas.get(client, area_of(at))?;
        let header = usize::try_from(offset_of(at)).ok()?;
        let framed = area.seqlock_at(header, usize::try_from(opened.bytes).ok()?).ok()?;
        Some(Self { framed, segment: opened.segment.to_bits(), model: opened.model })
    }

    /// How a handle that asks for that looks.
    pub(crate) fn sight(&self, asks: Option<Model>) -> LocalReadRules {
        match self.model.get_rules(asks).minds {
            LockDependency::Anyone => LocalReadRules::None,
            LockDependency::Alone => LocalReadRules::Unlocked,
            LockDependency::Nobody if self.model == Model::Null && asks.is_none_or(|asks| asks == Model::Null) => {
                LocalReadRules::Words
            }
            LockDependency::Nobody => LocalReadRules::Whole,
        }
    }

    /// Reads a range. `None`: ask the daemon, which also says what is wrong with a range that is not there.
    #[inline]
    pub(crate) fn get(&self, sight: LocalReadRules, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        match sight {
            LocalReadRules::None => None,
            LocalReadRules::Words => self.get_words(offset, into),
            LocalReadRules::Whole => self.get_whole(false, offset, into),
            LocalReadRules::Unlocked => self.get_whole(true, offset, into),
        }
    }

    /// One look: whatever is there, as long as it is this segment's.
    #[inline]
    fn get_words(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        if !self.framed.read(usize::try_from(offset).ok()?, into) {
            return None;
        }
        // Memory that goes to another segment loses its id first, and has it when the new bytes come: who reads the id
        // behind the bytes knows whose they were.
        fence(Ordering::Acquire);
        let (state, timestamp) =
            (self.framed.word::<STATE>(Ordering::Relaxed), self.framed.word::<TIMESTAMP>(Ordering::Relaxed));
        let ours = self.framed.word::<SEGMENT>(Ordering::Relaxed) == self.segment;
        ours.then_some(Stamp { version: Version(state >> 1), timestamp: Timestamp(timestamp) })
    }

    /// All bytes are of one version.
    #[inline]
    fn get_whole(&self, minds_holders: bool, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let offset = usize::try_from(offset).ok()?;
        for _ in 0..TRIES {
            // pairs with the daemon's Release of the state word: who sees a version sees its bytes, and whether its
            // writer still holds the lock.
            let state = self.framed.word::<STATE>(Ordering::Acquire);
            if minds_holders && self.framed.word::<LOCKED>(Ordering::Relaxed) != 0 {
                return None;
            }
            let timestamp = self.framed.word::<TIMESTAMP>(Ordering::Relaxed);
            if !self.framed.read(offset, into) {
                return None;
            }
            // pairs with the daemon's fence behind the odd state word: who has read a byte of the next put sees that it
            // has begun.
            fence(Ordering::Acquire);
            // Memory that is another segment's by now: the daemon knows where this one is, if anywhere.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Client, Failure, Spec};

    const MODELS: [Model; 7] =
        [Model::Null, Model::Read, Model::Write, Model::Strict, Model::Version, Model::Delta(2), Model::Temporal(1000)];

    #[test]
    fn in_place_there_is_what_the_daemon_says() {
        // If this broke, two readers of one node would see different values.
        let node = TestNode::start();
        let (near, far) = (node.near_client(), node.client());
        for (index, model) in MODELS.into_iter().enumerate() {
            let name = format!("model-{index}");
            let here = near.allocate(&name, Spec { model, ..Spec::new(200) }).unwrap();
            let there = far.open(&name).unwrap();
            assert_eq!(here.place().is_near(), model != Model::Read, "{model:?}");
            assert!(!here.asking(Model::Read).place().is_near() && !there.place().is_near());
            let put = there.put_if(Version(0), 3, b"what was put there").unwrap();
            for here in [here.clone(), here.asking(Model::Strict), here.asking(Model::Null)] {
                for (offset, bytes) in [(0, 8), (8, 64), (3, 18), (0, 200), (199, 1), (200, 0)] {
                    let (mut seen, mut told) = (vec![1; bytes], vec![2; bytes]);
                    assert_eq!(here.get_into(offset, &mut seen).unwrap(), put, "{model:?}");
                    assert_eq!(there.get_into(offset, &mut told).unwrap(), put);
                    assert_eq!(seen, told, "{model:?}");
                }
                for (offset, bytes) in [(200, 1), (193, 8), (u64::MAX, 8), (0, 201)] {
                    let error = here.get_into(offset, &mut vec![0; bytes]).unwrap_err();
                    assert_eq!(error.failure(), Some(Failure::OutOfRange));
                }
            }
            there.release().unwrap();
            let gone = here.get_into(0, &mut [0; 8]).unwrap_err();
            assert_eq!(gone.failure(), Some(Failure::NotFound), "{model:?}");
        }
    }

    /// Reads beside a writer, whose values are one byte again and again.
    fn beside_a_writer(node: &TestNode, model: Model, mut look: impl FnMut(&[u8])) {
        let (near, far): (Client, Client) = (node.near_client(), node.client());
        let here = near.allocate("beside", Spec { model, ..Spec::new(192) }).unwrap();
        let there = far.open("beside").unwrap();
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
    fn beside_a_writer_values_are_whole_and_under_null_words_are() {
        // If this broke, a reader would act on half a value that nobody ever wrote.
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
