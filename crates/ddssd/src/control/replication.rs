//! Replicated segments: the proposals of homes and replicas, and the leases of homes. The engine of the home chooses the
//! node of its replica (`failover.rs` there); the cluster decides whether that node may take over.
//!
//! A home serves its replicated segments until two seconds after it last *sent* a renewal. The leader must have
//! replied that the node is alive and that it still leads. It grants no lease to a node that does not answer its own
//! calls. A leader declares a node dead when it has neither answered nor got a lease for three seconds; a new leader
//! waits until it has led for three. Only after that a replica takes over. A live
//! node that is being removed gets no lease for three seconds before its removal is decided (`decommission`). A node
//! whose progress thread is stalled renews no lease, and tells the leader after three seconds. So no two homes serve
//! one segment, as long as no clock runs half as fast again as another.

use super::bridge::{ControlEvent, EventSenders};
use super::fenced_nodes::LEASE;
use super::owned_names::OwnedNames;
use super::raft::types::{Command, CommandResult};
use super::rpc::types::{Call, Reply};
use crate::control::rpc::context::Context;
use ddss_engine::{Proposal, ProposalKind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_millis(400);
/// Interval at which a node checks if a renewal is due.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time of one call.
const CALL_MAX: Duration = Duration::from_secs(1);

/// A stalled node waits for this time before it tells the leader: its clock may be faster than others.
const STALL_REPORT_AFTER: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2);

/// Renews the lease of this node while it is the home of a replicated segment. The first renewal is always made:
/// until then the node does not know its roles.
pub(crate) async fn renew_leases(context: Context, run: u32, events: EventSenders) {
    let mut asked: Option<Instant> = None;
    while !context.membership.has_left.load(Ordering::Acquire) && !context.rpc_client.removal.is_out() {
        if context.health.stall.is_stalled() {
            if asked.is_none_or(|asked| asked.elapsed() >= STALL_REPORT_AFTER) {
                context.report_stall(run).await;
            }
            tokio::time::sleep(RENEW_INTERVAL).await;
            continue;
        }
        let is_needed = asked.is_none() || context.state_machine.has_replicas(context.node);
        if is_needed && asked.is_none_or(|asked| asked.elapsed() >= RENEW_INTERVAL) {
            let began = Instant::now();
            if context.request_lease(run).await {
                asked = Some(began);
                events.send(ControlEvent::Lease { until: began + LEASE });
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

impl Context {
    /// Asks the leader for a lease. Returns true once this node has applied all that the leader had decided.
    async fn request_lease(&self, run: u32) -> bool {
        let end = Instant::now() + CALL_MAX;
        let call = Call::Renew { node: self.node, run };
        let Ok(Reply::Newest(newest)) = self.ask_leader(&call, CALL_MAX).await else { return false };
        let remaining = end.saturating_duration_since(Instant::now());
        let newest = newest.map(|log_id| log_id.index);
        self.raft.wait(Some(remaining)).applied_index_at_least(newest, "lease").await.is_ok()
    }

    /// Tells the leader that this node cannot serve as home for now.
    async fn report_stall(&self, run: u32) {
        let call = Call::Stalled { node: self.node, run };
        if let Err(error) = self.ask_leader(&call, CALL_MAX).await {
            tracing::debug!(%error, "cannot tell the leader that a progress thread hangs");
        }
    }

    /// Proposes a change of a replicated segment. All nodes see the decision; the engine repeats a proposal that
    /// fails.
    pub(super) async fn propose_replication(&self, owned_names: &OwnedNames, run: u32, decision: &Proposal) {
        let Proposal { segment, name, epoch, turn, word } = *decision;
        let (home, segment) = (self.node, segment.to_bits());
        let kind = match word {
            ProposalKind::Pair(_) => 0,
            ProposalKind::Part => 1,
            ProposalKind::TakeOver => 2,
        };
        let key = (segment, u64::from(epoch) << 32 | turn & 0xffff_ffff, kind);
        let proposals_in_flight = || self.proposals_in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if !proposals_in_flight().insert(key) {
            return;
        }
        // Differs from each claim of a name: claims count from one.
        let claim = u64::from(run) << 32 | 1 << 31 | u64::from(epoch);
        let text = name.as_str();
        let name = text.to_owned();
        let command = match word {
            ProposalKind::Pair(replica) => Command::Pair { name, home, run, segment, epoch, turn, replica: replica.0 },
            ProposalKind::Part => Command::Part { name, home, run, epoch, turn },
            ProposalKind::TakeOver => {
                // Recorded before the proposal, or reconciliation could disclaim the name.
                owned_names.insert(text, claim);
                Command::TakeOver { name, node: home, epoch, claim }
            }
        };
        let reply = self.ask_leader(&Call::Propose(command), CALL_MAX).await;
        match (&reply, word) {
            (Ok(Reply::Applied(CommandResult::Done)), ProposalKind::TakeOver) => {
                tracing::warn!(name = text, "took over a segment whose home is dead");
            }
            (Ok(Reply::Applied(CommandResult::Done)), ProposalKind::Part) => {
                tracing::warn!(name = text, "a segment continues without its replica");
            }
            (Ok(Reply::Applied(CommandResult::Done)), ProposalKind::Pair(replica)) => {
                tracing::info!(name = text, replica = replica.0, "a replica is in sync");
            }
            (Ok(Reply::Applied(_)), ProposalKind::TakeOver) => owned_names.remove_claim(text, claim),
            (Ok(reply), _) => tracing::debug!(name = text, ?reply, ?word, "the cluster did not decide so"),
            (Err(error), _) => tracing::debug!(name = text, %error, ?word, "the cluster cannot decide now"),
        }
        proposals_in_flight().remove(&key);
    }
}
