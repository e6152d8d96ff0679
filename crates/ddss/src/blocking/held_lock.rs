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
        let client = self.client();
        let ended = client.run_wait(time, call);
        let (token, stamp) = ended.inspect_err(|_| client.release_late_locks())?;
        let lease = HeldLease::since(asked, lease);
        Ok(HeldLock { segment: self.under(token), token, stamp, lease, open: true })
    }
}

impl HeldLock {
    pub(crate) fn keep_lease(&mut self) -> Result<(), Error> {
        let client = self.segment.client();
        self.lease.keep(&client.keeper()?, &client.inner, self.segment.location(), self.token)
    }

    pub(crate) fn release(&mut self) -> Result<(), Error> {
        self.release_within(self.segment.time().remaining())
    }

    fn release_within(&mut self, time: Duration) -> Result<(), Error> {
        /// Minimum time of an unlock. Other clients wait for the lock, so the unlock goes out even if its holder has no
        /// time left.
        const UNLOCK_TIME_MIN: Duration = Duration::from_millis(1);
        self.lease.stop();
        let (client, mut time) = (self.segment.client(), Deadline::of(time.max(UNLOCK_TIME_MIN)));
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        let mut call = self.segment.location().plan("unlock", operation).returns(|_, _| ());
        let last = client.inner.last_session();
        let ended = if last.attachment.is_draining() {
            // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
            // does not know it.
            let execute = |on: Call<'_>| on.execute(&call.plan, &mut None::<fn()>, &mut call.decode);
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
        /// Maximum time of an unlock for which no caller asked. The lease ends the lock in any case.
        const DROP_MAX: Duration = Duration::from_secs(1);
        if self.open {
            let left = self.lease.current().left().min(DROP_MAX);
            // Drop cannot report an error.
            let _ = self.release_within(self.segment.time().remaining().min(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Spec;
    use crate::plan::priority::Priority;
    use crate::testing::TestNode;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn dropped_guard_does_not_wait_as_long_as_a_call_of_its_handle() {
        // If this broke, a thread would stand in `drop` for the ten minutes for which it was ready to wait for the lock.
        let node = TestNode::start();
        let client = node.one_channel_client();
        client.segment("locked").allocate(Spec::new(64)).unwrap();
        let patient = client.with_timeout(Duration::from_secs(600));
        let guard = patient.segment("locked").open().unwrap().lock().unwrap();
        // No channel is left, as if their calls waited for a home that hangs.
        let session = client.inner.last_session();
        let mut times = [client.time(); 2];
        let taken = times.each_mut().map(|time| session.channels.call(Priority::Holder, time).unwrap());
        let (ended, end) = channel();
        std::thread::spawn(move || {
            drop(guard);
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(60)).expect("the drop ends");
        drop(taken);
        client.ping().unwrap();
    }
}
