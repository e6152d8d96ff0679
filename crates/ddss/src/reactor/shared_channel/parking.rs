//! Waits on the shared channel: which keep their places, and how those that are parked come to their completions.

use super::{ARM, CANCEL, COLLECT_ID, COLLECTS_MAX, SharedChannel, WAITS_MAX, Work};
use crate::call::arena::ArenaRun;
use crate::call::channels::NoCompletion;
use crate::reactor::shared_channel::parked_calls::ParkedStatus;
use ddss_core::{Completion, Operation, Request, SegmentId};
use ddss_ipc::lock_free::CallId;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

impl SharedChannel {
    /// Takes a place for a call that waits for an event: to keep if few do so, else until it is parked.
    pub(super) fn begin_wait(&self) -> Option<CallId> {
        let count = |count: &AtomicU32| {
            let more = |count: u32| (count < WAITS_MAX).then_some(count + 1);
            count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
        };
        let is_resident = count(&self.wait_count);
        if !is_resident && !count(&self.parking_count) {
            return None;
        }
        let id = self.calls.begin();
        match id {
            Some(id) if is_resident => self.note(id).waits.store(true, Ordering::Relaxed),
            Some(id) => self.note(id).parks.store(true, Ordering::Relaxed),
            None => _ = if is_resident { &self.wait_count } else { &self.parking_count }.fetch_sub(1, Ordering::AcqRel),
        }
        id
    }

    /// Takes the completion of a parked wait if it has arrived; otherwise registers the waker.
    pub(crate) fn take_parked<T>(
        &self,
        id: CallId,
        waker: &Waker,
        read: impl FnOnce(&Completion, Option<ArenaRun>) -> T,
    ) -> Option<Result<T, NoCompletion>> {
        self.run_combined(0);
        let mut status = self.parked.poll(id.to_bits(), waker);
        if status == ParkedStatus::Waiting && !self.is_gone() {
            self.run_combined(ARM);
            status = self.parked.poll(id.to_bits(), waker);
        }
        match status {
            ParkedStatus::Ended(entry) => Some(Ok(read(&Completion::decode(&entry), None))),
            _ if self.is_gone() => {
                self.parked.abandon(id.to_bits());
                Some(Err(NoCompletion::Gone))
            }
            ParkedStatus::Waiting => None,
            ParkedStatus::Late => {
                self.run_combined(CANCEL);
                Some(Err(NoCompletion::Late { harmless: true }))
            }
        }
    }

    /// Abandons a parked wait whose future was dropped.
    pub(crate) fn abandon_parked(&self, id: CallId) {
        match self.parked.abandon(id.to_bits()) {
            Some((segment, token)) => _ = self.release_lock(segment, token),
            None => self.run_combined(CANCEL | ARM),
        }
    }

    /// Records a wait that the daemon has parked, before its task learns of it.
    #[cold]
    pub(super) fn record_parked(&self, id: CallId) {
        let Some(note) = self.records.get(id.index()) else { return };
        let segment = SegmentId::from_bits(note.segment.load(Ordering::Relaxed));
        let deadline = self.created + Duration::from_nanos(note.deadline_ns.load(Ordering::Relaxed));
        self.parked.insert(id.to_bits(), deadline, segment, note.lock().is_some());
    }

    /// Offers the daemon places for the completions of parked waits.
    #[inline]
    pub(super) fn offer_places(&self, work: &mut Work) {
        let wanted = self.parked.owed().min(COLLECTS_MAX);
        if work.collects >= wanted {
            return;
        }
        while work.collects < wanted {
            let collect = Request::new(COLLECT_ID, Operation::Collect);
            work.channel.submit(collect.encode()).expect("there are not more of them than the channel has");
            work.collects += 1;
        }
        work.channel.ring_doorbell();
    }
}
