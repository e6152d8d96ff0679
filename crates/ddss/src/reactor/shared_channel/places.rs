//! Places on the shared channel, with the arena memory of their calls.

use crate::plan::priority::Priority;
use crate::reactor::backpressure::{ChannelPlace, Places};
use crate::reactor::shared_channel::SharedChannel;
use ddss_core::{LockToken, Operation, Request, RequestId, SegmentId};
use ddss_ipc::lock_free::CallId;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Places for SharedChannel {
    #[inline]
    fn take_place(&self, priority: Priority, bytes: usize) -> Option<ChannelPlace> {
        let id = match priority {
            Priority::Call => self.calls.begin(),
            Priority::Wait => self.begin_wait(),
            Priority::Holder => self.calls.begin_urgent(),
        }?;
        if bytes == 0 {
            return Some((id, None));
        }
        let run = self.runs.try_take(bytes);
        if run.is_none() {
            self.give_place((id, None));
        }
        Some((id, Some(run?)))
    }

    #[inline]
    fn give_place(&self, (id, run): ChannelPlace) {
        let note = self.note(id);
        for (is_counted, count) in [(&note.waits, &self.wait_count), (&note.parks, &self.parking_count)] {
            if is_counted.load(Ordering::Relaxed) {
                is_counted.store(false, Ordering::Relaxed);
                count.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.calls.free(id);
        if let Some(run) = run {
            self.runs.release(run);
        }
    }

    fn begin_release(&self, segment: SegmentId, token: LockToken) -> Option<CallId> {
        let id = self.calls.begin_urgent()?;
        let note = self.note(id);
        note.set_run(None);
        note.lock.store(0, Ordering::Relaxed);
        note.segment.store(0, Ordering::Relaxed);
        note.began_ns.store(self.since_begin_ns(Instant::now()), Ordering::Relaxed);
        let request = Request::new(RequestId(id.to_bits()), Operation::Unlock { segment, token });
        self.calls.submit(id, &request.encode(), false);
        Some(id)
    }

    fn send(&self, places: u64) {
        self.run_combined(places);
    }
}
