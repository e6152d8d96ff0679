//! A lock that a task holds, and its release.

use super::Segment;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lease::held_lease::{HeldLease, is_owed};
use crate::plan::{Decoder, PlannedCall};
use crate::reactor::reactor::Reactor;
use crate::value::Stamp;
use ddss_core::{LockToken, Operation};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A lock that is held. Dropping it releases the lock.
pub(crate) struct HeldLock {
    /// Its calls are made under the lock.
    pub(crate) segment: Segment,
    pub(crate) token: LockToken,
    pub(crate) stamp: Stamp,
    pub(crate) lease: HeldLease,
    /// Reactor of the channel on which the lock was granted.
    reactor: Arc<Reactor>,
    open: bool,
}

impl Segment {
    pub(crate) async fn take_lock(
        &self,
        time: Deadline,
        (lease, asked): (Duration, Instant),
        call: PlannedCall<'_, impl Decoder<(LockToken, Stamp)>>,
    ) -> Result<HeldLock, Error> {
        let ((token, stamp), reactor) = self.client().run_gathered(time, call, None).await?;
        let lease = HeldLease::since(asked, lease);
        Ok(HeldLock { segment: self.under(token), token, stamp, lease, reactor, open: true })
    }
}

impl HeldLock {
    /// Has the client's keeper renew the lease. Its thread makes blocking calls, so that a runtime that is busy loses no
    /// lock.
    pub(crate) fn keep_lease(&mut self) -> Result<(), Error> {
        let client = self.segment.client().blocking();
        self.lease.keep(&client.keeper()?, &client.inner, self.segment.location(), self.token)
    }

    pub(crate) async fn release(&mut self) -> Result<(), Error> {
        self.lease.stop();
        let (client, time) = (self.segment.client(), self.segment.time());
        let operation = Operation::Unlock { segment: self.segment.id(), token: self.token };
        let call = self.segment.location().plan("unlock", operation).returns(|_, _| ());
        // A daemon that is shutting down still takes an unlock: other clients wait for the lock, and the next daemon
        // does not know it.
        let ended = if self.reactor.session.attachment.is_draining() {
            client.run_on(&self.reactor, time, call.plan).await
        } else {
            client.execute(time, call).await
        };
        self.open = is_owed(&ended);
        ended
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.open {
            // Drop cannot report an error; the lease ends the lock in any case.
            self.reactor.release_lock(self.segment.id(), self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on, poll_once};
    use crate::{ErrorKind, LockOptions, Spec};
    use std::task::Poll;
    use std::time::Duration;

    #[test]
    fn async_lock_is_released_however_the_task_ends() {
        // If this broke, a cancelled task would leave a lock without a holder until its lease ends.
        let node = TestNode::start();
        let (mine, theirs) = (node.client().aio().unwrap(), node.client().aio().unwrap());
        let segment = block_on(mine.segment("locked").allocate(Spec::new(64))).unwrap();
        let other = block_on(theirs.segment("locked").open()).unwrap();
        let at_once = LockOptions::new().timeout(Duration::ZERO);
        let free = || block_on(other.lock_with(at_once)).map(|held| block_on(held.unlock()).unwrap());
        let held = block_on(segment.lock()).unwrap();
        block_on(held.put(0, b"mine")).unwrap();
        block_on(held.put_many(&[(8, b"a"), (20, b"b")])).unwrap();
        assert_eq!(block_on(held.word(32).fetch_add(5)).unwrap().before, 0);
        assert_eq!(block_on(held.get(0..4)).unwrap()[..], *b"mine");
        assert_eq!(free().unwrap_err().kind(), ErrorKind::Locked);
        block_on(held.unlock()).unwrap();
        free().unwrap();
        // A guard that is only dropped.
        drop(block_on(segment.lock()).unwrap());
        while free().is_err() {}
        // Futures dropped while the request is in transit, while it waits, and with the grant unseen.
        for turn in 0..60 {
            let blocker = (turn % 3 == 1).then(|| block_on(other.lock()).unwrap());
            let mut waits = Box::pin(segment.lock());
            let _ = poll_once(&mut waits);
            if turn % 3 == 2 {
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(waits);
            drop(blocker);
            // A lock that was granted to a dropped future is released although no further call is made.
            while free().is_err() {}
        }
        let late = block_on(segment.lock_with(LockOptions::new().lease(Duration::from_secs(1)))).unwrap();
        while free().is_err() {}
        assert_eq!(block_on(late.put(0, b"late")).unwrap_err().kind(), ErrorKind::LockLost);
    }

    #[test]
    fn lock_that_its_task_sees_late_is_renewed_first() {
        // If this broke, a task would count on a lease that its home has ended: the home grants before the task runs again.
        const LEASE: Duration = Duration::from_secs(8);
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        let segment = block_on(client.segment("locked").allocate(Spec::new(64))).unwrap();
        let held = loop {
            let mut asked = Box::pin(segment.lock_with(LockOptions::new().lease(LEASE)));
            match poll_once(&mut asked) {
                Poll::Ready(soon) => assert_eq!(soon.unwrap().lock.lease.current().renewals(), 0),
                Poll::Pending => {
                    std::thread::sleep(LEASE / 3);
                    break block_on(asked).unwrap();
                }
            }
        };
        assert_eq!(held.lock.lease.current().renewals(), 1);
        assert!(held.lease_left() <= LEASE);
        block_on(held.put(0, b"mine")).unwrap();
    }
}
