//! Forced release of a lock whose holder is still alive.

use super::segment::Segment;
use super::twin;
use crate::error::Error;
use crate::value::first_word;
use ddss_core::Operation;

#[twin]
impl Segment {
    /// Takes the segment's lock away from all holders, exclusive or shared, and returns their number.
    ///
    /// Only the segment's owner and root may do so. The lock queue's next request is granted. Holders are not
    /// notified: their later puts under the lock fail with [`ErrorKind::LockLost`](crate::ErrorKind::LockLost), as
    /// after the end of the lease.
    ///
    /// Intended for an administrator who knows that the holder is stuck. The lock of a dead holder ends by itself.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let door = client.segment("door").allocate(8)?;
    /// # let _held = door.lock()?;
    /// if let Some(holder) = door.stat()?.lock.holder {
    ///     println!("taking it from a client of {}", holder.node);
    ///     assert_eq!(door.break_lock()?, 1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn break_lock(&self) -> Result<u64, Error> {
        self.run_operation("break the lock of", Operation::Break { segment: self.id() }, first_word).await
    }
}
