//! Detection of a lost majority. The Raft library does not report it: an isolated leader stays leader, and proposals
//! to it wait for ever.

use super::bridge::{ControlEvent, EventSenders};
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
/// Maximum time of an election: two rounds.
const ELECTED_WITHIN: Duration = Duration::from_secs(2);
/// Interval at which a follower asks the leader, and maximum time of the reply.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// State of the last checks.
#[derive(Debug, Default)]
struct MajorityCheck {
    leaderless_since: Option<Instant>,
    /// Time of the last question to the leader, and its answer: whether it has a majority.
    asked: Option<(Instant, bool)>,
}

/// Checks the majority until this node leaves the cluster; updates the status pages and the progress threads.
pub(crate) async fn watch_majority(context: Context, pages: Vec<StatusPage>, events: EventSenders) {
    let mut seen = MajorityCheck::default();
    while !context.has_left.load(Ordering::Acquire) && !context.has_stopped() {
        let has_majority = context.check_majority(&mut seen).await;
        pages.iter().for_each(|page| page.set_gauge(Gauge::Majority, has_majority.into()));
        if context.majority.swap(has_majority) != has_majority {
            events.send(ControlEvent::Majority(has_majority));
            if has_majority {
                tracing::info!("most voters of the cluster can be reached again");
            } else {
                tracing::error!("no majority of the cluster's voters can be reached: no name is made or given back");
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

impl Context {
    async fn check_majority(&self, seen: &mut MajorityCheck) -> bool {
        let leader = self.leader();
        seen.leaderless_since = if leader.is_some() { None } else { seen.leaderless_since.or(Some(Instant::now())) };
        if self.is_leader() {
            return self.has_majority();
        }
        let Some(leader) = leader else {
            seen.asked = None;
            return seen.leaderless_since.is_none_or(|since| since.elapsed() < ELECTED_WITHIN);
        };
        let (asked, had) = seen.asked.unzip();
        if asked.is_some_and(|asked| asked.elapsed() < ASK_INTERVAL) {
            return had.unwrap_or(true);
        }
        let has_majority = match self.rpc_client.ask(leader, &Call::HasMajority, ASK_INTERVAL).await {
            Ok(Reply::Majority(has_majority)) => has_majority,
            // The leader changed or does not answer: the voters will elect another.
            _ => had.unwrap_or(true),
        };
        seen.asked = Some((Instant::now(), has_majority));
        has_majority
    }

    /// Returns true if this leader has recently heard from most voters.
    pub(super) fn has_majority(&self) -> bool {
        let now = Instant::now();
        let is_heard = |&&voter: &&u64| {
            let node = u16::try_from(voter).unwrap_or(0);
            node == self.node
                || self.last_contact.time_of(node).is_some_and(|when| now.duration_since(when) <= HEARD_WITHIN)
        };
        let voters = self.voters();
        2 * voters.iter().filter(is_heard).count() > voters.len()
    }
}
