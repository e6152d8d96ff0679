//! Forced release of a lock whose holder is still alive.

use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::first_word;
use ddss_core::Operation;

calls! {
    impl Segment, AsyncSegment {
        /// Takes the segment's lock away from all holders, exclusive or shared, and returns their number.
        ///
        /// Only the segment's owner and root may do so. The lock queue's next request is granted. Holders are not
        /// notified: their later puts under the lock fail with [`Failure::LockLost`](crate::Failure::LockLost), as
        /// after the end of the lease.
        ///
        /// Intended for an administrator who knows that the holder is stuck. The lock of a dead holder ends by itself.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let door = client.allocate("door", ddss::Spec::new(8))?;
        /// # let _held = door.lock()?;
        /// if let Some(holder) = door.stat()?.holder {
        ///     println!("taking it from a client of {}", holder.node);
        ///     assert_eq!(door.break_lock()?, 1);
        /// }
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn break_lock(&self) -> Result<u64, Error> {
            wait!(self.run_operation("break the lock of", Operation::Break { segment: self.id() }, first_word))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestNode;
    use crate::{Failure, LockOptions, Spec};
    use std::time::Duration;

    #[test]
    fn break_lock_grants_next_request_and_refuses_old_holder() {
        // If this broke, a service that hangs with a lock would stop all others until its lease ends, or continue
        // writing.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let segment = mine.allocate("door", Spec::new(8)).unwrap();
        assert_eq!(segment.stat().unwrap().holder, None);
        let lease = Duration::from_secs(500);
        let held = segment.lock_with(LockOptions::new().lease(lease)).unwrap();
        let holder = segment.stat().unwrap().holder.unwrap();
        assert_eq!((holder.node, holder.client.is_some()), (mine.node(), true));
        assert!(Duration::from_micros(holder.lease_left_us.into()) > lease / 2);
        let other = theirs.open("door").unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| other.lock().unwrap().token());
            while segment.stat().unwrap().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(segment.break_lock().unwrap(), 1);
            assert!(next.join().unwrap() > held.token());
        });
        assert_eq!(held.put(0, b"late").unwrap_err().failure(), Some(Failure::LockLost));
        while segment.stat().unwrap().holder.is_some() {
            std::thread::yield_now();
        }
        assert_eq!(segment.break_lock().unwrap(), 0, "the lock is free");
        // Shared holders are counted.
        let shared = [&segment, &other].map(|segment| segment.lock_with(LockOptions::new().shared()).unwrap());
        assert_eq!(segment.break_lock().unwrap(), 2);
        drop(shared);
    }
}
