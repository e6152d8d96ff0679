//! The founding of a cluster: the nodes that are listed (`--peer`) begin it, and the lists count for nothing else. Once the
//! founding has ended a node comes in only if it asks to join: a list that brought back each node that it names would undo
//! each removal.

use crate::config::config::PeerAddress;
use crate::control::raft::types::Member;
use crate::control::rpc::server::{Context, not_now, unwritten};
use crate::control::rpc::types::Reply;
use openraft::ChangeMembers;
use std::collections::BTreeMap;

/// The voters of a cluster that begins with these nodes: the lowest one, three or five. A list that names this node has the
/// address that the other nodes know: each of them has to begin with the same words.
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
    /// Ends the founding: the leader takes in the listed nodes that are not among the first voters. It is one change of the
    /// membership, also if there is none to take in. The first membership is the first entry of the log; a later one says
    /// that the founding has ended. The caller holds the lock of `members`, and changes no membership before this is done.
    pub(in crate::control) async fn found(&self) -> Result<(), Reply> {
        let (newest, applied) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (*metrics.membership_config.log_id(), metrics.last_applied)
        };
        if newest.is_none_or(|log_id| log_id.index > 0) {
            return Ok(());
        }
        if applied.is_none() {
            return Err(not_now("the first voters have not agreed on the cluster yet"));
        }
        let all = ChangeMembers::AddNodes(listed(&self.peers).collect());
        let ended = self.raft.change_membership(all, true).await;
        ended.map(drop).map_err(|error| unwritten(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::NodeId;
    use std::net::SocketAddr;

    #[test]
    fn those_who_begin_a_cluster_agree_who_votes() {
        // If this broke, nodes that start with the same words would begin two clusters.
        let member = |node: u16| Member { address: SocketAddr::from(([127, 0, 0, node as u8], 7400)) };
        // A node that names itself may listen somewhere else: the address that the others know counts.
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
