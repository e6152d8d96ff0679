//! Hand-over of the leadership to another voter.
//!
//! A voter grants no vote within a second of its leader's last message. So the leader first lets its successor have every
//! entry. Then it frees the voters, itself included, from their word: each grants its next vote to the successor in
//! advance. At last the successor begins an election, which it wins in one round. A leader or a successor that dies in
//! between leaves voters without a word: they elect a node within a second.

use crate::control::raft::types::{LogId, Vote};
use crate::control::rpc::context::Context;
use crate::control::rpc::types::{Call, Reply, not_now_reply};
use openraft::raft::AppendEntriesRequest;
use openraft::{CommittedLeaderId, ServerState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A successor has answered this leader within this time: the leader calls each node ten times a second.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time in which the successor gets the last entries.
const CATCH_UP_MAX: Duration = Duration::from_millis(500);
/// Maximum time of one call to a voter. An election takes one round and two writes to the log.
const CALL_MAX: Duration = Duration::from_millis(500);
/// Maximum time in which a stopping leader hands over.
const STOP_MAX: Duration = Duration::from_millis(1500);

/// Lets this leader take no proposal until it is dropped.
struct ClosedGate(Arc<AtomicBool>);

impl ClosedGate {
    fn close(gate: &Arc<AtomicBool>) -> Self {
        gate.store(true, Ordering::Release);
        Self(Arc::clone(gate))
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Context {
    /// Hands the leadership over to a voter that an operator has named. Runs on the leader, under the lock of membership
    /// changes.
    pub(in crate::control) async fn transfer_leadership(&self, successor: u16) -> Reply {
        if successor == self.node {
            return Reply::Done;
        }
        if let Some(why) = self.successor_refusal(successor).await {
            return Reply::Refused(why);
        }
        match self.hand_over(&[successor]).await {
            Ok(_) => Reply::Done,
            Err(why) => not_now_reply(why),
        }
    }

    /// Hands the leadership of this node, which stops, over to the voter with the newest log. Without another voter that
    /// answers nothing happens.
    pub(in crate::control) async fn hand_over_before_stop(&self) {
        let successors = self.successors();
        if !self.is_leader() || !self.has_majority() || successors.is_empty() {
            return;
        }
        let handed_over = tokio::time::timeout(STOP_MAX, async {
            let _one_at_a_time = self.membership.lock.lock().await;
            self.hand_over(&successors).await
        });
        match handed_over.await {
            Ok(Ok(leader)) => tracing::info!(leader, "handed the leadership over"),
            Ok(Err(why)) => tracing::info!(why, "stopping as leader: the others elect one"),
            Err(_) => tracing::info!("stopping as leader: the hand-over takes too long"),
        }
    }

    /// Begins an election on this node, because the leader of that term asks for it. Returns once this node leads.
    pub(in crate::control) async fn start_election(&self, term: u64) -> Reply {
        let is_late = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            metrics.current_term > term && metrics.current_leader.is_some()
        };
        if is_late {
            return not_now_reply("another leader was elected");
        }
        if let Err(error) = self.raft.trigger().elect().await {
            return not_now_reply(error);
        }
        let wait = self.raft.wait(Some(CALL_MAX));
        let leads = wait.metrics(|metrics| metrics.state == ServerState::Leader, "elected");
        match leads.await {
            Ok(_) => Reply::Done,
            Err(error) => not_now_reply(error),
        }
    }

    /// Returns the voters that could lead next: those that answer, and the newest log first.
    fn successors(&self) -> Vec<u16> {
        let logs = self.raft.metrics().borrow().replication.clone().unwrap_or_default();
        let (now, newest) = (Instant::now(), |voter: u16| logs.get(&voter.into()).copied().flatten());
        let others = self.voters().into_iter().filter_map(|voter| u16::try_from(voter).ok());
        let mut others: Vec<u16> =
            others.filter(|&voter| voter != self.node && self.is_answering(voter, now, HEARD_WITHIN)).collect();
        others.sort_by_key(|&voter| std::cmp::Reverse(newest(voter)));
        others
    }

    /// Returns why a node cannot lead. A new leader first gives the node time to answer.
    async fn successor_refusal(&self, node: u16) -> Option<String> {
        if !self.is_member(node) {
            return Some(format!("node {node} is no member of this cluster: `ddss nodes` lists them"));
        }
        if !self.voters().contains(&node.into()) {
            return Some(format!("node {node} does not vote: only a voter can lead (`ddss nodes`)"));
        }
        let asked = Instant::now();
        while !self.is_answering(node, Instant::now(), HEARD_WITHIN) {
            if asked.elapsed() > CALL_MAX {
                return Some(format!("node {node} does not answer"));
            }
            tokio::time::sleep(CALL_MAX / 20).await;
        }
        None
    }

    /// Hands the leadership over to one of these nodes, and returns it. The first one gets the last entries.
    async fn hand_over(&self, successors: &[u16]) -> Result<u16, String> {
        let Some(&first) = successors.first() else { return Err("no other voter answers".to_owned()) };
        let _closed = ClosedGate::close(&self.membership.hands_over);
        let term = self.raft.metrics().borrow().current_term;
        let wait = self.raft.wait(Some(CATCH_UP_MAX));
        let is_ready = wait.metrics(
            |metrics| {
                let newest = metrics.last_log_index;
                let log = metrics.replication.as_ref().and_then(|logs| logs.get(&first.into()).copied()?);
                let has_all = log.map(|log| log.index) == newest;
                metrics.state != ServerState::Leader
                    || has_all && metrics.last_applied.map(|applied| applied.index) == newest
            },
            "the successor has every entry",
        );
        is_ready.await.map_err(|error| format!("node {first} does not get the last entries: {error}"))?;
        if !self.is_leader() {
            return Err("this node leads no more".to_owned());
        }
        self.free_votes(term, first).await;
        let mut why = String::new();
        for &successor in successors {
            let Some((_, member)) = self.members().into_iter().find(|&(node, _)| node == successor) else { continue };
            match self.rpc_client.ask(member, &Call::Elect { term }, CALL_MAX * 2).await {
                Ok(Reply::Done) => return Ok(successor),
                Ok(reply) => why = format!("node {successor} was not elected: {reply:?}"),
                Err(error) => why = format!("node {successor} was not elected: {error}"),
            }
        }
        Err(why)
    }

    /// Grants the next vote of every voter but the successor to the successor. The Raft library offers no such call. An
    /// entry behind the end of every log carries the vote: the library takes the vote, and refuses the entry.
    async fn free_votes(&self, term: u64, successor: u16) {
        let (next, absent) =
            (Vote::new(term + 1, successor.into()), CommittedLeaderId::new(term + 1, successor.into()));
        let request = AppendEntriesRequest {
            vote: next,
            prev_log_id: Some(LogId::new(absent, u64::MAX)),
            entries: Vec::new(),
            leader_commit: None,
        };
        let voters = self.voters();
        let others = |node: u16| node != self.node && node != successor && voters.contains(&node.into());
        let mut asked = JoinSet::new();
        for (node, member) in self.members().into_iter().filter(|&(node, _)| others(node)) {
            let (rpc_client, call) = (self.rpc_client.clone(), Call::Append(request.clone()));
            asked.spawn(async move {
                if let Err(error) = rpc_client.ask(member, &call, CALL_MAX).await {
                    tracing::debug!(node, %error, "cannot free the vote of a node");
                }
            });
        }
        asked.join_all().await;
        // The last one: from here on this node does not lead.
        if let Err(error) = self.raft.append_entries(request).await {
            tracing::debug!(%error, "cannot free the vote of this node");
        }
    }
}
