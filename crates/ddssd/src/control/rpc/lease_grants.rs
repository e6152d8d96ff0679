//! Leases on the leader: it grants them to nodes that answer it, and records which nodes report that they are stalled.

use super::context::Context;
use super::types::{Reply, not_now_reply};
use openraft::error::{CheckIsLeaderError, RaftError};
use std::time::{Duration, Instant};

/// Maximum wait for the entries that a node with a lease has to know.
const APPLIED_MAX: Duration = Duration::from_secs(1);

impl Context {
    /// Records on the leader that a node is stalled. Reports of an older run are ignored.
    pub(crate) fn record_stall(&self, node: u16, run: u32) -> Reply {
        if !self.is_leader() {
            return Reply::NotLeader(self.leader());
        }
        if self.state_machine.read(|directory| directory.node_status(node)).run == run {
            self.contacts.stall_reports.record(node);
        }
        Reply::Done
    }

    /// Answers a renewal on the leader.
    pub(crate) async fn renew(&self, node: u16, run: u32) -> Reply {
        if self.is_leader() && !self.is_member(node) {
            return not_now_reply("it is no member any more");
        }
        {
            // Uses the lock of `fence`: either the lease is recorded first, or the node is fenced first.
            let fenced_nodes = self.membership.fenced_nodes.nodes();
            if fenced_nodes.contains(&node) {
                return not_now_reply("it is about to be declared dead, or is leaving");
            }
            if self.is_leader() && !self.is_heard(node, Instant::now()) {
                return not_now_reply("it does not answer this leader's calls");
            }
            self.contacts.leases.record(node);
            self.contacts.stall_reports.forget(node);
        }
        let newest = match self.raft.get_read_log_id().await {
            Ok((newest, _)) => newest,
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                return Reply::NotLeader(forward.leader_node);
            }
            Err(error) => return not_now_reply(error),
        };
        let index = newest.map(|log_id| log_id.index);
        if let Err(error) = self.raft.wait(Some(APPLIED_MAX)).applied_index_at_least(index, "renew").await {
            return not_now_reply(error);
        }
        let life = self.state_machine.read(|directory| directory.node_status(node));
        if life.alive && life.run == run { Reply::Newest(newest) } else { not_now_reply("it is not known to be alive") }
    }
}
