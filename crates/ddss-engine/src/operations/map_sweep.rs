//! Sweeps of maps: the home frees expired entries, entries that were never linked, and links without an entry.
//!
//! The daemon looks through buckets ([`Action::FindGarbage`]), until one of them has something to free. What is freed is a
//! change of that bucket like others: it gets a version, goes to the replica, and its watchers learn of it. The slice goes on
//! after the change, until it has done its work.
//! A replica does not sweep by itself, since both sides have to free the same entries in the same versions.
//!
//! A sweep waits while the table is locked, and passes over rows that are. Of a map that changes all the time, a slice is
//! due after a change, before the operations that wait.
//!
//! A home whose wall clock is far ahead of its peers' clocks frees nothing by itself: entries that live would go.

use crate::action::{Action, CommitSource, GarbageSearch, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::operations::handler::Operations;
use crate::requester::{Caller, ReplyFields};
use crate::state::replication::RowCommit;
use crate::state::segments::sweeps::{Buckets, SliceWork, SweepCall, SweepWork, Sweeps, WarnedOwner};
use ddss_core::{
    Access, BucketGarbage, Failure, Limit, Outcome, Range, Ranges, SegmentId, SlotWord, TableLayout, Version,
};

/// Why a bucket cannot be changed now.
enum Delay {
    /// Another operation goes first.
    Wait,
    /// Its row is locked, or changes all the time: a later sweep frees it.
    Pass,
}

impl Operations<'_> {
    /// Sweeps some buckets of a map for a client.
    pub(crate) fn sweep(
        &mut self,
        now: Now,
        caller: &Caller,
        id: SegmentId,
        (first, buckets): (u64, u64),
    ) -> Result<(), Failure> {
        self.segments.check_home(now, self.replicas, id)?;
        let segment = self.segments.get(id)?;
        let allowed = segment.permissions.allow(caller.principal, Access::Write);
        allowed.map_err(|failure| self.segments.mask_denial_in_doubt(id, failure))?;
        let layout = segment.spec.layout().ok_or(Failure::Unsupported)?;
        if segment.lock_queue.is_held_by(caller.requester.owner(), None) {
            return Err(Failure::OwnLock);
        }
        // Row 0 describes the map.
        let end = first.saturating_add(buckets).min(layout.rows(segment.spec.bytes).saturating_sub(1));
        let buckets = Buckets { first: first.min(end), end };
        let call = SweepCall { requester: caller.requester, deadline_us: caller.deadline_us, buckets, freed: 0 };
        if !self.segments.sweeps.add(now, id, call) {
            return Err(Failure::Busy(Limit::Waiters));
        }
        self.request_slice(id);
        Ok(())
    }

    /// Asks the daemon for the time of the next slice of a call.
    pub(crate) fn request_slice(&mut self, id: SegmentId) {
        if let Some(sweep) = self.segments.sweeps.get(id)
            && !sweep.calls.is_empty()
            && !std::mem::replace(&mut sweep.has_slice, true)
        {
            self.output.push(Action::ContinueSweep { segment: id });
        }
    }

    /// Does a slice of a pass that is due. For a call the daemon decides when there is time.
    pub(crate) fn tick_sweeps(&mut self, now: Now) {
        for (work, id) in self.segments.sweeps.visit(now) {
            if let SweepWork::Call = work {
                self.end_late_sweeps(now, id);
                self.request_slice(id);
            } else {
                self.continue_sweep(now, id);
            }
        }
    }

    /// Does a slice that is due before the operations that wait: those may never end.
    pub(crate) fn give_sweep_turn(&mut self, now: Now, id: SegmentId) {
        if self.segments.sweeps.get(id).is_some_and(|sweep| sweep.take_turn(now)) {
            self.continue_sweep(now, id);
        }
    }

    /// Does the slice of a call.
    pub(crate) fn sweep_slice(&mut self, now: Now, id: SegmentId) {
        if let Some(sweep) = self.segments.sweeps.get(id) {
            sweep.has_slice = false;
            match sweep.calls.is_empty() {
                true => self.segments.sweeps.schedule(now, id, 0),
                false => self.continue_sweep(now, id),
            }
        }
    }

    /// Begins a slice.
    fn continue_sweep(&mut self, now: Now, id: SegmentId) {
        self.search_map(now, id, true);
    }

    /// Continues after a change, until the slice has done its work.
    pub(crate) fn continue_slice(&mut self, now: Now, id: SegmentId) {
        let sweep = self.segments.sweeps.get(id);
        match sweep.is_some_and(|sweep| !sweep.slice.is_done() && sweep.buckets().is_some()) {
            true => self.search_map(now, id, false),
            false => self.request_slice(id),
        }
    }

    fn search_map(&mut self, now: Now, id: SegmentId, is_new_slice: bool) {
        self.end_late_sweeps(now, id);
        let Ok(segment) = self.segments.get(id) else { return self.sweep_calls().fail(id, Failure::NotFound) };
        if segment.is_replica() {
            return self.sweep_calls().fail(id, Failure::NodeDown);
        }
        self.segments.update_lock_gate(now, self.replicas, id);
        let Ok(segment) = self.segments.get(id) else { return };
        let (at, spec, is_free) = (segment.at, segment.spec, segment.lock_queue.admits_sweep());
        let Some(layout) = spec.layout().filter(|_| is_free) else { return };
        let rows = layout.rows(spec.bytes);
        let Some(sweep) = self.segments.sweeps.get(id) else { return };
        if sweep.calls.is_empty() && self.peers.is_clock_ahead(now) {
            return;
        }
        sweep.begin_pass(now, rows.saturating_sub(1));
        let Some(&mut Buckets { first, end }) = sweep.buckets() else {
            return self.segments.sweeps.schedule(now, id, 0);
        };
        if is_new_slice {
            sweep.begin_slice(now);
        }
        let SliceWork { buckets, bytes: bytes_max } = sweep.slice;
        let first = first.max(end.saturating_sub(buckets));
        if let Ok(segment) = self.segments.get_mut(id) {
            // No operation comes between the search and the change.
            segment.lock_queue.begin_word_read();
        }
        self.output.push(Action::FindGarbage { segment: id, at, layout, rows, first, end, bytes_max });
    }

    /// Ends the calls whose deadline has passed.
    fn end_late_sweeps(&mut self, now: Now, id: SegmentId) {
        self.sweep_calls().end(now, id, |call| call.deadline_us <= now.steady_us);
    }

    /// Continues with what the daemon found in the buckets from the last one down; `None` if the table is no map.
    pub(crate) fn garbage_found(&mut self, now: Now, id: SegmentId, search: Option<&GarbageSearch>) {
        if let Ok(segment) = self.segments.get_mut(id) {
            segment.lock_queue.end_word_read();
        }
        let later = self.output.set_aside();
        let has_to_wait = match search {
            Some(search) => self.use_search(now, id, search),
            None => {
                self.sweep_calls().fail(id, Failure::Unsupported);
                false
            }
        };
        if let Some(later) = later {
            self.output.put_back(later);
        }
        self.serve_lock_queue(now, id);
        if !has_to_wait {
            self.continue_slice(now, id);
        }
    }

    /// Returns true if another operation goes first.
    fn use_search(&mut self, now: Now, id: SegmentId, search: &GarbageSearch) -> bool {
        let Some(sweep) = self.segments.sweeps.get(id) else { return false };
        sweep.note(search.expiry_ms);
        sweep.is_unknown = false;
        sweep.slice.count(search.begin - search.end, search.bytes);
        // Else another call came between.
        let mut has_to_wait = false;
        if let Some(buckets) = sweep.buckets().filter(|buckets| buckets.end == search.begin) {
            buckets.end = search.end;
            has_to_wait = search.garbage.is_found() && matches!(self.free_garbage(now, id, search), Err(Delay::Wait));
            self.end_sweep(now, id);
        }
        let rest_us = if has_to_wait { Sweeps::RETRY_US } else { 0 };
        self.segments.sweeps.schedule(now, id, now.steady_us.saturating_add(rest_us));
        has_to_wait
    }

    /// Answers a call that has looked through all its buckets, or ends the pass.
    fn end_sweep(&mut self, now: Now, id: SegmentId) {
        let pause_until_us = now.steady_us.saturating_add(self.segments.sweeps.pause_us);
        let Some(sweep) = self.segments.sweeps.get(id) else { return };
        if sweep.buckets().is_none_or(|buckets| buckets.end > buckets.first) {
            return;
        }
        match sweep.calls.pop_front() {
            Some(call) => {
                let fields = ReplyFields { word: call.freed, ..ReplyFields::default() };
                self.output.answer(call.requester, Outcome::Done, fields);
            }
            None => sweep.end_pass(pause_until_us),
        }
    }

    /// Frees what was found in one bucket, unless another operation goes first. The bucket is looked at again after it.
    fn free_garbage(&mut self, now: Now, id: SegmentId, search: &GarbageSearch) -> Result<(), Delay> {
        let &GarbageSearch { end: bucket, state, owner_state, ref garbage, .. } = search;
        let Some(sweep) = self.segments.sweeps.get(id) else { return Ok(()) };
        let warned = sweep.warned.take();
        if let Some(buckets) = sweep.buckets() {
            buckets.end = bucket + 1;
        }
        let freed = match &garbage.orphans {
            _ if !garbage.ranges.is_empty() => {
                self.clear_ranges(now, id, (bucket, state), &garbage.ranges).map(|()| garbage.entries.into())
            }
            Some(orphans) => {
                let warning = WarnedOwner { bucket, owner: orphans.owner, state };
                match warned {
                    Some(warned) if warned == warning => {
                        let cleared = self.clear_ranges(now, id, (bucket, state), &orphans.ranges);
                        cleared.map(|()| orphans.ranges.len() as u64)
                    }
                    // The bucket has changed meanwhile.
                    Some(warned) if warned.bucket == bucket => Err(Delay::Pass),
                    _ => self.warn_owner(now, id, (orphans.owner, owner_state), warning).map(|()| 0),
                }
            }
            None => Ok(0),
        };
        let Some(sweep) = self.segments.sweeps.get(id) else { return Ok(()) };
        match freed {
            Ok(freed) => {
                if let Some(call) = sweep.calls.front_mut() {
                    call.freed += freed;
                }
            }
            Err(Delay::Wait) => {}
            Err(Delay::Pass) => {
                // The next pass finds it again.
                sweep.note(1);
                if let Some(buckets) = sweep.buckets() {
                    buckets.end = bucket;
                }
            }
        }
        freed.map(drop)
    }

    /// Clears ranges of a bucket.
    fn clear_ranges(&mut self, now: Now, id: SegmentId, bucket: (u64, u64), ranges: &[Range]) -> Result<(), Delay> {
        let (layout, commit) = self.place_of_bucket(id, bucket)?;
        let (row, _) = layout.bounds(commit.row);
        let bytes = ranges.iter().map(|range| range.bytes).sum();
        let ranges = ranges.iter().map(|range| Range { offset: row + range.offset, ..*range });
        let ranges = Ranges::new(ranges).map_err(|_| Delay::Pass)?;
        let zeros = [0; BucketGarbage::RANGES_MAX * SlotWord::BYTES];
        let buffer = self.output.store(&zeros[..bytes as usize]);
        let parts = self.output.store_table(&ranges.encode(), bytes);
        self.change_bucket(now, id, commit, (parts, CommitSource::Buffer(buffer))).inspect_err(|_| {
            self.output.drop_buffer(&buffer);
            self.output.free_table(&parts);
        })
    }

    /// Changes the counter of a bucket, so that a client which is about to write a link into it fails.
    fn warn_owner(&mut self, now: Now, id: SegmentId, owner: (u64, u64), warning: WarnedOwner) -> Result<(), Delay> {
        let (layout, commit) = self.place_of_bucket(id, owner)?;
        let parts = RangeSet::One { offset: layout.bounds(commit.row).0, bytes: 8 };
        self.change_bucket(now, id, commit, (parts, CommitSource::Word(commit.version.0)))?;
        if let Some(sweep) = self.segments.sweeps.get(id) {
            sweep.warned = Some(warning);
        }
        Ok(())
    }

    /// Returns the commit of a bucket's next version, by its number and state word.
    fn place_of_bucket(&self, id: SegmentId, (bucket, state): (u64, u64)) -> Result<(TableLayout, RowCommit), Delay> {
        let segment = self.segments.get(id).map_err(|_| Delay::Wait)?;
        let layout = segment.spec.layout().ok_or(Delay::Pass)?;
        let row = bucket + 1;
        if state & 1 != 0 || segment.lock_queue.has_row_lock(row) {
            return Err(Delay::Pass);
        }
        let (place, version) = (layout.record(row).of_segment(segment.at), Version((state >> 1) + 1));
        Ok((layout, RowCommit { row, place, version }))
    }

    fn change_bucket(
        &mut self,
        now: Now,
        id: SegmentId,
        commit: RowCommit,
        change: (RangeSet, CommitSource),
    ) -> Result<(), Delay> {
        let segment = self.segments.get(id).map_err(|_| Delay::Wait)?;
        if !segment.lock_queue.admits_sweep() {
            return Err(Delay::Wait);
        }
        let is_forwarded = segment.replication.is_some() && !planted!(self.segments, UnforwardedSweep);
        let deadline_us = is_forwarded.then_some(u64::MAX);
        // The replica's staging memory or the pool may be full.
        self.commit_row(now, id, commit, change, None, deadline_us).map_err(|_| Delay::Wait)
    }
}
