//! Locks that clients of this node hold at other homes.

use crate::request::operation::LockToken;
use crate::{ClientId, NodeId, SegmentId};

/// One lock at another home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteLock {
    pub(crate) segment: SegmentId,
    /// Home that granted it.
    pub(crate) home: NodeId,
    pub(crate) token: LockToken,
    pub(crate) client: ClientId,
    /// End of the lease at the home.
    pub(crate) until_us: u64,
}
