//! Choice of the voters: nodes that answer the leader.

use crate::control::rpc::context::Context;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A node that has not answered the leader for this time is declared dead.
pub(in crate::control) const DEAD_AFTER: Duration = Duration::from_secs(3);
/// Time for which a stall report counts. A stalled node repeats it every 400 ms, in calls of up to a second.
const STALLED_FOR: Duration = Duration::from_secs(2);

/// A node that could vote.
#[derive(Clone, Copy, Debug)]
struct VoterCandidate {
    node: u16,
    is_leader: bool,
    is_answering: bool,
    is_voter: bool,
}

/// Selects one, three or five voters: first nodes that answer, then present voters, then the lowest ids.
fn choose_voters(nodes: impl Iterator<Item = VoterCandidate>) -> BTreeSet<u64> {
    let mut nodes: Vec<VoterCandidate> = nodes.collect();
    let count = match nodes.len() {
        0..3 => 1,
        3..5 => 3,
        _ => 5,
    };
    // The leader stays a voter as long as possible: a change of leader pauses the whole cluster.
    nodes.sort_by_key(|node| (!node.is_leader, !node.is_answering, !node.is_voter, node.node));
    nodes.into_iter().take(count).map(|node| node.node.into()).collect()
}

impl Context {
    /// Returns true if a node answers the leader and has not reported a stall. A new leader first gives all nodes
    /// time.
    pub(crate) fn is_answering(&self, node: u16, now: Instant, within: Duration) -> bool {
        if self.contacts.stall_reports.time_of(node).is_some_and(|when| now.duration_since(when) <= STALLED_FOR) {
            return false;
        }
        node == self.node || self.contacts.answers.time_of(node).is_some_and(|when| now.duration_since(when) <= within)
    }

    /// Selects the voters as this leader sees the nodes.
    pub(crate) fn wanted_voters(&self, now: Instant, without: Option<u16>) -> BTreeSet<u64> {
        let voters = self.voters();
        // A vote that a node gives before it is registered would be forgotten unseen, if its state is lost.
        let is_known = |node: u16| {
            voters.contains(&node.into()) || self.state_machine.read(|known| known.registration(node)).is_some()
        };
        let nodes = self.members().into_iter().filter(|&(node, _)| Some(node) != without && is_known(node));
        choose_voters(nodes.map(|(node, _)| VoterCandidate {
            node,
            is_leader: node == self.node,
            is_answering: self.is_answering(node, now, DEAD_AFTER),
            is_voter: voters.contains(&node.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voter_count_is_odd_and_answering_nodes_are_preferred() {
        // If this broke, the death of a minority would stop all names, or votes would move without need.
        let all: &[u16] = &[1, 2, 3, 4, 5, 6, 7];
        let chosen = |nodes: &[u16], leader: u16, silent: &[u16], voters: &[u16]| {
            let candidates = nodes.iter().map(|&node| VoterCandidate {
                node,
                is_leader: node == leader,
                is_answering: !silent.contains(&node),
                is_voter: voters.contains(&node),
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
            // Two nodes die: their votes go to learners, and do not return when the nodes are alive again.
            (&all[..6], 3, &[1, 2], &[1, 2, 3, 4, 5], &[1, 3, 4, 5, 6]),
            (all, 3, &[1, 2], &[1, 2, 3, 4, 5], &[3, 4, 5, 6, 7]),
            (all, 3, &[], &[3, 4, 5, 6, 7], &[3, 4, 5, 6, 7]),
        ] {
            assert_eq!(chosen(nodes, leader, silent, voters), expected, "{nodes:?} {leader} {silent:?} {voters:?}");
        }
    }
}
