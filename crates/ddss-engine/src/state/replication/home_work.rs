//! Operations that wait for the replica, and the work that the home does when they or its replica are ready.

use crate::action::RangeSet;
use crate::config::Now;
use crate::ids::ServedGetId;
use crate::requester::Requester;
use crate::state::replication::forwarded_upload::ForwardedUpload;
use ddss_core::{LockRequest, PermissionUpdate, Principal, RecordPlace, SegmentId, Timestamp, Version};
use std::collections::VecDeque;

/// Row that a put of a table changes, and the version that it makes of it. The table itself has a version too, which
/// counts the puts of all its rows while it has or is a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowCommit {
    pub(crate) row: u64,
    pub(crate) place: RecordPlace,
    pub(crate) version: Version,
}

/// Operation that waits for the replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingForward {
    pub(crate) what: ForwardKind,
    /// Requester, unless it is already answered.
    pub(crate) requester: Option<Requester>,
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// Additional word of the answer.
    pub(crate) word: u64,
    /// Pool offset and length of its bytes.
    pub(crate) place: Option<(u64, u64)>,
    /// The fabric uses these bytes as well.
    pub(crate) served_get: Option<ServedGetId>,
    pub(crate) deadline_us: u64,
}

/// Kind of a forwarded operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ForwardKind {
    Put(RangeSet, Option<RowCommit>),
    PutLarge(ForwardedUpload),
    Grant(LockRequest),
    /// Already committed: an injected bug.
    Done,
}

/// Work of a home that follows from the state of its replica.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HomeWork {
    /// Executes an operation that waited for the replica.
    Finish(PendingForward),
    /// Changes permissions, which waited until the home is alone.
    Update((Principal, PermissionUpdate, Requester)),
    /// Serves the lock queue.
    Serve,
}

/// Work of the home, in the order in which it is done: work that follows from other work comes before the rest of that.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    queue: VecDeque<(Now, SegmentId, HomeWork)>,
    /// Number of pieces of work at the front that were added since the last one was taken.
    added: usize,
}

impl WorkQueue {
    /// Adds work for a segment, from a step at that time.
    pub(crate) fn add(&mut self, now: Now, segment: SegmentId, work: HomeWork) {
        self.queue.insert(self.added, (now, segment, work));
        self.added += 1;
    }

    /// Returns true if there is no work.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the next work, with the time of the step from which it follows.
    pub(crate) fn next(&mut self) -> Option<(Now, SegmentId, HomeWork)> {
        self.added = 0;
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_follows_from_other_work_comes_first() {
        // If this broke, a lock queue could be served before the puts whose replica answered first.
        let (now, ids) = (Now::default(), [1, 2, 3].map(|index| SegmentId::new(ddss_core::NodeId(1), index, 1)));
        let mut queue = WorkQueue::default();
        queue.add(now, ids[0], HomeWork::Serve);
        queue.add(now, ids[1], HomeWork::Serve);
        let mut order = vec![queue.next().expect("two were added").1];
        queue.add(now, ids[2], HomeWork::Serve);
        order.extend(std::iter::from_fn(|| queue.next()).map(|(_, id, _)| id));
        assert_eq!(order, [ids[0], ids[2], ids[1]]);
        assert!(queue.is_empty());
    }
}
