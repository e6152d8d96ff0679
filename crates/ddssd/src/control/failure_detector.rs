//! Periodic checks of the control plane: liveness of the nodes, choice of the voters, registration of this node, and
//! reconciliation of the names that it owns with the directory.

use super::membership::voters::DEAD_AFTER;
use super::owned_names::NameComparison;
use super::raft::directory::Directory;
use super::raft::types::{Command, CommandResult};
use super::rpc::types::{Call, Reply};
use crate::control::rpc::context::Context;
use crate::status::StatusPage;
use ddss_core::status::Gauge;
use openraft::ChangeMembers;
use openraft::error::Fatal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between two rounds at the start, and the duration of this phase.
const START_ROUND_INTERVAL: Duration = Duration::from_millis(20);
const START_PHASE: Duration = Duration::from_secs(3);
/// A node that has answered within this time is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time of one call.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Maximum time of a leader's round: a longer wait means that the majority is lost.
const LEADER_ROUND_MAX: Duration = Duration::from_secs(5);
/// A node that has not heard from a leader for this time asks whether it is still a member. Also the interval of this
/// question.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Fewest entries between two snapshots.
const SNAPSHOT_ENTRIES_MIN: u64 = 2_000;
/// Most entries between two snapshots: a start reads and applies so many.
const SNAPSHOT_ENTRIES_MAX: u64 = 50_000;
/// Maximum number of names that are corrected in one round.
const RECONCILE_NAMES_MAX: usize = 64;

/// Runs the periodic checks until the runtime ends.
pub(crate) async fn run_periodic_checks(context: Context, run: u32, mut names: NameComparison, pages: Vec<StatusPage>) {
    let mut leading_since = None;
    let began = Instant::now();
    let mut probed = began;
    loop {
        // Nodes that start together should find each other quickly.
        let pause = if began.elapsed() < START_PHASE { START_ROUND_INTERVAL } else { ROUND_INTERVAL };
        context.publish_progress();
        pages.iter().for_each(|page| context.publish_status(page));
        let slept = Instant::now();
        tokio::time::sleep(pause).await;
        let now = Instant::now();
        if now.duration_since(slept) > pause + DEAD_AFTER / 3 {
            // This process was stopped: the others have not had the time to answer.
            leading_since = None;
        }
        if context.membership.has_left.load(Ordering::Acquire) || context.rpc_client.removal.is_out() {
            return show_no_leader(&pages);
        }
        if let Err(error) = &context.raft.metrics().borrow().running_state {
            if *error == Fatal::Stopped {
                // This daemon stops.
                return show_no_leader(&pages);
            }
            tracing::error!(%error, "the control plane has stopped: no name is made or given back until this daemon is started again");
            return show_no_leader(&pages);
        }
        if context.is_leader() {
            // A leader that lost the leadership for a moment counts as a new leader.
            let term = context.raft.metrics().borrow().current_term;
            let since = match leading_since {
                Some((known, since)) if known == term => since,
                _ => now,
            };
            leading_since = Some((term, since));
            // Without a majority nothing can be decided, and each proposal would wait.
            if context.has_majority() {
                let led = tokio::time::timeout(LEADER_ROUND_MAX, context.run_leader_round(now, since)).await;
                if led.is_err() {
                    tracing::debug!("the leader's periodic checks take too long");
                }
            }
        } else {
            leading_since = None;
            if now.duration_since(probed) >= QUIET_AFTER {
                probed = now;
                context.probe_if_quiet(now, began).await;
            }
        }
        context.announce_self(run).await;
        context.reconcile_names(&mut names).await;
        context.build_snapshot_when_due().await;
    }
}

/// Marks the status pages as leaderless: they are no longer updated, and this node makes and frees no names.
fn show_no_leader(pages: &[StatusPage]) {
    pages.iter().for_each(|page| page.set_gauge(Gauge::Leader, 0));
}

fn log_lost(command: &Command) {
    if let Command::GiveUp { name, .. } = command {
        tracing::error!(name, "a replicated segment is lost: none of its nodes has a copy, and its name is free");
    }
}

impl Context {
    /// Publishes the progress of the Raft group.
    fn publish_progress(&self) {
        let (term, applied) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.current_term, metrics.last_applied.map_or(0, |applied| applied.index))
        };
        self.health.raft_status.set_progress(term, applied, self.health.majority.clock_ahead_us());
    }

    /// Publishes the state of the cluster on a status page. No other task writes these gauges.
    fn publish_status(&self, page: &StatusPage) {
        page.set_gauge(Gauge::Leader, self.live_leader().unwrap_or(0).into());
        page.set_gauge(Gauge::Members, self.members().len() as u64);
        page.set_gauge(Gauge::Names, self.state_machine.read(Directory::name_count) as u64);
    }

    async fn run_leader_round(&self, now: Instant, since: Instant) {
        let _one_at_a_time = self.membership.lock.lock().await;
        self.membership.departing.drop_stale(self.raft.metrics().borrow().current_term, now);
        if let Err(reply) = self.complete_founding().await {
            return tracing::debug!(?reply, "cannot end the founding of the cluster yet");
        }
        let members = self.members();
        for &(node, _) in &members {
            let life = self.state_machine.read(|directory| directory.node_status(node));
            let silent = || {
                let leased = self.contacts.leases.time_of(node);
                now.duration_since(since) > DEAD_AFTER
                    && !self.is_answering(node, now, DEAD_AFTER)
                    && leased.is_none_or(|leased| now.duration_since(leased) > DEAD_AFTER)
            };
            let mut guard = None;
            let command = if life.alive && silent() {
                // From here on the node gets no lease, and its last lease has expired.
                guard = self.membership.fenced_nodes.fence(node, silent);
                if guard.is_none() {
                    continue;
                }
                Command::Dead { node, epoch: life.epoch }
            } else if !life.alive && life.epoch > 0 && self.is_answering(node, now, ALIVE_WITHIN) {
                Command::Alive { node, run: life.run }
            } else {
                continue;
            };
            // The proposal may be decided after this round has ended: the fence must stand until then.
            let raft = self.raft.clone();
            let proposed = tokio::spawn(async move {
                if let Err(error) = raft.client_write(command).await {
                    tracing::debug!(node, %error, "cannot propose the liveness of a node");
                }
                drop(guard);
            });
            let _ = proposed.await;
        }
        self.finish_removals().await;
        let (voters, wanted) = (self.voters(), self.wanted_voters(now, None));
        if voters != wanted {
            tracing::info!(?voters, ?wanted, "changing the voters");
            if let Err(error) = self.raft.change_membership(ChangeMembers::ReplaceAllVoters(wanted), true).await {
                tracing::debug!(%error, "cannot change the voters");
            }
        }
    }

    /// Asks another node whether this node is still a member, if no leader was heard for a while.
    ///
    /// The cluster sends nothing to a node that it has removed. Each call goes to another node; `RpcClient` handles a
    /// *not a member* reply.
    async fn probe_if_quiet(&self, now: Instant, began: Instant) {
        let leader = self.raft.metrics().borrow().current_leader.and_then(|leader| u16::try_from(leader).ok());
        let heard = leader.and_then(|leader| self.contacts.leaders.time_of(leader)).unwrap_or(began);
        if now.duration_since(heard) >= QUIET_AFTER
            && let Some(member) = self.next_other_member()
            && let Err(error) = self.rpc_client.ask(member, &Call::Probe, CALL_MAX).await
        {
            tracing::debug!(%member, %error, "cannot ask another node whether this node is still a member");
        }
    }

    /// Announces this node, its run and its address to the cluster, until the cluster knows them.
    async fn announce_self(&self, run: u32) {
        let life = self.state_machine.read(|directory| directory.node_status(self.node));
        let known = self.state_machine.members().into_iter().find(|&(node, _)| node == self.node);
        // A stalled node is useless to clients; it is alive again when its progress threads go on.
        let is_known = life.alive && life.run == run && known.is_some_and(|(_, member)| member == self.own.member);
        if self.health.stall.is_stalled() {
            return;
        }
        if self.rpc_client.removal.is_out() {
            return;
        }
        if let Err(why) = self.check_not_superseded().await {
            return self.stop_superseded(&why).await;
        }
        if is_known && self.is_registered() {
            return;
        }
        // Registers only after this node has stored its membership: otherwise it would look like a node that lost its
        // state.
        if self.members().iter().any(|&(node, _)| node == self.node)
            && let Err(why) = self.register().await
        {
            return self.stop_superseded(&why).await;
        }
        let call = Call::Announce { node: self.node, member: self.own.member, run };
        match self.ask_leader(&call, CALL_MAX).await {
            Ok(Reply::Refused(why)) => tracing::warn!(why, "the cluster does not know this node"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cannot reach the cluster's leader yet"),
        }
    }

    /// Disclaims names that the directory holds for this node and that it does not have, as after a crash between a
    /// claim and the creation of its segment. Claims names that it has and that the directory does not know.
    async fn reconcile_names(&self, names: &mut NameComparison) {
        let node = self.node;
        // A later start of this node may own names that this start does not know.
        if !self.is_registered() {
            return;
        }
        let (changes, began) = ((self.state_machine.changes(), names.owned.changes()), Instant::now());
        if !names.schedule.is_due(began, changes) {
            return;
        }
        let stale = self.state_machine.read(|directory| names.owned.reconcile(directory, node, RECONCILE_NAMES_MAX));
        let is_leader = self.is_leader();
        let lost = self.state_machine.read(|directory| {
            let mut lost = names.owned.given_up(directory, RECONCILE_NAMES_MAX);
            lost.extend(if is_leader { directory.orphans(RECONCILE_NAMES_MAX) } else { Vec::new() });
            lost
        });
        names.record(began, changes, stale.is_empty() && lost.is_empty());
        for (segment, command) in lost {
            match self.ask_leader(&Call::Propose(command.clone()), CALL_MAX).await {
                Ok(Reply::Applied(CommandResult::Done)) => {
                    log_lost(&command);
                    names.count_lost(segment);
                }
                Ok(Reply::Applied(_)) => {}
                Ok(_) | Err(_) => return,
            }
        }
        for command in stale {
            let name = match &command {
                Command::Claim { name, .. }
                | Command::Disclaim { name, .. }
                | Command::Yield { name, .. }
                | Command::Reclaim { name, .. } => name.clone(),
                _ => continue,
            };
            let is_reclaim = matches!(command, Command::Reclaim { .. });
            match self.ask_leader(&Call::Propose(command), CALL_MAX).await {
                // The directory is right and this node lags behind: it will catch up.
                Ok(Reply::Applied(CommandResult::Taken { home })) if home == node => {}
                Ok(Reply::Applied(CommandResult::Taken { home })) if is_reclaim => {
                    tracing::error!(
                        name,
                        home,
                        "a segment that was taken over in an earlier cluster has lost its name: the next start drops its copy"
                    );
                    names.owned.abandon(&name);
                }
                Ok(Reply::Applied(CommandResult::Taken { home })) => {
                    tracing::error!(
                        name,
                        home,
                        "a segment of this node has a name that another node holds: release one of them"
                    );
                    names.owned.abandon(&name);
                }
                Ok(Reply::Applied(_)) if is_reclaim => {
                    tracing::warn!(name, "took a segment over again: puts elsewhere since the founding are lost")
                }
                Ok(Reply::NotMember) => return,
                Ok(_) => tracing::info!(name, "corrected a name in the cluster's directory"),
                Err(_) => return,
            }
        }
    }
}

/// Returns the number of applied entries after which a snapshot of so many names is due. A snapshot contains every name, so its cost
/// for each entry does not grow with the directory.
fn snapshot_interval(names: usize) -> u64 {
    (names as u64 / 2).clamp(SNAPSHOT_ENTRIES_MIN, SNAPSHOT_ENTRIES_MAX)
}

impl Context {
    /// Asks for a snapshot once enough entries were applied since the last one.
    async fn build_snapshot_when_due(&self) {
        let last = self.raft.metrics().borrow().snapshot.map_or(0, |id| id.index);
        let due = last + snapshot_interval(self.state_machine.read(Directory::name_count));
        if self.state_machine.applied_index() >= due
            && let Err(error) = self.raft.trigger().snapshot().await
        {
            tracing::debug!(%error, "cannot build a snapshot yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_cost_the_same_for_each_entry() {
        // If this broke, a large directory would be written again for every few names, or the log would grow without bound.
        assert_eq!([0, 4_000, 4_002, 1 << 24].map(snapshot_interval), [2_000, 2_000, 2_001, 50_000]);
    }
}
