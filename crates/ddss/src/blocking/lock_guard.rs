//! The guard of a lock that a thread holds, and its release.

use super::Segment;
use crate::call::channels::Call;
use crate::call::priority::Priority;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lease::held_lease::HeldLease;
use crate::plan::{Decoder, PlannedCall};
use crate::value::Stamp;
use ddss_core::{LockToken, Operation};
use std::time::{Duration, Instant};

/// A segment's lock. Dropping the guard releases it, as does the death of its process or node.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let account = client.segment("account").allocate(64)?;
/// let held = account.lock()?;
/// let balance = held.get(0..8)?;
/// held.put(0, &balance)?;
/// held.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LockGuard {
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
    ) -> Result<LockGuard, Error> {
        let (token, stamp) = self.client().run_wait(time, call)?;
        let lease = HeldLease::granted(lease, asked);
        Ok(LockGuard { segment: self.clone(), token, stamp, lease, open: true })
    }
}

impl LockGuard {
    pub(crate) fn keep_lease(&mut self, asked: Instant) -> Result<(), Error> {
        self.lease.keep(self.segment.client(), self.segment.location(), self.token, asked)
    }

    pub(crate) fn release(&mut self) -> Result<(), Error> {
        /// Minimum time of an unlock. Other clients wait for the lock, so the unlock goes out even if its holder has no
        /// time left.
        const UNLOCK_TIME_MIN: Duration = Duration::from_millis(1);
        self.open = false;
        self.lease.stop();
        let (client, mut time) =
            (self.segment.client(), Deadline::of(self.segment.time().remaining().max(UNLOCK_TIME_MIN)));
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        let mut call = self.segment.location().plan("unlock", operation).returns(|_, _| ());
        let last = client.0.last_session();
        if !last.attachment.is_draining() {
            return client.run(time, call);
        }
        // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
        // does not know it.
        let execute = |on: Call<'_>| on.execute(&call.plan, None::<fn()>, &mut call.decode);
        let ended = last.channels.call(Priority::Holder, &mut time).and_then(execute);
        client.conclude(ended, call.plan.action, call.plan.target)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.open {
            // Drop cannot report an error; the lease ends the lock in any case.
            let _ = self.release();
        }
    }
}
