//! What has to be looked after: who is alive, who votes, whether this node is known to the cluster as it is now, and
//! whether the names it holds are the ones that it has.

use super::owned_names::OwnedNames;
use super::raft::types::{Answer, Command};
use super::rpc::server::Context;
use super::rpc::types::{Call, Reply};
use crate::status::StatusPage;
use ddss_core::status::Gauge;
use openraft::ChangeMembers;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often all of it is looked at.
const PAUSE: Duration = Duration::from_millis(250);
/// How often at the beginning, and for how long.
const PAUSE_QUICK: Duration = Duration::from_millis(20);
const QUICK_FOR: Duration = Duration::from_secs(3);
/// A node that has not answered the leader for so long is declared dead.
pub(super) const DEAD_AFTER: Duration = Duration::from_secs(3);
/// One that has answered within this is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);
/// How long a node counts as one that hangs after it has said so, which it does every 400 ms and in questions of up to a second.
const STALLED_FOR: Duration = Duration::from_secs(2);
/// How long one question of this kind may take.
const ASK_MAX: Duration = Duration::from_secs(1);
/// How long a leader may take to look after the others: what it waits for then has no majority any more.
const LEAD_MAX: Duration = Duration::from_secs(5);
/// A node that has not heard of a leader for so long asks whether it is a member still, and as often.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Names that are set right in one round.
const SWEEP_MAX: usize = 64;

/// Looks after everything until the runtime ends.
pub(crate) async fn watch(context: Context, run: u32, held: OwnedNames, pages: Vec<StatusPage>) {
    let mut leading_since = None;
    let began = Instant::now();
    let mut probed = began;
    loop {
        // Nodes that start together want to know each other soon.
        let pause = if began.elapsed() < QUICK_FOR { PAUSE_QUICK } else { PAUSE };
        pages.iter().for_each(|page| context.show(page));
        tokio::time::sleep(pause).await;
        let now = Instant::now();
        if context.left.load(Ordering::Acquire) || context.caller.removal.is_out() {
            return show_no_leader(&pages);
        }
        if let Err(error) = &context.raft.metrics().borrow().running_state {
            tracing::error!(%error, "the control plane has stopped: no name is made or given back until this daemon is started again");
            return show_no_leader(&pages);
        }
        if context.is_leader() {
            // A leader that was none for a moment is a new one.
            let term = context.raft.metrics().borrow().current_term;
            let since = match leading_since {
                Some((known, since)) if known == term => since,
                _ => now,
            };
            leading_since = Some((term, since));
            // Without a majority nothing of it can be decided, and would be waited for.
            if context.has_majority() {
                let led = tokio::time::timeout(LEAD_MAX, context.lead(now, since)).await;
                if led.is_err() {
                    tracing::debug!("what the leader looks after takes too long");
                }
            }
        } else {
            leading_since = None;
            if now.duration_since(probed) >= QUIET_AFTER {
                probed = now;
                context.probe_if_quiet(now, began).await;
            }
        }
        context.announce_ourselves(run).await;
        context.sweep(&held).await;
    }
}

/// Nobody keeps these pages any more, and no name is made or given back through this node.
fn show_no_leader(pages: &[StatusPage]) {
    pages.iter().for_each(|page| page.set_gauge(Gauge::Leader, 0));
}

/// A node that could vote.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: u16,
    leads: bool,
    answers: bool,
    votes: bool,
}

/// Who should vote: one, three or five, those who answer first, then those who do already, then by number.
fn choose_voters(nodes: impl Iterator<Item = Candidate>) -> BTreeSet<u64> {
    let mut nodes: Vec<Candidate> = nodes.collect();
    let count = match nodes.len() {
        0..3 => 1,
        3..5 => 3,
        _ => 5,
    };
    // The leader stays as long as it may: a change of leader is a pause for everybody.
    nodes.sort_by_key(|other| (!other.leads, !other.answers, !other.votes, other.node));
    nodes.into_iter().take(count).map(|other| other.node.into()).collect()
}

impl Context {
    /// Tells those who look at the page how the cluster is. These words are written by nobody else.
    fn show(&self, page: &StatusPage) {
        let leader = self.raft.metrics().borrow().current_leader.unwrap_or(0);
        page.set_gauge(Gauge::Leader, leader);
        page.set_gauge(Gauge::Members, self.members().len() as u64);
        page.set_gauge(Gauge::Names, self.keeper.look(|directory| directory.names().count()) as u64);
    }

    /// Whether a node answers the leader, and has not said that it hangs. A leader that is new gives everybody time.
    pub(crate) fn answers(&self, node: u16, now: Instant, within: Duration) -> bool {
        if self.stalled.when(node).is_some_and(|when| now.duration_since(when) <= STALLED_FOR) {
            return false;
        }
        node == self.node || self.heard.when(node).is_some_and(|when| now.duration_since(when) <= within)
    }

    async fn lead(&self, now: Instant, since: Instant) {
        let _one_at_a_time = self.members.lock().await;
        self.leaving.tidy(self.raft.metrics().borrow().current_term, now);
        if let Err(reply) = self.found().await {
            return tracing::debug!(?reply, "cannot end the founding of the cluster yet");
        }
        let members = self.members();
        for &(node, _) in &members {
            let life = self.keeper.look(|directory| directory.life(node));
            let silent = || now.duration_since(since) > DEAD_AFTER && !self.answers(node, now, DEAD_AFTER);
            let mut doom = None;
            let command = if life.alive && silent() {
                // From here on it gets no lease, and it has none any more.
                doom = self.doomed.doom(node, silent);
                if doom.is_none() {
                    continue;
                }
                Command::Dead { node, epoch: life.epoch }
            } else if !life.alive && life.epoch > 0 && self.answers(node, now, ALIVE_WITHIN) {
                Command::Alive { node, run: life.run }
            } else {
                continue;
            };
            if let Err(error) = self.raft.client_write(command).await {
                tracing::debug!(node, %error, "cannot say how a node is");
            }
            drop(doom);
        }
        self.end_removals().await;
        let (voters, wanted) = (self.voters(), self.wanted_voters(now, None));
        if voters != wanted {
            tracing::info!(?voters, ?wanted, "changing who votes");
            if let Err(error) = self.raft.change_membership(ChangeMembers::ReplaceAllVoters(wanted), true).await {
                tracing::debug!(%error, "cannot change who votes");
            }
        }
    }

    /// Who should vote, as this leader sees it.
    pub(crate) fn wanted_voters(&self, now: Instant, without: Option<u16>) -> BTreeSet<u64> {
        let voters = self.voters();
        let nodes = self.members().into_iter().filter(|&(node, _)| Some(node) != without);
        choose_voters(nodes.map(|(node, _)| Candidate {
            node,
            leads: node == self.node,
            answers: self.answers(node, now, DEAD_AFTER),
            votes: voters.contains(&node.into()),
        }))
    }

    /// Asks another node whether this one is a member still, if it has not heard of a leader for a while: the cluster says
    /// nothing to a node that it has removed. Each time another one; what the answer says is learned where it comes in.
    async fn probe_if_quiet(&self, now: Instant, began: Instant) {
        let leader = self.raft.metrics().borrow().current_leader.and_then(|leader| u16::try_from(leader).ok());
        let heard = leader.and_then(|leader| self.heard.when(leader)).unwrap_or(began);
        if now.duration_since(heard) >= QUIET_AFTER
            && let Some(member) = self.somebody()
            && let Err(error) = self.caller.ask(member, &Call::Probe, ASK_MAX).await
        {
            tracing::debug!(%member, %error, "cannot ask whether this node is a member still");
        }
    }

    /// Tells the cluster that this node is there, in this run and at this place, until the cluster knows it.
    async fn announce_ourselves(&self, run: u32) {
        let life = self.keeper.look(|directory| directory.life(self.node));
        let known = self.keeper.members().into_iter().find(|&(node, _)| node == self.node);
        // A node that hangs is no good to anybody, and is alive again when it goes on.
        let is_known = life.alive && life.run == run && known.is_some_and(|(_, member)| member == self.ours);
        if self.stall.is_stalled() {
            return;
        }
        if self.caller.removal.is_out() {
            return;
        }
        if let Err(why) = self.is_still_itself().await {
            return self.step_aside(&why).await;
        }
        if is_known && self.is_registered() {
            return;
        }
        // Not before this node has written down what it hears: without it, it would be taken for one that has lost it.
        if self.members().iter().any(|&(node, _)| node == self.node)
            && let Err(why) = self.register().await
        {
            return self.step_aside(&why).await;
        }
        let call = Call::Announce { node: self.node, member: self.ours, run };
        match self.ask_leader(&call, ASK_MAX).await {
            Ok(Reply::Refused(why)) => tracing::warn!(why, "the cluster does not know this node"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cannot reach the cluster's leader yet"),
        }
    }

    /// Gives back names that the directory holds for this node and that it does not have, as after a crash between a
    /// claim and the segment it was for; and claims those that it has and that the directory does not know.
    async fn sweep(&self, held: &OwnedNames) {
        let node = self.node;
        // Another start may have names by now of which this one knows nothing.
        if !self.is_registered() {
            return;
        }
        let stale = self.keeper.look(|directory| held.compare(directory, node, SWEEP_MAX));
        for command in stale {
            let name = match &command {
                Command::Claim { name, .. } | Command::Disclaim { name, .. } | Command::Yield { name, .. } => {
                    name.clone()
                }
                _ => continue,
            };
            match self.ask_leader(&Call::Propose(command), ASK_MAX).await {
                // The cluster knew it all the time, and this node has not caught up: it will see so.
                Ok(Reply::Applied(Answer::Taken { home })) if home == node => {}
                Ok(Reply::Applied(Answer::Taken { home })) => {
                    tracing::error!(
                        name,
                        home,
                        "a segment of this node has a name that another node holds: release one of them"
                    );
                    held.give_up(&name);
                }
                Ok(Reply::NotMember) => return,
                Ok(_) => tracing::info!(name, "set a name right in the cluster's directory"),
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_votes_and_votes_go_to_those_who_answer() {
        // If this broke, the death of a minority would be the end of all names, or votes would wander without need.
        let all: &[u16] = &[1, 2, 3, 4, 5, 6, 7];
        let chosen = |nodes: &[u16], leader: u16, silent: &[u16], voters: &[u16]| {
            let candidates = nodes.iter().map(|&node| Candidate {
                node,
                leads: node == leader,
                answers: !silent.contains(&node),
                votes: voters.contains(&node),
            });
            choose_voters(candidates).into_iter().collect::<Vec<u64>>()
        };
        for (nodes, leader, silent, voters, expected) in [
            (&all[..1], 1, &[][..], &[1][..], &[1][..]),
            (&all[..2], 2, &[], &[2], &[2]),
            (&all[..3], 1, &[], &[1], &[1, 2, 3]),
            (&all[..4], 1, &[], &[1, 2, 3], &[1, 2, 3]),
            (&all[..4], 1, &[2], &[1, 2, 3], &[1, 3, 4]),
            (&all[..5], 1, &[], &[1, 2, 3], &[1, 2, 3, 4, 5]),
            (all, 7, &[], &[3, 4, 5, 6, 7], &[3, 4, 5, 6, 7]),
            // Two die: their votes go to those who learned, and not back when they are alive again.
            (&all[..6], 3, &[1, 2], &[1, 2, 3, 4, 5], &[1, 3, 4, 5, 6]),
            (all, 3, &[1, 2], &[1, 2, 3, 4, 5], &[3, 4, 5, 6, 7]),
            (all, 3, &[], &[3, 4, 5, 6, 7], &[3, 4, 5, 6, 7]),
        ] {
            assert_eq!(chosen(nodes, leader, silent, voters), expected, "{nodes:?} {leader} {silent:?} {voters:?}");
        }
    }
}
