//! Progress of the sweeps of maps: of those that clients ask for, and of the passes by which a home frees expired entries by
//! itself.
//!
//! A pass goes over all buckets of a map, after an entry has expired, and never sooner than [`SWEEP_PAUSE_US`] after the one
//! before. It notes the earliest expiry of what stays. A map in which nothing can expire is not in here.

use crate::action::GarbageSearch;
use crate::config::Now;
use crate::requester::{LockOwner, Requester};
use ddss_core::SegmentId;
use ddss_core::limits::{SWEEP_BUCKETS_MAX, SWEEP_PAUSE_US, WAITERS_PER_SEGMENT_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sweep that a client asked for.
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

/// Work of a tick for a map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SweepWork {
    /// Asks the daemon for the next slice of a call.
    Call,
    /// Looks at a table that may be no map.
    Unknown,
    /// Does a slice of the home's own pass.
    Pass,
}

impl SweepWork {
    const ALL: [Self; 3] = [Self::Call, Self::Unknown, Self::Pass];

    /// Returns the maximum number of maps in one tick.
    const fn visited_max(self) -> usize {
        match self {
            Self::Call => 64,
            Self::Unknown => 16,
            Self::Pass => 1,
        }
    }
}

/// Work that a slice may still do.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SliceWork {
    pub(crate) buckets: u64,
    pub(crate) bytes: usize,
}

impl SliceWork {
    pub(crate) fn is_done(self) -> bool {
        self.buckets == 0 || self.bytes == 0
    }

    /// Counts a search; one of no bucket is work, too.
    pub(crate) fn count(&mut self, buckets: u64, bytes: usize) {
        *self = Self { buckets: self.buckets.saturating_sub(buckets.max(1)), bytes: self.bytes.saturating_sub(bytes) };
    }
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
    /// The table may be no map: a tick looks at one bucket of it first.
    pub(crate) is_unknown: bool,
    /// Work that the present slice may still do.
    pub(crate) slice: SliceWork,
    /// Earliest slice that comes before operations that wait.
    turn_us: u64,
    /// Such a slice came before the change that ends now.
    had_turn: bool,
    /// Work of the next tick for the map, and its time; `None` if there is none.
    due: Option<(SweepWork, u64)>,
}

impl MapSweep {
    const NEVER_MS: u64 = u64::MAX;
    /// Time between two slices that come before operations that wait.
    const TURN_US: u64 = 1000;

    fn new(pause_until_us: u64) -> Self {
        Self {
            calls: VecDeque::new(),
            pass: None,
            earliest_ms: Self::NEVER_MS,
            pause_until_us,
            warned: None,
            has_slice: false,
            is_unknown: false,
            slice: SliceWork::default(),
            turn_us: 0,
            had_turn: false,
            due: None,
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

    /// Returns true if a slice comes before operations that wait: at most after each second change, since the change may be
    /// that of the slice before.
    pub(crate) fn take_turn(&mut self, now: Now) -> bool {
        let has_work = !self.calls.is_empty() || self.pass.is_some() || self.next_pass_us(now) <= now.steady_us;
        self.had_turn = !self.had_turn && has_work && self.turn_us <= now.steady_us;
        self.had_turn
    }

    /// Begins a slice.
    pub(crate) fn begin_slice(&mut self, now: Now) {
        self.turn_us = now.steady_us.saturating_add(Self::TURN_US);
        let buckets = if self.is_unknown { 1 } else { SWEEP_BUCKETS_MAX };
        self.slice = SliceWork { buckets, bytes: GarbageSearch::BYTES_MAX };
    }

    /// Returns what a tick has to do, and when: a pass not before that time.
    fn next_work(&self, now: Now, not_before_us: u64) -> Option<(SweepWork, u64)> {
        if !self.calls.is_empty() {
            return Some((SweepWork::Call, now.steady_us.saturating_add(Sweeps::RETRY_US)));
        }
        let work = if self.is_unknown { SweepWork::Unknown } else { SweepWork::Pass };
        let due_us = if self.pass.is_some() { 0 } else { self.next_pass_us(now) };
        (due_us < u64::MAX).then_some((work, due_us.max(not_before_us)))
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
    /// Work of ticks, each kind in the order of its times.
    due: BTreeSet<(SweepWork, u64, SegmentId)>,
    /// The earliest of these times.
    due_us: u64,
    /// Time between two passes.
    pub(crate) pause_us: u64,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { maps: BTreeMap::new(), due: BTreeSet::new(), due_us: u64::MAX, pause_us: SWEEP_PAUSE_US }
    }
}

impl Sweeps {
    /// Time until a tick tries the next slice again, of a call or of a pass without memory for its change.
    pub(crate) const RETRY_US: u64 = 1000;
    /// Time until a tick tries a pass again that has to wait, as for a lock.
    const BLOCKED_US: u64 = 100_000;

    /// Records that an entry of a map expires at that time, or of any map that it may.
    pub(crate) fn note_expiry(&mut self, now: Now, id: SegmentId, expiry_ms: u64) {
        let sweep = self.entry(now, id);
        sweep.note(expiry_ms);
        let (next, due) = (sweep.next_work(now, 0), sweep.due);
        if sweep.calls.is_empty() && sweep.pass.is_none() && due.is_none_or(|due| next.is_some_and(|next| next < due)) {
            self.set_due(id, next);
        }
    }

    /// Records a table of which the home does not know whether it is a map, and when its entries expire.
    pub(crate) fn note_unknown(&mut self, now: Now, id: SegmentId) {
        if !self.maps.contains_key(&id) {
            self.entry(now, id).is_unknown = true;
        }
        self.note_expiry(now, id, 1);
    }

    /// Adds a call; `false` if there are too many.
    pub(crate) fn add(&mut self, now: Now, id: SegmentId, call: SweepCall) -> bool {
        let sweep = self.entry(now, id);
        let has_room = sweep.calls.len() < WAITERS_PER_SEGMENT_MAX;
        if has_room {
            sweep.calls.push_back(call);
            self.schedule(now, id, 0);
        }
        has_room
    }

    fn entry(&mut self, now: Now, id: SegmentId) -> &mut MapSweep {
        let pause_until_us = now.steady_us.saturating_add(self.pause_us);
        self.maps.entry(id).or_insert_with(|| MapSweep::new(pause_until_us))
    }

    pub(crate) fn get(&mut self, id: SegmentId) -> Option<&mut MapSweep> {
        self.maps.get_mut(&id)
    }

    /// Decides when a tick looks at a map again: for a pass not before that time. Forgets a map that has nothing to do any
    /// more.
    pub(crate) fn schedule(&mut self, now: Now, id: SegmentId, not_before_us: u64) {
        let Some(sweep) = self.maps.get(&id) else { return };
        let (next, has_slice) = (sweep.next_work(now, not_before_us), sweep.has_slice);
        self.set_due(id, next);
        // A slice that was asked for comes: another one is asked for after it.
        if next.is_none() && !has_slice {
            self.maps.remove(&id);
        }
    }

    fn set_due(&mut self, id: SegmentId, next: Option<(SweepWork, u64)>) {
        let Some(sweep) = self.maps.get_mut(&id) else { return };
        let before = std::mem::replace(&mut sweep.due, next);
        if before == next {
            return;
        }
        if let Some((work, due_us)) = before {
            self.due.remove(&(work, due_us, id));
        }
        self.due.extend(next.map(|(work, due_us)| (work, due_us, id)));
        let first = |work| self.due.range((work, 0, SegmentId::from_bits(0))..).next();
        let firsts = SweepWork::ALL.into_iter().filter_map(first);
        self.due_us = firsts.map(|&(_, due_us, _)| due_us).min().unwrap_or(u64::MAX);
    }

    /// Ends all work on a map; returns the calls that have not ended.
    pub(crate) fn remove(&mut self, id: SegmentId) -> VecDeque<SweepCall> {
        let Some(sweep) = self.maps.get_mut(&id) else { return VecDeque::new() };
        let ended = MapSweep { has_slice: sweep.has_slice, due: sweep.due, ..MapSweep::new(0) };
        let removed = std::mem::replace(sweep, ended);
        self.schedule(Now::default(), id, 0);
        removed.calls
    }

    /// Ends all work on all maps; returns the calls that have not ended.
    pub(crate) fn remove_all(&mut self) -> impl Iterator<Item = SweepCall> + use<> {
        let pause_us = self.pause_us;
        let removed = std::mem::replace(self, Self { pause_us, ..Self::default() });
        removed.maps.into_values().flat_map(|sweep| sweep.calls)
    }

    /// Removes the calls of a client or a peer that is gone.
    pub(crate) fn remove_owner(&mut self, now: Now, owner: LockOwner) {
        let called = self.due.range(..(SweepWork::Unknown, 0, SegmentId::from_bits(0)));
        for id in called.map(|&(.., id)| id).collect::<Vec<_>>() {
            if let Some(sweep) = self.maps.get_mut(&id) {
                sweep.calls.retain(|call| call.requester.owner() != owner);
                if sweep.calls.is_empty() {
                    self.schedule(now, id, 0);
                }
            }
        }
    }

    /// Returns when the home has work here, on the steady clock.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Returns the maps with work now, some of each kind, those that wait longest first. All come again.
    pub(crate) fn visit(&mut self, now: Now) -> Vec<(SweepWork, SegmentId)> {
        let mut visited = Vec::new();
        if now.steady_us < self.due_us {
            return visited;
        }
        for work in SweepWork::ALL {
            let first = (work, 0, SegmentId::from_bits(0));
            let due = self.due.range(first..).take_while(|&&(of, due_us, _)| of == work && due_us <= now.steady_us);
            visited.extend(due.take(work.visited_max()).map(|&(_, _, id)| (work, id)));
        }
        for &(_, id) in &visited {
            self.schedule(now, id, now.steady_us.saturating_add(Self::BLOCKED_US));
        }
        visited
    }
}
