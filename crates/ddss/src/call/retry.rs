//! Repetition of a call that did nothing because the home was away.

use super::backoff::Backoff;
use crate::plan::CallPlan;
use ddss_core::{Failure, Outcome};
use std::time::{Duration, Instant};

/// Attempts of one call. Between two of them the call holds no channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    is_enabled: bool,
    backoff: Backoff,
}

impl Retry {
    /// Time of the last attempt, before the deadline.
    const LAST_ATTEMPT: Duration = Duration::from_millis(2);
    /// The same for a lookup without a majority: an answer that comes late would hide the reason.
    const LAST_LOOKUP: Duration = Duration::from_millis(100);
    /// The same for a call with side effects: one that reaches its deadline ends with an unknown outcome.
    const LAST_ATTEMPT_WITH_EFFECT: Duration = Duration::from_millis(20);

    pub(crate) fn new(is_enabled: bool) -> Self {
        Self { is_enabled, backoff: Backoff::default() }
    }

    /// Returns the pause before the next attempt of a call that ended so. `None`: the call has ended.
    #[cold]
    pub(crate) fn pause(&mut self, plan: &CallPlan<'_>, outcome: Outcome, deadline: Instant) -> Option<Duration> {
        if !self.is_enabled || !is_away(plan, outcome) || !plan.is_repeatable() {
            return None;
        }
        let last = match outcome {
            Outcome::Failed(Failure::NoMajority) => Self::LAST_LOOKUP,
            _ if plan.is_harmless => Self::LAST_ATTEMPT,
            _ => Self::LAST_ATTEMPT_WITH_EFFECT,
        };
        let left = deadline.checked_duration_since(Instant::now())?.checked_sub(last)?;
        self.backoff.note(true);
        self.backoff.pause().map(|pause| pause.min(left))
    }
}

/// Returns true if the call did nothing, and its home, a successor or the leader may be there later. A call that makes or
/// releases a name waits for a majority at its home.
fn is_away(plan: &CallPlan<'_>, outcome: Outcome) -> bool {
    match outcome {
        Outcome::Failed(Failure::NodeDown | Failure::InProgress) => true,
        Outcome::Failed(Failure::NoMajority) => plan.is_harmless,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{LockToken, Operation, SegmentId};

    #[test]
    fn only_calls_that_did_nothing_are_repeated_until_their_deadline() {
        // If this broke, a put that may have happened would happen twice, or a call would outlive its deadline.
        let segment = SegmentId::from_bits(7);
        let null = CallPlan::new("reach", "a node", Operation::Null);
        let unlock = CallPlan::new("unlock", "it", Operation::Unlock { segment, token: LockToken(1) });
        let pause = |plan: &CallPlan<'_>, outcome, left| {
            Retry::new(true).pause(plan, outcome, Instant::now() + Duration::from_millis(left))
        };
        let away = Outcome::Failed(Failure::NodeDown);
        assert!(
            pause(&null, away, 1000).is_some() && pause(&null, Outcome::Failed(Failure::InProgress), 1000).is_some()
        );
        for other in [Outcome::Indeterminate(Failure::NodeDown), Outcome::Failed(Failure::Locked), Outcome::Done] {
            assert_eq!(pause(&null, other, 1000), None);
        }
        // A lookup of a name ends with its deadline, and not with that of the leader.
        let no_majority = Outcome::Failed(Failure::NoMajority);
        assert!(pause(&null, no_majority, 1000).is_some() && pause(&null, no_majority, 90).is_none());
        // A lock ends with its home.
        assert_eq!(pause(&unlock, away, 1000), None);
        assert_eq!(pause(&null, away, 1), None);
        let put = CallPlan::new("release", "it", Operation::Release { segment });
        assert!(pause(&put, away, 1000).is_some() && pause(&put, away, 10).is_none());
        assert_eq!(pause(&put, no_majority, 1000), None);
        let (mut retry, soon) = (Retry::new(true), Instant::now() + Duration::from_secs(1));
        assert!((0..100).filter_map(|_| retry.pause(&null, away, soon)).all(|pause| pause < Duration::from_secs(1)));
        assert_eq!(Retry::new(false).pause(&null, away, soon), None);
    }
}
