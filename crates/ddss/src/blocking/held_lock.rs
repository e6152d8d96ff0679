//! A lock that a thread holds, and its release.

use super::Segment;
use crate::call::channels::Call;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lease::held_lease::{HeldLease, is_owed};
use crate::plan::priority::Priority;
use crate::plan::{Decoder, PlannedCall};
use crate::value::Stamp;
use ddss_core::{LockToken, Operation};
use std::time::{Duration, Instant};

/// A lock that is held. Dropping it releases the lock.
pub(crate) struct HeldLock {
    /// Its calls are made under the lock.
    pub(crate) segment: Segment,
    pub(crate) token: LockToken,
    pub(crate) stamp: Stamp,
    pub(crate) lease: HeldLease,
    open: bool,
}

impl Segment {
    pub(crate) fn take_lock(
        &self,
        time: Deadline,
        (lease, asked): (Duration, Instant),
        call: PlannedCall<'_, impl Decoder<(LockToken, Stamp)>>,
    ) -> Result<HeldLock, Error> {
        let (token, stamp) = self.client().run_wait(time, call)?;
        let lease = HeldLease::granted(lease, asked);
        Ok(HeldLock { segment: self.under(token), token, stamp, lease, open: true })
    }
}

impl HeldLock {
    pub(crate) fn keep_lease(&mut self, asked: Instant) -> Result<(), Error> {
        let client = self.segment.client();
        self.lease.keep(client.keeper(), &client.inner, self.segment.location(), self.token, asked)
    }

    pub(crate) fn release(&mut self) -> Result<(), Error> {
        /// Minimum time of an unlock. Other clients wait for the lock, so the unlock goes out even if its holder has no
        /// time left.
        const UNLOCK_TIME_MIN: Duration = Duration::from_millis(1);
        self.lease.stop();
        let (client, mut time) =
            (self.segment.client(), Deadline::of(self.segment.time().remaining().max(UNLOCK_TIME_MIN)));
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        let mut call = self.segment.location().plan("unlock", operation).returns(|_, _| ());
        let last = client.inner.last_session();
        let ended = if last.attachment.is_draining() {
            // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
            // does not know it.
            let execute = |on: Call<'_>| on.execute(&call.plan, None::<fn()>, &mut call.decode);
            let ended = last.channels.call(Priority::Holder, &mut time).and_then(execute);
            client.conclude(ended, call.plan.action, call.plan.target)
        } else {
            client.execute(time, call)
        };
        self.open = is_owed(&ended);
        ended
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.open {
            // Drop cannot report an error; the lease ends the lock in any case.
            let _ = self.release();
        }
    }
}
