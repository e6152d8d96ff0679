//! The call server: answers other control planes, and this node's own calls when it is the leader.

use super::batches::BATCH_CALLS_MAX;
use super::context::Context;
use super::stream::{CONNECT_MAX, IDLE_MAX, RpcStream, with_timeout};
use super::types::{Call, Reply, not_now_reply, write_error_reply};
use crate::control::handshake_limit::HandshakeLimit;
use crate::control::identity::member::{Member, address_refusal};
use crate::control::majority::wall_clock_us;
use crate::control::raft::types::Command;
use crate::control::rpc::client::RpcClient;
use ddss_admin::{ClusterKey, NodeRelease};
use ddss_admission::select_eviction;
use ddss_core::NodeId;
use ddss_core::limits::NODES_MAX;
use openraft::ChangeMembers;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, VoteRequest};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Maximum time to compute a reply, and to send it.
const REPLY_MAX: Duration = Duration::from_secs(5);
/// Maximum number of authenticated streams: each node keeps one or two to the leader.
const STREAMS_MAX: usize = 2 * NODES_MAX;
/// Maximum number of unauthenticated streams, beside those: a new stream evicts an old one.
const PENDING_STREAMS_MAX: usize = 64;

/// A stream before its peer is authenticated.
struct PendingStream {
    from: IpAddr,
    proved: Arc<AtomicBool>,
    task: AbortHandle,
}

/// State that all incoming streams share.
struct ListenerState {
    context: Context,
    stream_permits: Semaphore,
    handshake_limit: HandshakeLimit,
}

/// Accepts streams until the runtime ends.
pub(crate) async fn serve(context: Context, listener: TcpListener) {
    let listener_state = Arc::new(ListenerState {
        context,
        stream_permits: Semaphore::new(STREAMS_MAX),
        handshake_limit: HandshakeLimit::default(),
    });
    let mut pending: VecDeque<PendingStream> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                pending.retain(|stream_entry| {
                    !stream_entry.task.is_finished() && !stream_entry.proved.load(Ordering::Acquire)
                });
                if pending.len() == PENDING_STREAMS_MAX
                    && let Some(stream_entry) = select_eviction(pending.iter().map(|stream_entry| stream_entry.from))
                        .and_then(|index| pending.remove(index))
                {
                    stream_entry.task.abort();
                }
                let (listener_state, proved) = (Arc::clone(&listener_state), Arc::new(AtomicBool::new(false)));
                let proves = Arc::clone(&proved);
                let task = tokio::spawn(async move {
                    if let Err(error) = listener_state.serve_stream(stream, address, &proves).await
                        && error.kind() != io::ErrorKind::UnexpectedEof
                    {
                        tracing::debug!(%address, %error, "a control stream ended");
                    }
                });
                pending.push_back(PendingStream { from: address.ip(), proved, task: task.abort_handle() });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control stream");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl ListenerState {
    async fn serve_stream(&self, stream: TcpStream, address: SocketAddr, proved: &AtomicBool) -> io::Result<()> {
        let RpcClient { key, ours, lineage, .. } = &self.context.rpc_client;
        let keys: Vec<&ClusterKey> = [key].into_iter().chain(lineage.former_keys.iter()).collect();
        let accepted = RpcStream::accept(stream, address.ip(), &self.handshake_limit, &keys, ours).await;
        let (theirs, key_index, mut wire) =
            accepted.inspect_err(|error| tracing::info!(%address, %error, "refused a control stream"))?;
        // The first message proves that the handshake was not replayed. Members send it at once.
        let mut call = with_timeout(CONNECT_MAX, wire.receive()).await?;
        proved.store(true, Ordering::Release);
        let Ok(_permit) = self.stream_permits.try_acquire() else {
            tracing::warn!(node = theirs.node.0, "refused a control stream: too many streams are open");
            return Ok(());
        };
        loop {
            tracing::trace!(node = theirs.node.0, ?call, "asked");
            let reply = if key_index > 0 && theirs.node != NodeId::NONE {
                self.context.reply_to_former(theirs.node.0)
            } else if self.context.is_removed(theirs.node.0) {
                self.context.reply_to_removed(theirs.node.0, &call)
            } else {
                // A late reply closes the stream: the caller has given up, though the call may still take effect.
                with_timeout(REPLY_MAX, async { Ok(self.context.answer(call).await) }).await?
            };
            with_timeout(REPLY_MAX, wire.send(&reply)).await?;
            call = with_timeout(IDLE_MAX, wire.receive()).await?;
        }
    }
}

impl Context {
    /// Returns the reply to a node of the cluster from which this one was recovered. One that joins has no number yet.
    fn reply_to_former(&self, node: u16) -> Reply {
        let (here, at) = (self.node, self.own.member);
        Reply::Superseded(format!(
            "node {node} belongs to the cluster that node {here} has recovered as a new one: `ddss cluster recover --join {at}` takes it \
             in with its segments"
        ))
    }

    /// Answers a call of any peer.
    pub(crate) async fn answer(&self, call: Call) -> Reply {
        // The futures of rare calls are large and stand on the heap: each proposal copies the future of this function.
        match call {
            Call::Append(AppendEntriesRequest { vote, .. })
            | Call::Vote(VoteRequest { vote, .. })
            | Call::Snapshot(InstallSnapshotRequest { vote, .. })
                if self.is_from_other_cluster(vote.leader_id().voted_for()) =>
            {
                tracing::error!(%vote, "another cluster takes this node for one of its own: if it was a node of that one, its state folder is lost");
                Reply::Refused("this node has begun a cluster of its own".to_owned())
            }
            Call::Append(request) => {
                let leader = request.vote.leader_id().voted_for();
                let result = Box::pin(self.raft.append_entries(request)).await;
                if let (Ok(AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_)), Some(leader)) =
                    (&result, leader.and_then(|leader| u16::try_from(leader).ok()))
                {
                    self.contacts.leaders.record(leader);
                }
                Reply::Append(result)
            }
            Call::Vote(request) => Reply::Vote(Box::pin(self.raft.vote(request)).await),
            Call::Snapshot(request) => Reply::Snapshot(Box::pin(self.raft.install_snapshot(request)).await),
            Call::Propose(command) => self.propose(command).await,
            Call::Newest => self.newest().await,
            Call::HasMajority if !self.is_leader() => Reply::NotLeader(self.leader()),
            Call::HasMajority if self.has_majority() && !self.has_own_entries() => {
                not_now_reply("this leader has not applied the directory yet")
            }
            Call::HasMajority if self.has_majority() => {
                let newest = self.raft.metrics().borrow().last_applied;
                Reply::HasMajority { newest, clock_us: wall_clock_us() }
            }
            Call::HasMajority => Reply::NoMajority,
            Call::Batch(calls) => Box::pin(self.answer_batch(calls)).await,
            Call::Renew { node, run } => Box::pin(self.renew(node, run)).await,
            Call::Stalled { node, run } => self.record_stall(node, run),
            Call::WhoIs { node, registration } => self.registration_status(node, registration),
            Call::Join { node, member } => Box::pin(self.as_leader(self.join(node, member))).await,
            Call::Announce { node, member, run } => Box::pin(self.as_leader(self.announce(node, member, run))).await,
            Call::Remove { node, force, leaves } => Box::pin(self.as_leader(self.remove(node, force, leaves))).await,
            Call::Transfer { node } => Box::pin(self.as_leader(self.transfer_leadership(node))).await,
            Call::Elect { term } => Box::pin(self.start_election(term)).await,
            Call::Probe => Reply::Done,
            Call::Release => Reply::Release(NodeRelease::ours()),
            Call::NotifyRemoved { node } => {
                if node == self.node {
                    self.rpc_client.removal.learn_removed("the leader");
                }
                Reply::Done
            }
        }
    }

    async fn propose(&self, command: Command) -> Reply {
        if !command.is_valid() {
            return Reply::Refused("the proposal is invalid".to_owned());
        }
        // Refused at once: it would wait for disk space, and take effect after the caller has given up.
        if self.is_leader() && self.health.log_full.is_full() {
            return Reply::LogFull;
        }
        if self.membership.hands_over.load(Ordering::Acquire) {
            return not_now_reply("the leadership is handed over");
        }
        // Refused for the same reason: it would wait for a majority.
        if self.is_leader() && !self.has_majority() {
            return Reply::NoMajority;
        }
        if let Some(node) = command.target_nodes().into_iter().flatten().find(|&node| !self.is_valid_target(node)) {
            return not_now_reply(format!("node {node} is no member, or is being removed"));
        }
        match self.raft.client_write(command).await {
            Ok(done) => Reply::Applied(done.data),
            Err(error) => write_error_reply(&error),
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
                None => not_now_reply(error),
            },
        }
    }

    /// Answers several calls. All start before the first reply is awaited, so that Raft decides them in one round.
    async fn answer_batch(&self, calls: Vec<Call>) -> Reply {
        if calls.len() > BATCH_CALLS_MAX || !calls.iter().all(Call::is_short) {
            return Reply::Refused("the calls cannot form a batch".to_owned());
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
            replies.push(answer.await.unwrap_or_else(not_now_reply));
        }
        Reply::Batch(replies)
    }

    async fn as_leader(&self, change: impl Future<Output = Reply>) -> Reply {
        if !self.is_leader() {
            return Reply::NotLeader(self.leader());
        }
        let _one_at_a_time = self.membership.lock.lock().await;
        match self.complete_founding().await {
            Ok(()) => change.await,
            Err(reply) => reply,
        }
    }

    /// Returns true if a proposal may name a node. A node that is being removed has already lost its replicas as
    /// neighbours. It must not unpair them before they take over, and must not disclaim names that go with it.
    fn is_valid_target(&self, node: u16) -> bool {
        !self.is_leader() || self.is_member(node) && !self.membership.fenced_nodes.is_fenced(node)
    }

    async fn join(&self, wanted: Option<u16>, member: Member) -> Reply {
        // A new leader may not know yet which ids were removed.
        if let Err(error) = self.raft.ensure_linearizable().await {
            return match error.forward_to_leader() {
                Some(forward) => Reply::NotLeader(forward.leader_node),
                None => not_now_reply(error),
            };
        }
        let members = self.members();
        if let Some(why) = address_refusal(member, &members) {
            return Reply::Refused(why);
        }
        let members: BTreeMap<u16, Member> = members.into_iter().collect();
        let here = members.iter().find(|&(_, other)| *other == member).map(|(&node, _)| node);
        let node = match (wanted, here) {
            // A repeated request whose first reply was lost.
            (None, Some(node)) => return Reply::Joined { node, cluster: self.rpc_client.lineage.id },
            (Some(node), Some(same)) if node == same => {
                return Reply::Joined { node, cluster: self.rpc_client.lineage.id };
            }
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
                // A survivor of the former cluster comes back under its number.
                let is_kept =
                    |node: u16| self.state_machine.read(|known| known.is_removed(node) || known.is_former_member(node));
                let is_free = |node: &u16| !members.contains_key(node) && !is_kept(*node);
                match (1..=NODES_MAX as u16).find(is_free) {
                    Some(node) => node,
                    None => {
                        return Reply::Refused("the cluster is full: every node id is in use or was used".to_owned());
                    }
                }
            }
        };
        match self.raft.add_learner(node.into(), member, false).await {
            Ok(_) => {
                tracing::info!(node, address = %member, "added a node to the cluster");
                Reply::Joined { node, cluster: self.rpc_client.lineage.id }
            }
            Err(error) => write_error_reply(&error),
        }
    }

    async fn announce(&self, node: u16, member: Member, run: u32) -> Reply {
        let Some((_, known)) = self.members().into_iter().find(|&(other, _)| other == node) else {
            return Reply::Refused(format!("node {node} is no member of this cluster"));
        };
        let registered = self.state_machine.read(|directory| directory.registration(node));
        if registered.is_some_and(|registered| registered.run != run) {
            return not_now_reply(format!("another start of node {node} is registered"));
        }
        if known != member {
            let nodes = BTreeMap::from([(node.into(), member)]);
            tracing::info!(node, from = %known, to = %member, "a node has moved");
            if let Err(error) = self.raft.change_membership(ChangeMembers::SetNodes(nodes), true).await {
                return write_error_reply(&error);
            }
        }
        if !self.is_heard(node, Instant::now()) {
            // The next round would declare it dead again.
            return not_now_reply("it does not answer this leader's calls");
        }
        // A node announces itself only while its progress threads work. An older report must not declare it dead again.
        self.contacts.stall_reports.forget(node);
        match self.raft.client_write(Command::Alive { node, run }).await {
            Ok(_) => Reply::Done,
            Err(error) => write_error_reply(&error),
        }
    }
}
