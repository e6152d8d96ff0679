//! State that all tasks of the control plane share.

use super::client::RpcClient;
use super::last_contact::LastContact;
use super::types::Reply;
use crate::control::departing_nodes::DepartingNodes;
use crate::control::fenced_nodes::{FencedNodes, ProposalsInFlight};
use crate::control::identity::member::{Member, Registration};
use crate::control::majority::{LEADER_HEARD_WITHIN, Majority};
use crate::control::raft::log::LogFull;
use crate::control::raft::state_machine::StateMachine;
use crate::control::raft::types::Raft;
use crate::control::stall::Stall;
use crate::status::RaftStatus;
use ddss_admin::{HostPort, PeerAddress};
use openraft::ServerState;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use tokio::sync::Mutex;

/// State that all tasks of the control plane share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) raft: Raft,
    pub(crate) state_machine: StateMachine,
    pub(crate) rpc_client: RpcClient,
    pub(crate) node: u16,
    pub(crate) own: OwnNode,
    pub(crate) contacts: Contacts,
    pub(crate) membership: MembershipChanges,
    pub(crate) health: Health,
    /// Index of the next member to ask where no leader is known.
    pub(crate) next_member: Arc<AtomicUsize>,
    /// Proposals in flight for replicated segments: one of each kind for a segment.
    pub(crate) proposals_in_flight: ProposalsInFlight,
}

/// This node, as the cluster is to know it, and where it finds the cluster.
#[derive(Clone)]
pub(crate) struct OwnNode {
    pub(crate) member: Member,
    /// Registration of this start of this node.
    pub(crate) registration: Registration,
    /// Address where this node joined: used if no member is at its known address.
    pub(crate) join_address: Option<HostPort>,
    /// The listed nodes of the founding.
    pub(crate) founding_peers: Arc<[PeerAddress]>,
}

/// Times of the last contacts with other nodes.
#[derive(Clone, Default)]
pub(crate) struct Contacts {
    /// Last answer of each member to a Raft call of this node.
    pub(crate) answers: LastContact,
    /// Last accepted message of each leader to this node.
    pub(crate) leaders: LastContact,
    /// Last stall report of each node to this leader.
    pub(crate) stall_reports: LastContact,
    /// Last lease of each node from this leader.
    pub(crate) leases: LastContact,
}

/// Changes of the membership that are under way.
#[derive(Clone, Default)]
pub(crate) struct MembershipChanges {
    /// Lock of membership changes: one change at a time.
    pub(crate) lock: Arc<Mutex<()>>,
    /// Nodes that this leader grants no lease.
    pub(crate) fenced_nodes: FencedNodes,
    /// Nodes that are being removed.
    pub(crate) departing: DepartingNodes,
    /// True while this leader hands over: it takes no proposal.
    pub(crate) hands_over: Arc<AtomicBool>,
    /// True once this node does not belong to the cluster any more.
    pub(crate) has_left: Arc<AtomicBool>,
}

/// Health of this node and of the cluster, as other tasks have found it.
#[derive(Clone)]
pub(crate) struct Health {
    /// True while a majority of the voters is reachable.
    pub(crate) majority: Majority,
    /// True while a progress thread of this node is stalled.
    pub(crate) stall: Stall,
    /// True while this node's log waits for disk space.
    pub(crate) log_full: LogFull,
    /// Progress of the Raft group, for the metrics.
    pub(crate) raft_status: RaftStatus,
}

impl Context {
    /// Returns true if the Raft library has stopped: it could not write its log, for a reason other than a full disk.
    pub(crate) fn has_stopped(&self) -> bool {
        self.raft.metrics().borrow().running_state.is_err()
    }

    pub(crate) fn is_leader(&self) -> bool {
        // A leader that was removed from the membership remains listed as the leader that it voted for.
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.state == ServerState::Leader && metrics.current_leader == Some(self.node.into())
    }

    /// Returns the leader that this node knows.
    pub(crate) fn leader(&self) -> Option<Member> {
        let leader = self.raft.metrics().borrow().current_leader?;
        self.members().into_iter().find(|&(node, _)| u64::from(node) == leader).map(|(_, member)| member)
    }

    /// Returns this node if it leads, or the leader that it has heard from lately. The Raft library never forgets a dead
    /// leader on a node that cannot vote.
    pub(crate) fn live_leader(&self) -> Option<u16> {
        let leader = self.raft.metrics().borrow().current_leader.and_then(|leader| u16::try_from(leader).ok())?;
        let heard = self.contacts.leaders.time_of(leader);
        let is_live = self.is_leader() || heard.is_some_and(|heard| heard.elapsed() < LEADER_HEARD_WITHIN);
        is_live.then_some(leader)
    }

    /// Returns the nodes of the newest membership, committed or not.
    pub(crate) fn members(&self) -> Vec<(u16, Member)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let nodes = metrics.membership_config.nodes();
        nodes.filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member))).collect()
    }

    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.raft.metrics().borrow().membership_config.membership().voter_ids().collect()
    }

    pub(crate) fn is_member(&self, node: u16) -> bool {
        self.raft.metrics().borrow().membership_config.membership().get_node(&node.into()).is_some()
    }

    /// Returns true if this node knows that a node left or was removed.
    pub(crate) fn is_removed(&self, node: u16) -> bool {
        self.state_machine.read(|directory| directory.is_removed(node))
    }

    /// Reports the known registration of a starting node. This node may lag behind, but its knowledge stays true: an
    /// id belongs to one folder, and starts only count upwards.
    pub(crate) fn registration_status(&self, node: u16, next: Registration) -> Reply {
        let known = self.state_machine.read(|directory| directory.registration(node));
        let member = self.members().into_iter().find(|&(other, _)| other == node).map(|(_, member)| member);
        if let Some(known) = known.filter(|known| !known.admits(next)) {
            return Reply::Refused(known.refusal(node, member, next));
        }
        // A survivor of the former cluster has no vote in this one that it could have forgotten.
        let is_new = self.state_machine.read(|directory| directory.is_former_member(node));
        Reply::Known { registered: known.is_some() && !is_new, member }
    }

    /// Returns true if this start is the newest known registration of this node.
    pub(crate) fn is_registered(&self) -> bool {
        self.state_machine.read(|directory| directory.registration(self.node)) == Some(self.own.registration)
    }

    /// Returns true if a Raft message comes from another cluster: this node has founded its own and is alone in it.
    /// This happens when a voter restarts without its state and without peers.
    pub(crate) fn is_from_other_cluster(&self, leader: Option<u64>) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let mut voters = metrics.membership_config.membership().voter_ids();
        let is_alone = voters.next() == Some(self.node.into())
            && voters.next().is_none()
            && metrics.membership_config.nodes().count() == 1;
        is_alone && leader != Some(self.node.into())
    }
}
