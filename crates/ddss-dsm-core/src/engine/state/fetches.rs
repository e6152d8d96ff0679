//! Pages in flight to this rank, by landing slot.

use crate::model::{PageId, Rank};
use std::collections::VecDeque;

/// Step of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waits until the home has acknowledged this rank's own diffs of the page.
    Blocked,
    /// A swap of the home word is in flight.
    Claiming,
    /// This many reads are in flight.
    Reading(u8),
    /// Reads again at this time in microseconds.
    BackingOff(u64),
    /// The home or the default home has a request.
    Requested,
    /// The home reports when the page has the stamps.
    Awaiting,
    /// This rank is the home, and waits for stamps.
    AwaitingOwn,
}

/// One page in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) page: PageId,
    pub(crate) stage: Stage,
    /// Reads that came too early.
    pub(crate) retries: u32,
    /// True if a notice for the page was applied after the fetch began.
    pub(crate) is_outdated: bool,
    /// Rank that was asked last, and the last flush before.
    pub(crate) asked: Option<(Rank, u64)>,
}

/// Pages in flight, and pages that wait for a slot.
#[derive(Clone, Debug)]
pub(crate) struct FetchTable {
    slots: Vec<Option<Fetch>>,
    free: Vec<u16>,
    waiting: VecDeque<PageId>,
}

impl FetchTable {
    pub(crate) fn new(slots: u16) -> Self {
        Self { slots: vec![None; slots.into()], free: (0..slots).rev().collect(), waiting: VecDeque::new() }
    }

    /// Takes a slot for a page. Without a free slot the page waits for one.
    pub(crate) fn start(&mut self, page: PageId) -> Option<u16> {
        let Some(slot) = self.free.pop() else {
            self.waiting.push_back(page);
            return None;
        };
        self.slots[usize::from(slot)] =
            Some(Fetch { page, stage: Stage::Blocked, retries: 0, is_outdated: false, asked: None });
        Some(slot)
    }

    /// Frees a slot. Returns the page that waits for one.
    pub(crate) fn finish(&mut self, slot: u16) -> Option<PageId> {
        self.slots[usize::from(slot)] = None;
        self.free.push(slot);
        self.waiting.pop_front()
    }

    pub(crate) fn get(&self, slot: u16) -> Option<Fetch> {
        self.slots.get(usize::from(slot)).copied().flatten()
    }

    /// Returns the fetch in a slot that is in use.
    pub(crate) fn entry(&mut self, slot: u16) -> &mut Fetch {
        self.slots[usize::from(slot)].as_mut().expect("the slot of a fetch is in use until the fetch is complete")
    }

    /// Records that a notice may be for any page in flight.
    pub(crate) fn mark_all_outdated(&mut self) {
        self.slots.iter_mut().flatten().for_each(|fetch| fetch.is_outdated = true);
    }

    /// Returns the time of the next repeated read.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let due = |fetch: &Fetch| if let Stage::BackingOff(time_us) = fetch.stage { Some(time_us) } else { None };
        self.slots.iter().flatten().filter_map(due).min()
    }

    /// Returns the slots whose pause is over.
    pub(crate) fn due(&self, now_us: u64) -> Vec<u16> {
        let is_due = |fetch: &Fetch| matches!(fetch.stage, Stage::BackingOff(time_us) if time_us <= now_us);
        (0..).zip(&self.slots).filter(|(_, fetch)| fetch.as_ref().is_some_and(is_due)).map(|(slot, _)| slot).collect()
    }
}
