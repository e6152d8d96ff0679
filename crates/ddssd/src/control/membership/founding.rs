//! Founding of a cluster by the listed nodes (`--peer`).
//!
//! The lists count only for the founding. Afterwards a node becomes a member only by a join: a list that re-added its
//! nodes would undo each removal.

use crate::control::identity::member::Member;
use crate::control::rpc::context::Context;
use crate::control::rpc::types::Reply;
use crate::control::rpc::types::{not_now_reply, write_error_reply};
use ddss_admin::PeerAddress;
use openraft::ChangeMembers;
use std::collections::BTreeMap;

/// Selects the first voters: the lowest node, or the lowest three or five. A list that names this node has the
/// address that the other nodes know: all founders must begin with the same membership.
pub(in crate::control) fn founders(node: u16, ours: Member, peers: &[PeerAddress]) -> BTreeMap<u64, Member> {
    let all: BTreeMap<u64, Member> = [(node.into(), ours)].into_iter().chain(listed(peers)).collect();
    let count = match all.len() {
        0..3 => 1,
        3..5 => 3,
        _ => 5,
    };
    all.into_iter().take(count).collect()
}

fn listed(peers: &[PeerAddress]) -> impl Iterator<Item = (u64, Member)> {
    peers.iter().map(|peer| (peer.node.0.into(), Member { address: peer.address }))
}

impl Context {
    /// Completes the founding: the leader adds the listed nodes that are not first voters. This is always one
    /// membership change, even without nodes to add. The first membership is the first log entry; a later one shows
    /// that the founding is complete.
    ///
    /// The caller holds the membership lock, and changes no membership before this returns.
    pub(in crate::control) async fn complete_founding(&self) -> Result<(), Reply> {
        let (newest, applied) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (*metrics.membership_config.log_id(), metrics.last_applied)
        };
        if newest.is_none_or(|log_id| log_id.index > 0) {
            return Ok(());
        }
        if applied.is_none() {
            return Err(not_now_reply("the first voters have not agreed on the cluster yet"));
        }
        let all = ChangeMembers::AddNodes(listed(&self.own.founding_peers).collect());
        let ended = self.raft.change_membership(all, true).await;
        ended.map(drop).map_err(|error| write_error_reply(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::NodeId;
    use std::net::SocketAddr;

    #[test]
    fn founders_agree_on_the_first_voters() {
        // If this broke, nodes that start with the same list would found two clusters.
        let member = |node: u16| Member { address: SocketAddr::from(([127, 0, 0, node as u8], 7400)) };
        // A node in its own list may listen at another address: the listed address counts.
        let elsewhere = Member { address: SocketAddr::from(([127, 1, 0, 1], 7400)) };
        for (count, voters) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (9, 5)] {
            let listed = |node: u16| PeerAddress { node: NodeId(node), address: member(node).address };
            let others = |node: u16| (1..=count).filter(|&other| other != node).map(listed).collect::<Vec<_>>();
            let all: Vec<_> = (1..=count).map(listed).collect();
            let seen: Vec<_> = (1..=count)
                .flat_map(|node| [founders(node, member(node), &others(node)), founders(node, elsewhere, &all)])
                .collect();
            assert!(seen.iter().all(|founders| *founders == seen[0] && founders.len() == voters), "{seen:?}");
        }
    }
}
