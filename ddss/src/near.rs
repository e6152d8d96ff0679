//! The near road: a segment at home on this node is read in place, without the daemon.
//!
//! A process that may read a segment maps the area it lies in, to be read only: everything in an area has the same
//! readers. The state word in front of the bytes is looked at before and after they are copied; equal and even, and
//! they are whole. What has to wait for somebody (a lock that is held alone, a model whose gets exclude each other)
//! goes to the daemon, as does everything that is not as it was when the segment was opened.

use crate::attached::Inner;
use crate::value::Stamp;
use ddss_core::engine::{area_of, offset_of};
use ddss_core::{Header, Minds, Model, Opened, Proof, SegmentId};
use ddss_ipc::SharedMemory;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The areas that this process has mapped.
#[derive(Debug, Default)]
pub(crate) struct Areas(Mutex<HashMap<usize, Option<SharedMemory>>>);

impl Areas {
    /// How long the door may take to show an area. Without it the daemon is asked for everything.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// The mapping of an area, if this process may have one.
    fn get(&self, client: &Inner, area: usize) -> Option<SharedMemory> {
        let mut areas = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = || ddss_ipc::view(&client.plan.socket, u32::try_from(area).ok()?, Self::PATIENCE).ok();
        areas.entry(area).or_insert_with(view).clone()
    }

    /// The daemon is another one: it may have other files.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A segment that can be read in place.
#[derive(Debug)]
pub(crate) struct Near {
    area: SharedMemory,
    header: usize,
    segment: SegmentId,
    model: Model,
    /// It is not there any more.
    gone: AtomicBool,
}

/// How often a get that met a put tries again before it asks the daemon.
const TRIES: usize = 64;

impl Near {
    /// Maps the segment, if it is at home here and this process may read it.
    pub(crate) fn map(client: &Inner, opened: &Opened) -> Option<Self> {
        let at = opened.at?;
        let area = client.areas.get(client, area_of(at))?;
        let header = usize::try_from(offset_of(at)).ok()?;
        let bytes = usize::try_from(Header::DATA_OFFSET.checked_add(opened.bytes)?).ok()?;
        if header.checked_add(bytes).is_none_or(|end| end > area.len()) {
            return None;
        }
        Some(Self { area, header, segment: opened.segment, model: opened.model, gone: AtomicBool::new(false) })
    }

    #[inline]
    fn word(&self, offset: u64) -> Option<u64> {
        self.area.load(self.header + offset as usize, Ordering::Acquire).ok()
    }

    /// Reads a range, which the caller has checked, as a whole. `None`: ask the daemon.
    #[inline]
    pub(crate) fn get(&self, asks: Option<Model>, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let minds = self.model.get_rules(asks).minds;
        // Gets that exclude each other have to meet somewhere.
        if minds == Minds::Anyone || self.gone.load(Ordering::Relaxed) {
            return None;
        }
        let words = self.model == Model::Null && asks.is_none_or(|asks| asks == Model::Null);
        for _ in 0..TRIES {
            match self.try_get(minds, words, offset, into)? {
                Proof::Whole(version, timestamp) => return Some(Stamp { version, timestamp }),
                Proof::Torn => std::hint::spin_loop(),
                Proof::Gone => {
                    self.gone.store(true, Ordering::Relaxed);
                    return None;
                }
            }
        }
        None
    }

    #[inline]
    fn try_get(&self, minds: Minds, words: bool, offset: u64, into: &mut [u8]) -> Option<Proof> {
        // pairs with the daemon's Release of the state word: who sees a version sees its bytes, and whether its
        // writer still holds the lock.
        let state = self.word(Header::STATE_OFFSET)?;
        let header = Header {
            state,
            timestamp: self.word(Header::TIMESTAMP_OFFSET)?,
            segment: self.word(Header::SEGMENT_OFFSET)?,
            locked: self.word(Header::LOCKED_OFFSET)?,
            bytes: 0,
        };
        if header.locked != 0 && minds != Minds::Nobody {
            return None;
        }
        self.area.read(self.header + (Header::DATA_OFFSET + offset) as usize, into).ok()?;
        // pairs with the daemon's fence behind the odd state word: who has read a byte of the next put sees that it
        // has begun.
        fence(Ordering::Acquire);
        let after = self.word(Header::STATE_OFFSET)?;
        let proof = header.prove(self.segment, after);
        match (proof, words) {
            // Under Null every word is whole, and no more is promised.
            (Proof::Torn, true) => {
                Some(Proof::Whole(ddss_core::Version(after >> 1), ddss_core::Timestamp(header.timestamp)))
            }
            _ => Some(proof),
        }
    }
}
