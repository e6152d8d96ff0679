//! One call of a batch, and its result.

use crate::location::SegmentLocation;
use crate::plan::CallPlan;
use crate::value::{Stamp, Value};
use ddss_core::Completion;

/// Result of one call of a [`Batch`](crate::Batch).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let segment = client.allocate("answers", ddss::Spec::new(64))?;
/// let answers = client.batch().put(&segment, 0, b"here")?.run()?;
/// for answer in answers {
///     match answer? {
///         ddss::BatchReply::Got(value) => println!("{} bytes", value.len()),
///         ddss::BatchReply::Put(stamp) => assert_eq!(stamp.version.0, 1),
///         other => println!("{}", other.stamp().version),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BatchReply {
    /// Bytes that a get returned.
    Got(Value),
    /// Stamp that a put returned.
    Put(Stamp),
}

impl BatchReply {
    /// Returns the version and the timestamp.
    pub fn stamp(&self) -> Stamp {
        match self {
            BatchReply::Got(value) => value.stamp(),
            BatchReply::Put(stamp) => *stamp,
        }
    }

    /// Returns the bytes of a get; empty for a put.
    pub fn bytes(&self) -> &[u8] {
        match self {
            BatchReply::Got(value) => value,
            BatchReply::Put(_) => &[],
        }
    }
}

/// One call of a batch.
pub(crate) enum BatchCall {
    Get { offset: u64, length: usize },
    Put { offset: u64, bytes: Vec<u8> },
}

impl BatchCall {
    /// Returns true if the call has no side effects.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self, BatchCall::Get { .. })
    }

    /// Reads in place if a local read is possible; such a call needs no channel.
    pub(crate) fn read_locally(&self, location: &SegmentLocation) -> Option<BatchReply> {
        let BatchCall::Get { offset, length } = *self else { return None };
        if !location.can_read_locally() {
            return None;
        }
        let mut bytes = vec![0; length];
        let stamp = location.read_locally(offset, &mut bytes)?;
        Some(BatchReply::Got(Value::new(bytes, stamp)))
    }

    pub(crate) fn plan<'a>(&'a self, location: &'a SegmentLocation) -> CallPlan<'a> {
        match self {
            BatchCall::Get { offset, length } => location.plan_get(*offset, *length, None),
            BatchCall::Put { offset, bytes } => location.plan_put(*offset, bytes, location.put_conditions(None, None)),
        }
    }

    pub(crate) fn reply(&self, completion: &Completion, bytes: Vec<u8>) -> BatchReply {
        let stamp = Stamp::of(completion);
        match self {
            BatchCall::Get { .. } => BatchReply::Got(Value::new(bytes, stamp)),
            BatchCall::Put { .. } => BatchReply::Put(stamp),
        }
    }
}
