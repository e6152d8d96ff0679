//! Removal of a node from the cluster for good, by its own request or by an operator.
//!
//! The removal has several steps. The caller repeats the request until all are done; a new leader continues where the
//! last one stopped. A live node is *fenced* first: it gets no lease any more, and its last lease expires. It does
//! not see the decision of its removal, and would otherwise serve its replicated segments beside the replicas that
//! take over.

use crate::control::identity::member::Member;
use crate::control::raft::directory::Directory;
use crate::control::raft::types::Command;
use crate::control::rpc::context::Context;
use crate::control::rpc::name_sample::NameSample;
use crate::control::rpc::stream::CONNECT_MAX;
use crate::control::rpc::types::{Call, Reply};
use crate::control::rpc::types::{not_now_reply, write_error_reply};
use openraft::ChangeMembers;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time to wait for a contact of a live node: the leader calls each node ten times a second.
const HEARD_WITHIN: Duration = Duration::from_millis(500);
/// Remaining steps of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RemainingWork {
    /// The node is out, and the directory has no state of it.
    Nothing,
    /// The node is the last member.
    Impossible,
    /// The node is a member: all steps remain.
    All,
    /// The node is no member, but the directory still has its state: an earlier leader did not finish.
    Directory,
    /// The node never was a member.
    NeverMember,
}

/// Determines the remaining steps. `is_known`: the directory has a status or names of the node; `was_member`: its
/// removal is complete.
fn remaining_work(members: impl Iterator<Item = u16>, is_known: bool, was_member: bool, node: u16) -> RemainingWork {
    let (mut is_member, mut others) = (false, false);
    for member in members {
        (is_member, others) = (is_member || member == node, others || member != node);
    }
    match (is_member, others) {
        (true, false) => RemainingWork::Impossible,
        (true, true) => RemainingWork::All,
        (false, _) if is_known => RemainingWork::Directory,
        (false, _) if was_member => RemainingWork::Nothing,
        (false, _) => RemainingWork::NeverMember,
    }
}

/// Segments that would be lost.
#[derive(Debug)]
struct Loss(NameSample);

impl Loss {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self(NameSample::of(names))
    }

    /// Refuses a leave without `--force`.
    fn refusal_to_leave(&self) -> String {
        let are = if self.0.count == 1 { "1 segment is".to_owned() } else { format!("{} segments are", self.0.count) };
        format!("{are} only here: `ddss export` what is to be kept, or --force ({})", self.0.names())
    }

    /// Refuses the removal of a live node without `--force`.
    fn refusal_to_remove(&self, node: u16) -> String {
        let lost = match self.0.count {
            0 => "no segment would be lost".to_owned(),
            1 => format!("1 segment is only there and would be lost: {}", self.0.names()),
            count => format!("{count} segments are only there and would be lost: {}", self.0.names()),
        };
        format!("node {node} is alive: run `ddss cluster leave` there, or remove it with --force ({lost})")
    }
}

impl Context {
    /// Removes a node, as far as this is possible now. Runs on the leader, one change at a time. Without force it
    /// refuses a leave that would lose segments, and the removal of a live node.
    pub(in crate::control) async fn remove(&self, node: u16, force: bool, leaves: bool) -> Reply {
        // A new leader may not have applied all earlier decisions yet.
        if let Err(error) = self.raft.ensure_linearizable().await {
            return match error.forward_to_leader() {
                Some(forward) => Reply::NotLeader(forward.leader_node),
                None => not_now_reply(error),
            };
        }
        let only_there = || self.state_machine.read(|directory| Loss::of(directory.names_only_at(node)));
        let (is_known, was_member) =
            self.state_machine.read(|directory| (directory.has_state_of(node), directory.is_removed(node)));
        let members = self.members();
        let address = members.iter().find(|&&(other, _)| other == node).map(|&(_, member)| member);
        let remaining_work = remaining_work(members.into_iter().map(|(node, _)| node), is_known, was_member, node);
        if remaining_work == RemainingWork::All
            && !force
            && let Err(reply) = self.check_removal(node, leaves, &only_there()).await
        {
            return reply;
        }
        match remaining_work {
            RemainingWork::Nothing => return self.removed_reply(node),
            RemainingWork::NeverMember => {
                return Reply::Refused(format!("node {node} is no member of this cluster: `ddss nodes` lists them"));
            }
            RemainingWork::Impossible => return Reply::Refused("it is the only node of its cluster".to_owned()),
            RemainingWork::Directory => {}
            // The next leader fences this node. A leader without a vote would lead on and give itself a vote again;
            // only a leader that is no member steps down.
            RemainingWork::All if node == self.node => {
                return match self.remove_member(node).await {
                    Ok(()) => not_now_reply("handing over to another leader"),
                    Err(reply) => reply,
                };
            }
            RemainingWork::All => {
                if !self.has_lease_expired(node) {
                    return not_now_reply("the lease of the node that is to go runs out");
                }
                if let Err(reply) = self.remove_member(node).await {
                    return reply;
                }
            }
        }
        // Checked again: this leader may have lost the leadership for a moment.
        if !self.has_lease_expired(node) {
            return not_now_reply("the lease of the node that went runs out");
        }
        match self.raft.client_write(Command::Gone { node }).await {
            Ok(_) => {
                if let Some(address) = address.filter(|_| !leaves) {
                    self.notify_removed(node, address);
                }
                self.removed_reply(node)
            }
            Err(error) => write_error_reply(&error),
        }
    }

    /// Returns the reply for a node whose removal is complete. The count of lost segments is the same for each repeated
    /// request, even if the leader finished the removal by itself.
    fn removed_reply(&self, node: u16) -> Reply {
        let state =
            |directory: &Directory| (directory.lost_names(node), NameSample::of(directory.names_uncopied_from(node)));
        let (dropped, uncopied) = self.state_machine.read(state);
        Reply::Removed { dropped, uncopied }
    }

    /// Replies to a removed node. It learns what its own leave has lost, and nothing else.
    pub(in crate::control) fn reply_to_removed(&self, node: u16, call: &Call) -> Reply {
        match call {
            Call::Remove { node: leaver, leaves: true, .. } if *leaver == node => self.removed_reply(node),
            _ => Reply::NotMember,
        }
    }

    /// Checks that a member may be removed without force.
    async fn check_removal(&self, node: u16, leaves: bool, loss: &Loss) -> Result<(), Reply> {
        if leaves {
            return if loss.0.count == 0 { Ok(()) } else { Err(Reply::Refused(loss.refusal_to_leave())) };
        }
        if !self.state_machine.read(|directory| directory.node_status(node).alive) {
            return Ok(());
        }
        // The node may have died a moment ago: only a contact after this moment shows that it lives.
        let asked = Instant::now();
        while asked.elapsed() < HEARD_WITHIN {
            if node == self.node || self.contacts.answers.time_of(node).is_some_and(|heard| heard > asked) {
                return Err(Reply::Refused(loss.refusal_to_remove(node)));
            }
            tokio::time::sleep(HEARD_WITHIN / 20).await;
        }
        Err(not_now_reply("it is not known yet whether the node is alive"))
    }

    /// Notifies a node of its removal. A node that misses it learns it from the reply to its next call.
    fn notify_removed(&self, node: u16, address: Member) {
        let rpc_client = self.rpc_client.clone();
        tokio::spawn(async move {
            let reply = rpc_client.ask(address, &Call::NotifyRemoved { node }, CONNECT_MAX).await;
            tracing::debug!(node, ?reply, "notified a node of its removal");
        });
    }

    /// Finishes removals that another leader began: nodes that are no members and that the directory still knows. The
    /// leader does so by itself, because the first caller may not repeat the request.
    pub(in crate::control) async fn finish_removals(&self) {
        let members = self.members();
        let is_member = |node: u16| members.iter().any(|&(member, _)| member == node);
        let begun: Vec<u16> =
            self.state_machine.read(|directory| directory.known_nodes().filter(|&node| !is_member(node)).collect());
        for node in begun {
            if self.has_lease_expired(node)
                && let Err(error) = self.raft.client_write(Command::Gone { node }).await
            {
                tracing::debug!(node, %error, "cannot finish the removal of a node yet");
            }
        }
    }

    /// Returns true if a node certainly serves no replicated segment any more.
    fn has_lease_expired(&self, node: u16) -> bool {
        let needs_fence = self.state_machine.read(|directory| directory.node_status(node).alive)
            && self.state_machine.has_replicas(node);
        let term = self.raft.metrics().borrow().current_term;
        !needs_fence
            || self.membership.departing.has_lease_expired(&self.membership.fenced_nodes, node, term, Instant::now())
    }

    async fn remove_vote(&self, node: u16) -> Result<(), Reply> {
        if !self.voters().contains(&node.into()) {
            return Ok(());
        }
        let voters = self.wanted_voters(Instant::now(), Some(node));
        let changed = self.raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), true).await;
        changed.map(drop).map_err(|error| write_error_reply(&error))
    }

    async fn remove_member(&self, node: u16) -> Result<(), Reply> {
        self.remove_vote(node).await?;
        let nodes = BTreeSet::from([node.into()]);
        let changed = self.raft.change_membership(ChangeMembers::RemoveNodes(nodes), true).await;
        changed.map(drop).map_err(|error| write_error_reply(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::rpc::name_sample::LISTED_NAMES_MAX;

    #[test]
    fn removal_is_finished_by_next_leader() {
        // If this broke, a leader that dies between two steps would block the names of a removed node for ever.
        for (members, is_known, node, expected) in [
            (&[1, 2, 3][..], (true, false), 3, RemainingWork::All),
            (&[1, 2, 3], (false, false), 3, RemainingWork::All),
            (&[1, 2], (true, false), 3, RemainingWork::Directory),
            (&[1], (true, false), 3, RemainingWork::Directory),
            (&[1, 2], (false, true), 3, RemainingWork::Nothing),
            (&[1], (false, true), 3, RemainingWork::Nothing),
            (&[1, 2], (false, false), 3, RemainingWork::NeverMember),
            (&[3], (true, false), 3, RemainingWork::Impossible),
        ] {
            let (known, removed) = is_known;
            assert_eq!(
                remaining_work(members.iter().copied(), known, removed, node),
                expected,
                "{members:?} {is_known:?}"
            );
        }
    }

    #[test]
    fn refusal_lists_first_names_and_counts_the_rest() {
        // If this broke, an operator would not see the losses, or would get thousands of names.
        let names: Vec<String> = (0..LISTED_NAMES_MAX + 2).map(|index| format!("n{index}")).collect();
        let refusal = Loss::of(names.iter().map(String::as_str)).refusal_to_remove(3);
        assert!(
            refusal.contains("node 3 is alive") && refusal.contains("12 segments") && refusal.contains("n9 and 2 more"),
            "{refusal}"
        );
        let refusal = Loss::of(["a"].into_iter()).refusal_to_leave();
        assert!(refusal.starts_with("1 segment is only here: ") && refusal.ends_with("(a)"), "{refusal}");
        assert!(Loss::of([].into_iter()).refusal_to_remove(3).contains("no segment would be lost"));
    }
}
