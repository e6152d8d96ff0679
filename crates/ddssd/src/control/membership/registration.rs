//! How a node shows that it may be the node that it says it is: before its part of the group begins, since a voter that has
//! forgotten its vote could give another one, and as long as it runs.

use super::incarnation::Registration;
use crate::control::raft::network::{LocalIdentity, control_address};
use crate::control::raft::types::{Answer, Command, Member};
use crate::control::rpc::server::Context;
use crate::control::rpc::stream::RpcStream;
use crate::control::rpc::types::{Call, Reply};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long the others may take to say what they know of a node that has no state: it may have forgotten a vote.
const KNOWN_MAX: Duration = Duration::from_secs(2);
/// The same of one that has: all nodes may be starting, and none of them answers yet. What is not known then is known when it registers.
const KNOWN_MAX_WITH_STATE: Duration = Duration::from_millis(500);
/// How long a proposal may take.
const ASK_MAX: Duration = Duration::from_secs(1);

/// A node that is about to begin.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct Candidate {
    pub(in crate::control) node: u16,
    pub(in crate::control) ours: Member,
    pub(in crate::control) registration: Registration,
    /// Whether it has forgotten what it voted for, or has never voted.
    pub(in crate::control) has_no_state: bool,
}

impl Candidate {
    /// Whether nobody whom this node can reach knows better; otherwise why it must not begin. `others` are the nodes of which it
    /// knows, itself among them at the place where it was.
    pub(in crate::control) async fn is_admitted(
        self,
        caller: &LocalIdentity,
        others: Vec<(u16, Member)>,
    ) -> Result<(), String> {
        let mut places: Vec<Member> = others.iter().filter(|(node, _)| *node == self.node).map(|&(_, at)| at).collect();
        let limit = if self.has_no_state { KNOWN_MAX } else { KNOWN_MAX_WITH_STATE };
        let mut asked = JoinSet::new();
        for (_, member) in others.into_iter().filter(|&(node, _)| node != self.node) {
            let (caller, call) = (caller.clone(), Call::WhoIs { node: self.node, registration: self.registration });
            asked.spawn(async move { caller.ask(member, &call, limit).await });
        }
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Reply::Refused(why))) => return Err(why),
                Ok(Ok(Reply::Known { registered: true, .. })) if self.has_no_state => {
                    return Err(format!(
                        "the log of the cluster is lost: put it back, or take the node out with `ddss cluster remove {}` elsewhere and \
                         join anew with an empty state folder",
                        self.node
                    ));
                }
                Ok(Ok(Reply::Known { member, .. })) => places.extend(member),
                Ok(Ok(_) | Err(_)) | Err(_) => {}
            }
        }
        places.sort_by_key(|place| place.address);
        places.dedup();
        for place in places.into_iter().filter(|&place| place != self.ours) {
            if self.runs_at(caller, control_address(place.address)).await {
                return Err(format!(
                    "node {} runs at {place} already: stop that one first, if its state folder is to be used here",
                    self.node
                ));
            }
        }
        Ok(())
    }

    /// Whether this node, in another run, answers there.
    async fn runs_at(&self, caller: &LocalIdentity, address: SocketAddr) -> bool {
        let met = RpcStream::connect(address, &caller.key, &caller.ours).await;
        met.is_ok_and(|(theirs, _)| theirs.node.0 == self.node && theirs.run != self.registration.run)
    }
}

impl Context {
    /// What this node knows of one that is about to begin. It may be behind others, but what it knows stays true: a number belongs to
    /// one folder, and starts are counted upwards.
    pub(in crate::control) fn who_is(&self, node: u16, next: Registration) -> Reply {
        let known = self.keeper.look(|directory| directory.registration(node));
        let member = self.members().into_iter().find(|&(other, _)| other == node).map(|(_, member)| member);
        if let Some(known) = known.filter(|known| !known.admits(next)) {
            return Reply::Refused(known.refusal(node, member, next));
        }
        Reply::Known { registered: known.is_some(), member }
    }

    /// Registers this start of this node. An error says why the cluster has none of it.
    pub(in crate::control) async fn register(&self) -> Result<(), String> {
        let (node, next) = (self.node, self.registration);
        if self.is_registered() {
            return Ok(());
        }
        let call = Call::Propose(Command::Register { node, registration: next });
        let reply = self.ask_leader(&call, ASK_MAX).await;
        // This node hears of a later start with the same entry, or a moment later: then it asks again.
        let known = self.keeper.look(|directory| directory.registration(node)).filter(|known| !known.admits(next));
        match (reply, known) {
            (Ok(Reply::Applied(Answer::Refused)), Some(known)) => Err(known.refusal(node, None, next)),
            _ => Ok(()),
        }
    }

    /// Asks another node, if no leader is known: who was cut off while another daemon took its place hears nothing of it, since the
    /// group's words go to the other one. An error says that it did.
    pub(in crate::control) async fn is_still_itself(&self) -> Result<(), String> {
        if self.leader().is_some() {
            return Ok(());
        }
        let Some(member) = self.somebody() else { return Ok(()) };
        let call = Call::WhoIs { node: self.node, registration: self.registration };
        match self.caller.ask(member, &call, ASK_MAX).await {
            Ok(Reply::Refused(why)) => Err(why),
            _ => Ok(()),
        }
    }

    /// Whether this start is the newest one of this node, as far as it has heard.
    pub(in crate::control) fn is_registered(&self) -> bool {
        self.keeper.look(|directory| directory.registration(self.node)) == Some(self.registration)
    }

    /// Another daemon is this node now: this one ends. Until then it says nothing any more, and gives no name back that the other
    /// one has.
    pub(in crate::control) async fn step_aside(&self, why: &str) {
        tracing::error!(why, "this daemon is not the node any more that it was: stopping");
        self.left.store(true, Ordering::Release);
        if let Err(error) = self.raft.shutdown().await {
            tracing::debug!(%error, "the group's part of this node had ended");
        }
        self.caller.removal.supersede();
    }

    /// Whether a word of the group comes from another cluster: this node has begun one of its own, and is alone in it. That happens
    /// where a voter is started anew without its state and without being told of the others.
    pub(in crate::control) fn is_foreign(&self, leader: Option<u64>) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let mut voters = metrics.membership_config.membership().voter_ids();
        let is_alone = voters.next() == Some(self.node.into())
            && voters.next().is_none()
            && metrics.membership_config.nodes().count() == 1;
        is_alone && leader != Some(self.node.into())
    }
}
