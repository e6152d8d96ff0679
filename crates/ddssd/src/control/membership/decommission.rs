//! How a node goes out of the cluster for good, by its own wish or because somebody said so.
//!
//! It is done in steps, and whoever asks says it again until all of them are done: by another leader, perhaps, which goes
//! on where the first one stopped. A node that lives is *fenced* before anything else: it gets no lease any more, and what
//! it had runs out. It hears nothing of the decision that it is gone, and would serve its mirrored segments beside the
//! mirrors that take over.

use crate::control::raft::types::{Command, Member};
use crate::control::replication::{Doom, Doomed, LEASE};
use crate::control::rpc::server::{Context, not_now, unwritten};
use crate::control::rpc::stream::MEET_MAX;
use crate::control::rpc::types::{Call, Reply};
use openraft::ChangeMembers;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a node that gets no lease is waited for: its own clock may be slower, as `mirrors` says.
const FENCED_AFTER: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2);
/// How long an answer of a node that is alive is waited for: the leader calls each node ten times a second.
const HEARD_WITHIN: Duration = Duration::from_millis(500);
/// Nobody asks any more that it be taken out: it may go on.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

/// The nodes that are to go and get no lease meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decommissioning(Arc<Mutex<HashMap<u16, Fence>>>);

#[derive(Debug)]
struct Fence {
    /// Another leader may have given a lease, before this one led again.
    term: u64,
    since: Instant,
    asked: Instant,
    _doom: Doom,
}

impl Decommissioning {
    /// Whether a node has had no lease for long enough; from the first question on it gets none.
    fn is_fenced(&self, doomed: &Doomed, node: u16, term: u64, now: Instant) -> bool {
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if fences.get(&node).is_some_and(|fence| fence.term != term) {
            fences.remove(&node);
        }
        if let Some(fence) = fences.get_mut(&node) {
            fence.asked = now;
            return now.duration_since(fence.since) > FENCED_AFTER;
        }
        if let Some(doom) = doomed.doom(node, || true) {
            fences.insert(node, Fence { term, since: now, asked: now, _doom: doom });
        }
        false
    }

    /// Forgets those of whom nobody speaks any more, and those of other terms.
    pub(in crate::control) fn tidy(&self, term: u64, now: Instant) {
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fences.retain(|_, fence| fence.term == term && now.duration_since(fence.asked) < FORGOTTEN_AFTER);
    }
}

/// What is left to do for a node that is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RemainingWork {
    /// It is out, and the directory knows nothing of it.
    Nothing,
    /// It is the last one.
    Impossible,
    /// It is a member.
    All,
    /// It is none any more, and the directory has not been told: whoever began it was not there to the end.
    Directory,
    /// It never was a member.
    Stranger,
}

/// `is_known`: the directory has a life or names of it; `was_member`: it is out already.
fn left(members: impl Iterator<Item = u16>, is_known: bool, was_member: bool, node: u16) -> RemainingWork {
    let (mut is_member, mut others) = (false, false);
    for member in members {
        (is_member, others) = (is_member || member == node, others || member != node);
    }
    match (is_member, others) {
        (true, false) => RemainingWork::Impossible,
        (true, true) => RemainingWork::All,
        (false, _) if is_known => RemainingWork::Directory,
        (false, _) if was_member => RemainingWork::Nothing,
        (false, _) => RemainingWork::Stranger,
    }
}

/// Names that a refusal lists.
const LISTED_MAX: usize = 10;

/// So many segments, and some of their names.
#[derive(Debug)]
struct Loss {
    count: usize,
    listed: Vec<String>,
}

impl Loss {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut loss = Self { count: 0, listed: Vec::new() };
        for name in names {
            loss.count += 1;
            if loss.listed.len() < LISTED_MAX {
                loss.listed.push(name.to_owned());
            }
        }
        loss
    }

    fn names(&self) -> String {
        let more = self.count - self.listed.len();
        let listed = self.listed.join(", ");
        if more == 0 { listed } else { format!("{listed} and {more} more") }
    }

    /// What is told to one who leaves and does not say `--force`.
    fn refusal_to_leave(&self) -> String {
        let are = if self.count == 1 { "1 segment is".to_owned() } else { format!("{} segments are", self.count) };
        format!("{are} only here: `ddss export` what is to be kept, or --force ({})", self.names())
    }

    /// What is told to one who removes a node that is alive and does not say `--force`.
    fn refusal_to_remove(&self, node: u16) -> String {
        let lost = match self.count {
            0 => "no segment would be lost".to_owned(),
            1 => format!("1 segment is only there and would be lost: {}", self.names()),
            count => format!("{count} segments are only there and would be lost: {}", self.names()),
        };
        format!("node {node} is alive: run `ddss cluster leave` there, or remove it with --force ({lost})")
    }
}

impl Context {
    /// Takes a node out, as far as it can be done now. Asked of the leader, one change at a time. Without force it says no
    /// to a node that leaves by its own wish if segments would go with it, and to an operator if the node is alive.
    pub(in crate::control) async fn remove(&self, node: u16, force: bool, leaves: bool) -> Reply {
        // A leader that is new may not have applied yet what was decided before.
        if let Err(error) = self.raft.ensure_linearizable().await {
            return match error.forward_to_leader() {
                Some(forward) => Reply::NotLeader(forward.leader_node),
                None => not_now(error),
            };
        }
        let only_there = || self.keeper.look(|directory| Loss::of(directory.only_at(node)));
        let (is_known, was_member) = self.keeper.look(|directory| (directory.knows(node), directory.is_removed(node)));
        let members = self.members();
        let address = members.iter().find(|&&(other, _)| other == node).map(|&(_, member)| member);
        let left = left(members.into_iter().map(|(node, _)| node), is_known, was_member, node);
        if left == RemainingWork::All
            && !force
            && let Err(reply) = self.admits_removal(node, leaves, &only_there()).await
        {
            return reply;
        }
        match left {
            RemainingWork::Nothing => return Reply::Removed { dropped: 0 },
            RemainingWork::Stranger => {
                return Reply::Refused(format!("node {node} is no member of this cluster: `ddss nodes` lists them"));
            }
            RemainingWork::Impossible => return Reply::Refused("it is the only node of its cluster".to_owned()),
            RemainingWork::Directory => {}
            // The one that leads next fences it. A leader without a vote would lead on, and give itself a vote again: only one that
            // is no member any more leads no longer.
            RemainingWork::All if node == self.node => {
                return match self.drop_member(node).await {
                    Ok(()) => not_now("handing over to another leader"),
                    Err(reply) => reply,
                };
            }
            RemainingWork::All => {
                if !self.is_fenced(node) {
                    return not_now("the lease of the node that is to go runs out");
                }
                if let Err(reply) = self.drop_member(node).await {
                    return reply;
                }
            }
        }
        // Once more: this leader may have been none for a moment.
        if !self.is_fenced(node) {
            return not_now("the lease of the node that went runs out");
        }
        let dropped = only_there().count;
        match self.raft.client_write(Command::Gone { node }).await {
            Ok(_) => {
                if let Some(address) = address.filter(|_| !leaves) {
                    self.notify_removed(node, address);
                }
                Reply::Removed { dropped }
            }
            Err(error) => unwritten(&error),
        }
    }

    /// Whether a member may be taken out without force.
    async fn admits_removal(&self, node: u16, leaves: bool, loss: &Loss) -> Result<(), Reply> {
        if leaves {
            return if loss.count == 0 { Ok(()) } else { Err(Reply::Refused(loss.refusal_to_leave())) };
        }
        if !self.keeper.look(|directory| directory.life(node).alive) {
            return Ok(());
        }
        // It may have died a moment ago, and nobody has noticed yet: only an answer after the question says that it lives.
        let asked = Instant::now();
        while asked.elapsed() < HEARD_WITHIN {
            if node == self.node || self.heard.when(node).is_some_and(|heard| heard > asked) {
                return Err(Reply::Refused(loss.refusal_to_remove(node)));
            }
            tokio::time::sleep(HEARD_WITHIN / 20).await;
        }
        Err(not_now("it is not known yet whether the node is alive"))
    }

    /// Tells a node that it was removed. One that does not hear it learns it with the next call that it makes.
    fn notify_removed(&self, node: u16, address: Member) {
        let caller = self.caller.clone();
        tokio::spawn(async move {
            let told = caller.ask(address, &Call::NotifyRemoved { node }, MEET_MAX).await;
            tracing::debug!(node, ?told, "told a node that it was removed");
        });
    }

    /// Ends what another leader began: a node that is no member any more and that the directory still knows. The leader does so
    /// by itself, since the one who asked for it may not ask again.
    pub(in crate::control) async fn end_removals(&self) {
        let members = self.members();
        let is_member = |node: u16| members.iter().any(|&(member, _)| member == node);
        let begun: Vec<u16> =
            self.keeper.look(|directory| directory.known().filter(|&node| !is_member(node)).collect());
        for node in begun {
            if self.is_fenced(node)
                && let Err(error) = self.raft.client_write(Command::Gone { node }).await
            {
                tracing::debug!(node, %error, "cannot end the removal of a node yet");
            }
        }
    }

    /// Whether a node certainly serves no mirrored segment any more.
    fn is_fenced(&self, node: u16) -> bool {
        let needs_a_fence = self.keeper.look(|directory| directory.life(node).alive && directory.has_mirrors(node));
        let term = self.raft.metrics().borrow().current_term;
        !needs_a_fence || self.leaving.is_fenced(&self.doomed, node, term, Instant::now())
    }

    async fn drop_vote(&self, node: u16) -> Result<(), Reply> {
        if !self.voters().contains(&node.into()) {
            return Ok(());
        }
        let voters = self.wanted_voters(Instant::now(), Some(node));
        let changed = self.raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), true).await;
        changed.map(drop).map_err(|error| unwritten(&error))
    }

    async fn drop_member(&self, node: u16) -> Result<(), Reply> {
        self.drop_vote(node).await?;
        let nodes = BTreeSet::from([node.into()]);
        let changed = self.raft.change_membership(ChangeMembers::RemoveNodes(nodes), true).await;
        changed.map(drop).map_err(|error| unwritten(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_leader_began_another_one_ends() {
        // If this broke, a leader that dies between two steps would leave the names of a node that is gone taken for ever.
        for (members, is_known, node, expected) in [
            (&[1, 2, 3][..], (true, false), 3, RemainingWork::All),
            (&[1, 2, 3], (false, false), 3, RemainingWork::All),
            (&[1, 2], (true, false), 3, RemainingWork::Directory),
            (&[1], (true, false), 3, RemainingWork::Directory),
            (&[1, 2], (false, true), 3, RemainingWork::Nothing),
            (&[1], (false, true), 3, RemainingWork::Nothing),
            (&[1, 2], (false, false), 3, RemainingWork::Stranger),
            (&[3], (true, false), 3, RemainingWork::Impossible),
        ] {
            let (known, removed) = is_known;
            assert_eq!(left(members.iter().copied(), known, removed, node), expected, "{members:?} {is_known:?}");
        }
    }

    #[test]
    fn a_refusal_lists_some_of_the_names_and_counts_the_rest() {
        // If this broke, an operator would not see what goes, or would get thousands of names.
        let names: Vec<String> = (0..LISTED_MAX + 2).map(|index| format!("n{index}")).collect();
        let told = Loss::of(names.iter().map(String::as_str)).refusal_to_remove(3);
        assert!(
            told.contains("node 3 is alive") && told.contains("12 segments") && told.contains("n9 and 2 more"),
            "{told}"
        );
        let told = Loss::of(["a"].into_iter()).refusal_to_leave();
        assert!(told.starts_with("1 segment is only here: ") && told.ends_with("(a)"), "{told}");
        assert!(Loss::of([].into_iter()).refusal_to_remove(3).contains("no segment would be lost"));
    }

    #[test]
    fn a_lease_runs_out_in_one_term_and_whoever_changes_his_mind_keeps_his_node() {
        // If this broke, a node that leaves would read old values, or one that stays would never serve again.
        let (leaving, doomed) = (Decommissioning::default(), Doomed::default());
        let began = Instant::now();
        let fenced = |after: Duration, term| leaving.is_fenced(&doomed, 3, term, began + after);
        let is_doomed = || doomed.doom(3, || true).is_none();
        assert!(!fenced(Duration::ZERO, 1) && is_doomed());
        assert!(!fenced(LEASE, 1));
        assert!(fenced(FENCED_AFTER * 2, 1));
        assert!(!fenced(FENCED_AFTER * 2, 2), "another leader may have given a lease in between");
        assert!(!fenced(FENCED_AFTER * 3, 2) && fenced(FENCED_AFTER * 4, 2));
        leaving.tidy(2, began + FENCED_AFTER * 4 + FORGOTTEN_AFTER / 2);
        assert!(is_doomed());
        leaving.tidy(2, began + FENCED_AFTER * 4 + FORGOTTEN_AFTER);
        assert!(!is_doomed(), "nobody asks any more");
    }
}
