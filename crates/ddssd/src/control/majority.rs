//! Whether most voters of the cluster follow its leader. The group's library does not say so: a leader that nobody hears goes on
//! as one, and what is proposed to it waits for ever.

use super::bridge::{ControlEvent, EventSenders};
use super::rpc::server::Context;
use super::rpc::types::{Call, Reply};
use crate::status::StatusPage;
use ddss_core::status::Gauge;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a node looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a voter counts after its last answer to the leader, which asks ten times a second.
const HEARD_WITHIN: Duration = Duration::from_millis(1500);
/// How long the voters may take to elect a leader: two rounds.
const ELECTED_WITHIN: Duration = Duration::from_secs(2);
/// How often a node that does not lead asks the leader, and how long the answer may take.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What this node knows of it. Clones say the same.
#[derive(Clone, Debug)]
pub(crate) struct Majority(Arc<AtomicBool>);

impl Default for Majority {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Majority {
    pub(super) fn is_lost(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

/// The reason of a call that came to nothing: no majority decides.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no majority of the cluster's voters can be reached")]
pub(super) struct NoMajority;

impl NoMajority {
    /// Whether this is why a call came to nothing.
    pub(super) fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inside| inside.is::<NoMajority>())
    }
}

/// What was seen last.
#[derive(Debug, Default)]
struct Seen {
    leaderless_since: Option<Instant>,
    /// When the leader was asked, and whether it has a majority.
    asked: Option<(Instant, bool)>,
}

/// Looks until this node belongs to the cluster no more, shows it on the pages and tells the progress threads.
pub(crate) async fn watch_majority(context: Context, pages: Vec<StatusPage>, tellers: EventSenders) {
    let mut seen = Seen::default();
    while !context.left.load(Ordering::Acquire) && !context.has_stopped() {
        let has_majority = context.look_for_majority(&mut seen).await;
        pages.iter().for_each(|page| page.set_gauge(Gauge::Majority, has_majority.into()));
        if context.majority.0.swap(has_majority, Ordering::AcqRel) != has_majority {
            tellers.tell(ControlEvent::Majority(has_majority));
            if has_majority {
                tracing::info!("most voters of the cluster can be reached again");
            } else {
                tracing::error!("no majority of the cluster's voters can be reached: no name is made or given back");
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Context {
    async fn look_for_majority(&self, seen: &mut Seen) -> bool {
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
        if asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return had.unwrap_or(true);
        }
        let has_majority = match self.caller.ask(leader, &Call::HasMajority, ASK_EVERY).await {
            Ok(Reply::Majority(has_majority)) => has_majority,
            // No leader any more, or none that answers: the voters will say which one leads.
            _ => had.unwrap_or(true),
        };
        seen.asked = Some((Instant::now(), has_majority));
        has_majority
    }

    /// Whether this leader has heard of most voters of late.
    pub(super) fn has_majority(&self) -> bool {
        let now = Instant::now();
        let is_heard = |&&voter: &&u64| {
            let node = u16::try_from(voter).unwrap_or(0);
            node == self.node || self.heard.when(node).is_some_and(|when| now.duration_since(when) <= HEARD_WITHIN)
        };
        let voters = self.voters();
        2 * voters.iter().filter(is_heard).count() > voters.len()
    }
}
