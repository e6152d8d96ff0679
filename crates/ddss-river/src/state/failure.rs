//! Reason why the calls of a queue fail.

use ddss_group::Member;

/// Reason why every call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The other members have lost this process.
    Fenced,
    /// A member is lost, and the queue is fail-stop.
    Lost(Member),
    /// Another process reports that a member is lost, and the queue is fail-stop.
    Ended,
    /// The service thread has ended.
    Stopped,
}
