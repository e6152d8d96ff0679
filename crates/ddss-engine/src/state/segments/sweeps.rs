//! Progress of the sweeps of maps: of those that clients ask for, and of the passes by which a home frees expired entries by
//! itself.
//!
//! A pass goes over all buckets of a map, after an entry has expired, and never sooner than [`SWEEP_PAUSE_US`] after the one
//! before. It notes the earliest expiry of what stays. A map in which nothing can expire is not in here.

use crate::config::Now;
use crate::requester::{LockOwner, Requester};
use ddss_core::SegmentId;
use ddss_core::limits::{SWEEP_PAUSE_US, WAITERS_PER_SEGMENT_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// MapSweep that a client asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepCall {
    pub(crate) requester: Requester,
    pub(crate) deadline_us: u64,
    pub(crate) buckets: Buckets,
    /// Number of entries that were freed.
    pub(crate) freed: u64,
}

/// Buckets that a sweep has yet to look through, from the last one down to the first: so the target of a link comes before
/// the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Buckets {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// Orphans in a bucket whose owner was changed: if they are still there, at this state word, no client will link them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WarnedOwner {
    pub(crate) bucket: u64,
    pub(crate) owner: u64,
    pub(crate) state: u64,
}

/// Sweeps of one map.
#[derive(Debug)]
pub(crate) struct MapSweep {
    pub(crate) calls: VecDeque<SweepCall>,
    /// The home's own pass.
    pub(crate) pass: Option<Buckets>,
    /// Earliest expiry that is known, in milliseconds since 1970.
    earliest_ms: u64,
    /// Earliest start of the next pass.
    pause_until_us: u64,
    pub(crate) warned: Option<WarnedOwner>,
    /// The daemon was asked for the next slice.
    pub(crate) has_slice: bool,
}

impl MapSweep {
    const NEVER_MS: u64 = u64::MAX;

    fn new(pause_until_us: u64) -> Self {
        Self {
            calls: VecDeque::new(),
            pass: None,
            earliest_ms: Self::NEVER_MS,
            pause_until_us,
            warned: None,
            has_slice: false,
        }
    }

    /// Returns the buckets that the next slice looks through: of the first call, else of the pass.
    pub(crate) fn buckets(&mut self) -> Option<&mut Buckets> {
        self.calls.front_mut().map(|call| &mut call.buckets).or(self.pass.as_mut())
    }

    /// Records the expiry of an entry that stays; 0 for none.
    pub(crate) fn note(&mut self, expiry_ms: u64) {
        if expiry_ms > 0 {
            self.earliest_ms = self.earliest_ms.min(expiry_ms);
        }
    }

    /// Returns when the home has work here, on the steady clock.
    fn due_us(&self, now: Now) -> u64 {
        if self.pass.is_some() || !self.calls.is_empty() { 0 } else { self.next_pass_us(now) }
    }

    /// Returns when the next pass begins; never if nothing can expire.
    fn next_pass_us(&self, now: Now) -> u64 {
        if self.earliest_ms == Self::NEVER_MS {
            return u64::MAX;
        }
        let left_us = self.earliest_ms.saturating_mul(1000).saturating_sub(now.wall_us);
        self.pause_until_us.max(now.steady_us.saturating_add(left_us))
    }

    /// Begins a pass over that many buckets, if it is time.
    pub(crate) fn begin_pass(&mut self, now: Now, buckets: u64) {
        if self.pass.is_none() && self.next_pass_us(now) <= now.steady_us {
            (self.pass, self.earliest_ms) = (Some(Buckets { first: 0, end: buckets }), Self::NEVER_MS);
        }
    }

    /// Ends the home's own pass. The next one begins at that time, or later.
    pub(crate) fn end_pass(&mut self, pause_until_us: u64) {
        (self.pass, self.pause_until_us) = (None, pause_until_us);
    }
}

/// Sweeps of all maps at home here.
#[derive(Debug)]
pub(crate) struct Sweeps {
    maps: BTreeMap<SegmentId, MapSweep>,
    /// Map whose pass had the last slice.
    last: SegmentId,
    due_us: u64,
    /// Time between two passes.
    pub(crate) pause_us: u64,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { maps: BTreeMap::new(), last: SegmentId::from_bits(0), due_us: u64::MAX, pause_us: SWEEP_PAUSE_US }
    }
}

impl Sweeps {
    /// Maps that one tick looks at.
    const VISITED_MAX: usize = 64;

    /// Records that an entry of a map expires at that time, or of any map that it may.
    pub(crate) fn note_expiry(&mut self, now: Now, id: SegmentId, expiry_ms: u64) {
        let pause_until_us = now.steady_us.saturating_add(self.pause_us);
        let sweep = self.maps.entry(id).or_insert_with(|| MapSweep::new(pause_until_us));
        sweep.note(expiry_ms);
        self.due_us = self.due_us.min(sweep.due_us(now));
    }

    /// Adds a call; `false` if there are too many.
    pub(crate) fn add(&mut self, now: Now, id: SegmentId, call: SweepCall) -> bool {
        let sweep = self.maps.entry(id).or_insert_with(|| MapSweep::new(now.steady_us));
        let has_room = sweep.calls.len() < WAITERS_PER_SEGMENT_MAX;
        if has_room {
            sweep.calls.push_back(call);
            self.due_us = 0;
        }
        has_room
    }

    pub(crate) fn get(&mut self, id: SegmentId) -> Option<&mut MapSweep> {
        self.maps.get_mut(&id)
    }

    /// Removes a map that has nothing to do any more.
    pub(crate) fn forget_idle(&mut self, id: SegmentId) {
        let is_idle = |sweep: &MapSweep| {
            sweep.calls.is_empty() && sweep.pass.is_none() && sweep.earliest_ms == MapSweep::NEVER_MS
        };
        if self.maps.get(&id).is_some_and(is_idle) {
            self.maps.remove(&id);
        }
    }

    /// Removes a map; returns the calls that have not ended.
    pub(crate) fn remove(&mut self, id: SegmentId) -> impl Iterator<Item = SweepCall> + use<> {
        self.maps.remove(&id).into_iter().flat_map(|sweep| sweep.calls)
    }

    /// Removes the calls of a client or a peer that is gone.
    pub(crate) fn remove_owner(&mut self, owner: LockOwner) {
        for sweep in self.maps.values_mut() {
            sweep.calls.retain(|call| call.requester.owner() != owner);
        }
    }

    /// Returns when the home has work here, on the steady clock.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Returns the maps with work now: all with calls, and the next one for a slice of its pass.
    pub(crate) fn visit(&mut self, now: Now) -> Vec<SegmentId> {
        if now.steady_us < self.due_us {
            return Vec::new();
        }
        let called = self.maps.iter().filter(|(_, sweep)| !sweep.calls.is_empty());
        let mut visited: Vec<SegmentId> = called.map(|(&id, _)| id).collect();
        let behind =
            self.maps.range((Bound::Excluded(self.last), Bound::Unbounded)).chain(self.maps.range(..=self.last));
        let mut due = behind.take(Self::VISITED_MAX).filter(|(_, sweep)| sweep.due_us(now) <= now.steady_us);
        if let Some((&id, sweep)) = due.next() {
            self.last = id;
            visited.extend(sweep.calls.is_empty().then_some(id));
        } else if let Some((&id, _)) =
            self.maps.range((Bound::Excluded(self.last), Bound::Unbounded)).nth(Self::VISITED_MAX)
        {
            self.last = id;
        }
        self.due_us = self.maps.values().map(|sweep| sweep.due_us(now)).min().unwrap_or(u64::MAX);
        visited
    }
}
