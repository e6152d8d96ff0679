//! What the cluster decides about mirrored segments: what homes and mirrors ask for, and the leases of homes.
//!
//! A home serves its mirrored segments until two seconds after it last *asked* the leader, if the leader answered that
//! the node is alive and that it leads still. A leader says that a node is dead when it has not heard of it for three seconds, a
//! new one not before it has led for three; and only after that a mirror takes over. A node that lives and is to go gets no
//! lease for three seconds before the cluster says that it is gone (`leaving`). One whose progress thread hangs asks for no lease,
//! and tells the leader after three seconds. So no home serves what another one
//! has, as long as no clock runs half as fast again as another.

use super::bridge::{ControlEvent, EventSenders};
use super::owned_names::OwnedNames;
use super::raft::types::{Answer, Command};
use super::rpc::server::{Context, not_now};
use super::rpc::types::{Call, Reply};
use ddss_core::engine::{Proposal, ProposalKind};
use openraft::error::{CheckIsLeaderError, RaftError};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a home may serve after it asked.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// How often it asks.
const RENEW_EVERY: Duration = Duration::from_millis(400);
/// How often a node looks whether it has to.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long one question may take.
const ASK_MAX: Duration = Duration::from_secs(1);

/// Nodes of which it is about to be said that they are dead, or gone. Whoever is among them gets no lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doomed(Arc<Mutex<HashSet<u16>>>);

/// As long as this is there the node is doomed.
#[derive(Debug)]
pub(crate) struct Doom {
    doomed: Doomed,
    node: u16,
}

impl Doomed {
    fn nodes(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_doomed(&self, node: u16) -> bool {
        self.nodes().contains(&node)
    }

    /// Dooms a node that is silent still: no lease is given between the look and this.
    pub(crate) fn doom(&self, node: u16, is_silent: impl Fn() -> bool) -> Option<Doom> {
        let mut nodes = self.nodes();
        (is_silent() && nodes.insert(node)).then(|| Doom { doomed: self.clone(), node })
    }
}

impl Drop for Doom {
    fn drop(&mut self) {
        self.doomed.nodes().remove(&self.node);
    }
}

/// How long a node without a lease waits before it tells the leader that it hangs: its clock may be faster than others.
const LAPSED_AFTER: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2);

/// What is being decided.
pub(crate) type Deciding = Arc<Mutex<HashSet<(u64, u64, u8)>>>;

/// Asks for the lease of this node as long as it is the home of anything with a mirror, and once at the start: until then
/// it does not know what it is.
pub(crate) async fn hold_lease(context: Context, run: u32, teller: EventSenders) {
    let mut asked: Option<Instant> = None;
    while !context.left.load(Ordering::Acquire) && !context.caller.removal.is_out() {
        if context.stall.is_stalled() {
            if asked.is_none_or(|asked| asked.elapsed() >= LAPSED_AFTER) {
                context.tell_stall(run).await;
            }
            tokio::time::sleep(RENEW_EVERY).await;
            continue;
        }
        let is_needed = asked.is_none() || context.keeper.look(|directory| directory.has_mirrors(context.node));
        if is_needed && asked.is_none_or(|asked| asked.elapsed() >= RENEW_EVERY) {
            let began = Instant::now();
            if context.renewed(run).await {
                asked = Some(began);
                teller.tell(ControlEvent::Lease { until: began + LEASE });
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Context {
    /// Whether the leader has answered, and this node has come as far as the leader was then.
    async fn renewed(&self, run: u32) -> bool {
        let end = Instant::now() + ASK_MAX;
        let call = Call::Renew { node: self.node, run };
        let Ok(Reply::Newest(newest)) = self.ask_leader(&call, ASK_MAX).await else { return false };
        let left = end.saturating_duration_since(Instant::now());
        let newest = newest.map(|log_id| log_id.index);
        self.raft.wait(Some(left)).applied_index_at_least(newest, "lease").await.is_ok()
    }

    /// Tells the leader that this node is no home for now.
    async fn tell_stall(&self, run: u32) {
        let call = Call::Stalled { node: self.node, run };
        if let Err(error) = self.ask_leader(&call, ASK_MAX).await {
            tracing::debug!(%error, "cannot tell the leader that a progress thread hangs");
        }
    }

    /// The leader notes that a node hangs. What is said of an older run is of no interest.
    pub(super) fn note_stall(&self, node: u16, run: u32) -> Reply {
        if !self.is_leader() {
            return Reply::NotLeader(self.leader());
        }
        if self.keeper.look(|directory| directory.life(node)).run == run {
            self.stalled.note(node);
        }
        Reply::Done
    }

    /// The leader's answer to a home that wants to go on.
    pub(super) async fn renew(&self, node: u16, run: u32) -> Reply {
        if self.is_leader() && !self.is_member(node) {
            return not_now("it is no member any more");
        }
        {
            // Under one lock with the look before somebody is doomed: heard of first, or doomed first.
            let doomed = self.doomed.nodes();
            if doomed.contains(&node) {
                return not_now("it is about to be declared dead, or is leaving");
            }
            self.heard.note(node);
            self.stalled.forget(node);
        }
        let newest = match self.raft.get_read_log_id().await {
            Ok((newest, _)) => newest,
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                return Reply::NotLeader(forward.leader_node);
            }
            Err(error) => return not_now(error),
        };
        let index = newest.map(|log_id| log_id.index);
        if let Err(error) = self.raft.wait(Some(ASK_MAX)).applied_index_at_least(index, "renew").await {
            return not_now(error);
        }
        let life = self.keeper.look(|directory| directory.life(node));
        if life.alive && life.run == run { Reply::Newest(newest) } else { not_now("it is not known to be alive") }
    }

    /// Has something about a mirrored segment decided. What comes of it every node hears; what comes to nothing is asked
    /// for again.
    pub(super) async fn decide(&self, held: &OwnedNames, run: u32, decision: &Proposal) {
        let Proposal { segment, name, epoch, turn, word } = *decision;
        let (home, segment) = (self.node, segment.to_bits());
        let kind = match word {
            ProposalKind::Pair(_) => 0,
            ProposalKind::Part => 1,
            ProposalKind::TakeOver => 2,
        };
        let key = (segment, u64::from(epoch) << 32 | turn & 0xffff_ffff, kind);
        let deciding = || self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        if !deciding().insert(key) {
            return;
        }
        // A number that no claim of a name has: those count from one.
        let claim = u64::from(run) << 32 | 1 << 31 | u64::from(epoch);
        let text = name.as_str();
        let name = text.to_owned();
        let command = match word {
            ProposalKind::Pair(mirror) => Command::Pair { name, home, run, segment, epoch, turn, mirror: mirror.0 },
            ProposalKind::Part => Command::Part { name, home, run, epoch, turn },
            ProposalKind::TakeOver => {
                // Noted before it is asked for, or the sweep could take it for a name that nobody has.
                held.insert(text, claim);
                Command::TakeOver { name, node: home, epoch, claim }
            }
        };
        let reply = self.ask_leader(&Call::Propose(command), ASK_MAX).await;
        match (&reply, word) {
            (Ok(Reply::Applied(Answer::Done)), ProposalKind::TakeOver) => {
                tracing::warn!(name = text, "took over a segment whose home is dead");
            }
            (Ok(Reply::Applied(Answer::Done)), ProposalKind::Part) => {
                tracing::warn!(name = text, "a segment goes on without its mirror");
            }
            (Ok(Reply::Applied(Answer::Done)), ProposalKind::Pair(mirror)) => {
                tracing::info!(name = text, mirror = mirror.0, "a mirror has everything");
            }
            (Ok(Reply::Applied(_)), ProposalKind::TakeOver) => held.remove_claim(text, claim),
            (Ok(reply), _) => tracing::debug!(name = text, ?reply, ?word, "the cluster did not decide so"),
            (Err(error), _) => tracing::debug!(name = text, %error, ?word, "the cluster cannot decide now"),
        }
        deciding().remove(&key);
    }
}
