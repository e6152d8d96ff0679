//! Detection of a lost majority. The Raft library does not report it: an isolated leader stays leader, and proposals
//! to it wait for ever.

use super::bridge::{ControlEvent, EventSenders};
use super::majority::{CONFIRMED_WITHIN, wall_clock_us};
use super::raft::types::LogId;
use super::rpc::context::Context;
use super::rpc::types::{Call, Reply};
use crate::status::StatusPage;
use ddss_core::status::Gauge;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A voter counts for this time after its last answer to the leader, which calls it ten times a second.
const HEARD_WITHIN: Duration = Duration::from_millis(1500);
/// Interval at which another node asks the leader while it answers, and maximum time of the reply.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_millis(500);

/// Findings of the last checks.
#[derive(Debug)]
struct MajorityCheck {
    /// Time of the start, until a leader has answered.
    starting: Option<Instant>,
    /// Time of the last answered question to the leader.
    answered: Option<Instant>,
    /// Time at which this leader had a majority, or another leader said that it has one.
    confirmed: Option<Instant>,
    /// This node has applied the directory that a leader had since this node reached it.
    is_current: bool,
    /// Newest entry that the leader had when this node reached it.
    wanted: Option<Option<LogId>>,
}

impl MajorityCheck {
    fn is_confirmed(&self) -> bool {
        self.confirmed.is_some_and(|confirmed| confirmed.elapsed() < CONFIRMED_WITHIN)
    }
}

/// Checks the majority until this node leaves the cluster; updates the status pages and the progress threads.
pub(crate) async fn watch_majority(context: Context, pages: Vec<StatusPage>, events: EventSenders) {
    let starting = Some(Instant::now());
    let mut seen = MajorityCheck { starting, answered: None, confirmed: None, is_current: false, wanted: None };
    while !context.membership.has_left.load(Ordering::Acquire) && !context.has_stopped() {
        context.check_majority(&mut seen).await;
        if !seen.is_confirmed() {
            (seen.is_current, seen.wanted) = (false, None);
        }
        pages.iter().for_each(|page| page.set_gauge(Gauge::Majority, seen.is_current.into()));
        let is_starting = seen.starting.is_some_and(|began| began.elapsed() < CONFIRMED_WITHIN);
        let has_majority = is_starting || seen.is_confirmed();
        if context.health.majority.swap(has_majority) != has_majority {
            events.send(ControlEvent::Majority(has_majority));
            if has_majority {
                tracing::info!("most voters of the cluster can be reached again");
            } else {
                tracing::error!("no majority of the cluster's voters can be reached: no name is made or given back");
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    // Nobody updates them any more.
    pages.iter().for_each(|page| page.set_gauge(Gauge::Majority, 0));
    context.health.majority.swap(false);
}

impl Context {
    async fn check_majority(&self, seen: &mut MajorityCheck) {
        if self.is_leader() {
            // A restarted leader has heard from nobody yet.
            seen.confirmed = self.has_majority().then(Instant::now);
            seen.is_current = seen.confirmed.is_some() && self.has_own_entries();
            seen.starting = seen.starting.filter(|_| !seen.is_current);
            self.health.majority.set_clock_ahead(0);
            return;
        }
        if seen.is_current && seen.answered.is_some_and(|answered| answered.elapsed() < ASK_INTERVAL) {
            return;
        }
        let Some(leader) = self.leader() else { return };
        let (asked, clock) = (Instant::now(), wall_clock_us());
        match self.rpc_client.ask(leader, &Call::HasMajority, ASK_MAX).await {
            Ok(Reply::HasMajority { newest, clock_us }) => {
                // The leader answered halfway, give or take.
                let halfway = clock.saturating_add(asked.elapsed().as_micros() as i64 / 2);
                self.health.majority.set_clock_ahead(halfway.saturating_sub(clock_us));
                (seen.starting, seen.answered, seen.confirmed) = (None, Some(asked), Some(asked));
                // The leader's newest entry moves on with each name that is made.
                let wanted = *seen.wanted.get_or_insert(newest);
                seen.is_current |= self.raft.metrics().borrow().last_applied >= wanted;
            }
            Ok(Reply::NoMajority) => (seen.starting, seen.answered, seen.confirmed) = (None, Some(asked), None),
            // The leader changed or does not answer: the voters will elect another.
            _ => seen.answered = None,
        }
    }

    /// Returns true if this leader has applied an entry of its own term: all that were committed before.
    pub(super) fn has_own_entries(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.last_applied.is_some_and(|applied| applied.leader_id.term == metrics.current_term)
    }

    /// Returns true if this leader has recently heard from most voters.
    pub(super) fn has_majority(&self) -> bool {
        let (voters, now) = (self.voters(), Instant::now());
        let is_heard = |&&voter: &&u64| self.is_heard(u16::try_from(voter).unwrap_or(0), now);
        2 * voters.iter().filter(is_heard).count() > voters.len()
    }

    /// Returns true if a node has answered this leader's calls lately.
    pub(super) fn is_heard(&self, node: u16, now: Instant) -> bool {
        let heard = self.contacts.answers.time_of(node);
        node == self.node || heard.is_some_and(|heard| now.duration_since(heard) <= HEARD_WITHIN)
    }
}
