//! Answers other control planes, and this node's own questions when it is the leader.

use super::batches::BATCH_CALLS_MAX;
use super::stream::{MEET_MAX, RpcStream, within};
use super::types::{Call, Reply};
use crate::config::config::PeerAddress;
use crate::config::host_port::HostPort;
use crate::control::handshake_limit::HandshakeLimit;
use crate::control::majority::Majority;
use crate::control::membership::decommission::Decommissioning;
use crate::control::membership::incarnation::Registration;
use crate::control::raft::log::LogFull;
use crate::control::raft::network::{LastContact, LocalIdentity};
use crate::control::raft::state_machine::StateMachine;
use crate::control::raft::types::{Command, Member, Raft};
use crate::control::replication::{Deciding, Doomed};
use crate::control::stall::Stall;
use ddss_core::limits::NODES_MAX;
use ddss_core::select_eviction;
use openraft::error::{ClientWriteError, RaftError};
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};
use openraft::{ChangeMembers, ServerState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::AbortHandle;

/// What every part of the control plane works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) raft: Raft,
    pub(crate) keeper: StateMachine,
    pub(crate) caller: LocalIdentity,
    pub(crate) heard: LastContact,
    /// This start of this node.
    pub(crate) registration: Registration,
    /// Whether most voters can be reached.
    pub(crate) majority: Majority,
    /// Whether a progress thread of this node hangs.
    pub(crate) stall: Stall,
    /// Which nodes have told this leader that a progress thread of theirs hangs, and when.
    pub(crate) stalled: LastContact,
    pub(crate) node: u16,
    pub(crate) ours: Member,
    /// One change of the members at a time.
    pub(crate) members: Arc<Mutex<()>>,
    /// Whom to ask next where no leader is known.
    pub(crate) turn: Arc<AtomicUsize>,
    /// Nodes of which this leader is about to say that they are dead.
    pub(crate) doomed: Doomed,
    /// Nodes that are to go out of the cluster.
    pub(crate) leaving: Decommissioning,
    /// This node belongs to the cluster no more.
    pub(crate) left: Arc<AtomicBool>,
    /// What is being decided about mirrored segments: one thing at a time for each.
    pub(crate) deciding: Deciding,
    /// Whether this node's log waits for room.
    pub(crate) log_full: LogFull,
    /// Who knows where the cluster is, when it is nowhere else.
    pub(crate) join: Option<HostPort>,
    /// The nodes with which the cluster began, or is to begin.
    pub(crate) peers: Arc<[PeerAddress]>,
}

/// How long a stream may be silent.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long an answer may take to be made and sent.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Streams at the same time: each node of a cluster keeps one or two to the leader.
const STREAMS_MAX: usize = 2 * NODES_MAX;
/// Streams of which nothing is proved yet, beside those: one of them makes room for another.
const GUESTS_MAX: usize = 64;

/// A stream of which nothing is proved yet.
struct PendingStream {
    from: IpAddr,
    proved: Arc<AtomicBool>,
    task: AbortHandle,
}

/// What those have in common who come.
struct ListenerState {
    context: Context,
    room: Semaphore,
    paced: HandshakeLimit,
}

/// Takes streams until the runtime ends.
pub(crate) async fn serve(context: Context, listener: TcpListener) {
    let door = Arc::new(ListenerState { context, room: Semaphore::new(STREAMS_MAX), paced: HandshakeLimit::default() });
    let mut guests: VecDeque<PendingStream> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                guests.retain(|guest| !guest.task.is_finished() && !guest.proved.load(Ordering::Acquire));
                if guests.len() == GUESTS_MAX
                    && let Some(guest) =
                        select_eviction(guests.iter().map(|guest| guest.from)).and_then(|index| guests.remove(index))
                {
                    guest.task.abort();
                }
                let (door, proved) = (Arc::clone(&door), Arc::new(AtomicBool::new(false)));
                let proves = Arc::clone(&proved);
                let task = tokio::spawn(async move {
                    if let Err(error) = door.converse(stream, address, &proves).await
                        && error.kind() != io::ErrorKind::UnexpectedEof
                    {
                        tracing::debug!(%address, %error, "a control stream ended");
                    }
                });
                guests.push_back(PendingStream { from: address.ip(), proved, task: task.abort_handle() });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take a control stream");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl ListenerState {
    async fn converse(&self, stream: TcpStream, address: SocketAddr, proved: &AtomicBool) -> io::Result<()> {
        let LocalIdentity { key, ours, .. } = &self.context.caller;
        let accepted = RpcStream::accept(stream, address.ip(), &self.paced, key, ours).await;
        let (theirs, mut wire) =
            accepted.inspect_err(|error| tracing::info!(%address, %error, "turned a control stream away"))?;
        // Its first word proves that it is no old stream that somebody says again, and members have one ready.
        let mut call = within(MEET_MAX, wire.receive()).await?;
        proved.store(true, Ordering::Release);
        let Ok(_place) = self.room.try_acquire() else {
            tracing::warn!(node = theirs.node.0, "turned a control stream away: there are too many");
            return Ok(());
        };
        loop {
            tracing::trace!(node = theirs.node.0, ?call, "asked");
            let reply = if self.context.is_removed(theirs.node.0) {
                Reply::NotMember
            } else {
                if matches!(call, Call::Append(_)) {
                    // As good as an answer, and to a node that does not lead it says that it is a member still.
                    self.context.heard.note(theirs.node.0);
                }
                // What takes longer is answered on no stream: the other side has given up, and it may happen all the same.
                within(ANSWER_MAX, async { Ok(self.context.answer(call).await) }).await?
            };
            within(ANSWER_MAX, wire.send(&reply)).await?;
            call = within(IDLE_MAX, wire.receive()).await?;
        }
    }
}

pub(crate) fn not_now(error: impl std::fmt::Display) -> Reply {
    Reply::NotNow(error.to_string())
}

/// What a change that did not happen is answered with.
pub(crate) fn unwritten(error: &RaftError<u64, ClientWriteError<u64, Member>>) -> Reply {
    match error.forward_to_leader() {
        Some(forward) => Reply::NotLeader(forward.leader_node),
        None => not_now(error),
    }
}

impl Context {
    /// Answers a question, wherever it comes from.
    pub(crate) async fn answer(&self, call: Call) -> Reply {
        match call {
            Call::Append(AppendEntriesRequest { vote, .. })
            | Call::Vote(VoteRequest { vote, .. })
            | Call::Snapshot(InstallSnapshotRequest { vote, .. })
                if self.is_foreign(vote.leader_id().voted_for()) =>
            {
                tracing::error!(%vote, "another cluster takes this node for one of its own: if it was a node of that one, its state folder is lost");
                Reply::Refused("this node has begun a cluster of its own".to_owned())
            }
            Call::Append(request) => Reply::Append(self.raft.append_entries(request).await),
            Call::Vote(request) => Reply::Vote(self.raft.vote(request).await),
            Call::Snapshot(request) => Reply::Snapshot(self.raft.install_snapshot(request).await),
            Call::Propose(command) => self.propose(command).await,
            Call::Newest => self.newest().await,
            Call::HasMajority if self.is_leader() => Reply::Majority(self.has_majority()),
            Call::HasMajority => Reply::NotLeader(self.leader()),
            Call::Batch(calls) => self.answer_batch(calls).await,
            Call::Renew { node, run } => self.renew(node, run).await,
            Call::Stalled { node, run } => self.note_stall(node, run),
            Call::WhoIs { node, registration } => self.who_is(node, registration),
            Call::Join { node, member } => self.as_leader(self.join(node, member)).await,
            Call::Announce { node, member, run } => self.as_leader(self.announce(node, member, run)).await,
            Call::Remove { node, force, leaves } => self.as_leader(self.remove(node, force, leaves)).await,
            Call::Probe => Reply::Done,
            Call::NotifyRemoved { node } => {
                if node == self.node {
                    self.caller.removal.learn("the leader");
                }
                Reply::Done
            }
        }
    }

    async fn propose(&self, command: Command) -> Reply {
        if !command.makes_sense() {
            return Reply::Refused("that makes no sense".to_owned());
        }
        // Not begun: it would wait for room, and happen when nobody waits for it any more.
        if self.is_leader() && self.log_full.is_full() {
            return Reply::LogFull;
        }
        // The same: it would wait for a majority.
        if self.is_leader() && !self.has_majority() {
            return Reply::NoMajority;
        }
        if let Some(node) = command.gives_to().into_iter().flatten().find(|&node| !self.may_be_given_to(node)) {
            return not_now(format!("node {node} is no member, or is about to be none"));
        }
        match self.raft.client_write(command).await {
            Ok(done) => Reply::Applied(done.data),
            Err(error) => unwritten(&error),
        }
    }

    async fn newest(&self) -> Reply {
        if self.is_leader() && !self.has_majority() {
            return Reply::NoMajority;
        }
        match self.raft.get_read_log_id().await {
            Ok((newest, _)) => Reply::Newest(newest),
            Err(error) => match error.forward_to_leader() {
                Some(forward) => Reply::NotLeader(forward.leader_node),
                None => not_now(error),
            },
        }
    }

    /// Answers several calls, all of which are begun before the first answer is waited for: the group decides them in one round.
    async fn answer_batch(&self, calls: Vec<Call>) -> Reply {
        if calls.len() > BATCH_CALLS_MAX || !calls.iter().all(Call::is_short) {
            return Reply::Refused("that makes no batch".to_owned());
        }
        let begun = calls.into_iter().map(|call| {
            let context = self.clone();
            tokio::spawn(async move {
                match call {
                    Call::Propose(command) => context.propose(command).await,
                    _ => context.newest().await,
                }
            })
        });
        let begun: Vec<_> = begun.collect();
        let mut replies = Vec::with_capacity(begun.len());
        for answer in begun {
            replies.push(answer.await.unwrap_or_else(not_now));
        }
        Reply::Batch(replies)
    }

    /// Whether the group's library has given up here: it could not write its log, for another reason than want of room.
    pub(crate) fn has_stopped(&self) -> bool {
        self.raft.metrics().borrow().running_state.is_err()
    }

    pub(crate) fn is_leader(&self) -> bool {
        // A leader that was taken out of the membership still stands there as the one that it voted for.
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.state == ServerState::Leader && metrics.current_leader == Some(self.node.into())
    }

    /// The leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<Member> {
        let leader = self.raft.metrics().borrow().current_leader?;
        self.members().into_iter().find(|&(node, _)| u64::from(node) == leader).map(|(_, member)| member)
    }

    /// The nodes of the newest membership, decided or about to be.
    pub(crate) fn members(&self) -> Vec<(u16, Member)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let nodes = metrics.membership_config.nodes();
        nodes.filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member))).collect()
    }

    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.raft.metrics().borrow().membership_config.membership().voter_ids().collect()
    }

    async fn as_leader(&self, change: impl Future<Output = Reply>) -> Reply {
        if !self.is_leader() {
            return Reply::NotLeader(self.leader());
        }
        let _one_at_a_time = self.members.lock().await;
        match self.found().await {
            Ok(()) => change.await,
            Err(reply) => reply,
        }
    }

    /// Whether a node may have anything decided. A node that is going has lost its mirrors already, since they are no neighbours of
    /// it any more: it must not part with them before they take over. And it says nothing about names that go with it.
    fn may_be_given_to(&self, node: u16) -> bool {
        !self.is_leader() || self.is_member(node) && !self.doomed.is_doomed(node)
    }

    pub(crate) fn is_member(&self, node: u16) -> bool {
        self.raft.metrics().borrow().membership_config.membership().get_node(&node.into()).is_some()
    }

    /// Whether a node left or was removed, as far as this one has heard.
    pub(crate) fn is_removed(&self, node: u16) -> bool {
        self.keeper.look(|directory| directory.is_removed(node))
    }

    async fn join(&self, wanted: Option<u16>, member: Member) -> Reply {
        // A leader that is new may not have heard yet which numbers are gone for good.
        if let Err(error) = self.raft.ensure_linearizable().await {
            return match error.forward_to_leader() {
                Some(forward) => Reply::NotLeader(forward.leader_node),
                None => not_now(error),
            };
        }
        let members: BTreeMap<u16, Member> = self.members().into_iter().collect();
        let here = members.iter().find(|&(_, other)| *other == member).map(|(&node, _)| node);
        let node = match (wanted, here) {
            // Asked again, since the first answer was lost.
            (None, Some(node)) => return Reply::Joined { node },
            (Some(node), Some(same)) if node == same => return Reply::Joined { node },
            (Some(node), _) => match members.get(&node) {
                Some(other) => {
                    return Reply::Refused(format!(
                        "number {node} belongs to the node at {other}: give another --node, or none, or take that one out with `ddss cluster remove {node}`"
                    ));
                }
                None if self.is_removed(node) => {
                    return Reply::Refused(format!(
                        "number {node} was removed from the cluster and is not given again: give another --node, or none"
                    ));
                }
                None => node,
            },
            (None, None) => {
                let is_free = |node: &u16| !members.contains_key(node) && !self.is_removed(*node);
                match (1..=NODES_MAX as u16).find(is_free) {
                    Some(node) => node,
                    None => return Reply::Refused("the cluster is full: each number was given".to_owned()),
                }
            }
        };
        match self.raft.add_learner(node.into(), member, false).await {
            Ok(_) => {
                tracing::info!(node, address = %member, "took a node into the cluster");
                Reply::Joined { node }
            }
            Err(error) => unwritten(&error),
        }
    }

    async fn announce(&self, node: u16, member: Member, run: u32) -> Reply {
        let Some((_, known)) = self.members().into_iter().find(|&(other, _)| other == node) else {
            return Reply::Refused(format!("node {node} is no member of this cluster"));
        };
        let registered = self.keeper.look(|directory| directory.registration(node));
        if registered.is_some_and(|registered| registered.run != run) {
            return not_now(format!("another start of node {node} is registered"));
        }
        if known != member {
            let nodes = BTreeMap::from([(node.into(), member)]);
            tracing::info!(node, from = %known, to = %member, "a node has moved");
            if let Err(error) = self.raft.change_membership(ChangeMembers::SetNodes(nodes), true).await {
                return unwritten(&error);
            }
        }
        match self.raft.client_write(Command::Alive { node, run }).await {
            Ok(_) => Reply::Done,
            Err(error) => unwritten(&error),
        }
    }
}
