//! The control plane of one node: its thread and tasks, and its service for the progress threads.

use super::admin;
use super::bridge::{ControlEvent, ControlRequest, EventSender, EventSenders};
use super::failure_detector::run_periodic_checks;
use super::fenced_nodes::ProposalsInFlight;
use super::majority::{Majority, NoMajority};
use super::membership::founding::founders;
use super::membership::registration::StartCheck;
use super::owned_names::{NameComparison, OwnedNames};
use super::raft::log::LogStore;
use super::raft::state_machine::StateMachine;
use super::raft::types::{Command, CommandResult, Raft};
use super::replication::renew_leases;
use super::rpc::server::serve;
use super::rpc::stream::CONNECT_MAX;
use super::rpc::types::{Call, Reply};
use super::stall::{Stall, detect_stalls};
use crate::auth::HandshakeError;
use crate::config::name_resolution::resolve;
use crate::control::identity::ClusterLineage;
use crate::control::identity::incarnation::Incarnation;
use crate::control::identity::member::Member;
use crate::control::identity::member::Registration;
use crate::control::majority_watch::watch_majority;
use crate::control::rpc::client::RpcClient;
use crate::control::rpc::context::{Contacts, Context, Health, MembershipChanges, OwnNode};
use crate::control::rpc::raft_network::RaftNetworkClient;
use crate::start_error::StartError;
use crate::status::{RaftStatus, StatusPage};
use crate::supervisor::Supervisor;
use ddss_admin::ClusterKey;
use ddss_admin::HostPort;
use ddss_admin::PeerAddress;
use ddss_core::{Failure, Name, NodeId, PeerHello};
use ddss_engine::{ClaimId, NameState};
use openraft::{Config, SnapshotPolicy};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc as asynchronous, oneshot};

/// Configuration of a control plane.
#[derive(Debug)]
pub(crate) struct ControlConfig {
    pub(crate) node: NodeId,
    pub(crate) run: u32,
    pub(crate) incarnation: Incarnation,
    /// Number of shards of this node.
    pub(crate) shards: u8,
    pub(crate) key: ClusterKey,
    pub(crate) lineage: ClusterLineage,
    /// Address of this node's data plane, as other nodes reach it.
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
    pub(crate) state_folder: PathBuf,
    pub(crate) folder: PathBuf,
    /// Founding nodes, if this node founds a cluster.
    pub(crate) peers: Vec<PeerAddress>,
    /// True if this node may found a cluster.
    pub(crate) founder: bool,
    /// Address of the cluster to join; used if no known member answers.
    pub(crate) join: Option<HostPort>,
    /// Names of recovered segments.
    pub(crate) names: Vec<(Name, NameState)>,
    /// Status pages of all shards, for the state of the cluster.
    pub(crate) pages: Vec<StatusPage>,
    /// Progress of the Raft group, for the metrics.
    pub(crate) raft_status: RaftStatus,
}

/// The control plane's side of one bridge: sender of events, receiver of requests.
pub(crate) type BridgeEnd = (EventSender, asynchronous::UnboundedReceiver<ControlRequest>);

/// Name of the control plane as a critical task.
const TASK_NAME: &str = "the control plane";

/// The running control plane; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Starts the control plane; when this returns, it answers other nodes.
    pub(crate) fn start(
        config: ControlConfig,
        bridges: Vec<BridgeEnd>,
        supervisor: Supervisor,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = oneshot::channel();
        let (started, start_result) = mpsc::sync_channel(1);
        let body = move || {
            let _task = supervisor.register(TASK_NAME);
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(StartError::Control(error.to_string())))),
            };
            runtime.block_on(async {
                match start_control_plane(config, bridges, &supervisor).await {
                    Ok(context) => {
                        let _ = started.send(Ok(()));
                        tokio::select! {
                            // An error means that the sender was dropped: stop as well.
                            _ = stopped => {}
                            // Without a progress thread this node can be no home, and the cluster must notice.
                            () = supervisor.wait_for_failure() => {}
                        }
                        context.hand_over_before_stop().await;
                        let _ = tokio::time::timeout(Duration::from_secs(1), context.raft.shutdown()).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("ddss-control".to_owned()).spawn(body);
        let thread = thread.map_err(|error| StartError::Control(error.to_string()))?;
        let began = start_result.recv().unwrap_or_else(|_| Err(StartError::Control("its thread ended".to_owned())));
        let plane = Self { stop: Some(stop), thread: Some(thread) };
        began.map(|()| plane)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The runtime has logged a panic; the node stops all the same.
            let _ = thread.join();
        }
    }
}

fn group_config() -> Result<Config, StartError> {
    let config = Config {
        cluster_name: "ddss".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 500,
        election_timeout_max: 1000,
        install_snapshot_timeout: 2000,
        max_payload_entries: 64,
        // The periodic checks ask for snapshots, by the size of the directory.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 500,
        snapshot_max_chunk_size: 256 << 10,
        ..Config::default()
    };
    config.validate().map_err(|error| StartError::Control(error.to_string()))
}

async fn start_control_plane(
    config: ControlConfig,
    bridges: Vec<BridgeEnd>,
    supervisor: &Supervisor,
) -> Result<Context, StartError> {
    let state = |source| StartError::State { path: config.state_folder.clone(), source };
    let failed = |error: &dyn std::fmt::Display| StartError::Control(error.to_string());
    let node = config.node.0;
    let ours = Member { address: config.address };
    let hello = PeerHello { node: config.node, run: config.run, shards: config.shards };
    let rpc_client = RpcClient::new(config.key.clone(), hello).of_member(supervisor, config.lineage.clone());
    let events = EventSenders::new(bridges.iter().map(|(events, _)| events.clone()));
    let contacts = Contacts::default();
    let state_machine = StateMachine::open(&config.state_folder, node, events.clone()).map_err(state)?;
    let log = LogStore::open(&config.state_folder, state_machine.snapshot_on_disk()).map_err(state)?;
    let log = log.recorded_in(&config.raft_status);
    let log_full = log.full();
    let registration = Registration { incarnation: config.incarnation, run: config.run };
    check_start(&config, registration, &rpc_client, &log, &state_machine).await?;
    let network = RaftNetworkClient { rpc_client: rpc_client.clone(), last_contact: contacts.answers.clone() };
    let group = Arc::new(group_config()?);
    let raft = Raft::new(node.into(), group, network, log, state_machine.clone()).await;
    let raft = raft.map_err(|error| failed(&error))?;
    let (join_address, founding_peers) = (config.join.clone(), config.peers.into());
    let context = Context {
        raft,
        state_machine,
        rpc_client,
        node,
        own: OwnNode { member: ours, registration, join_address, founding_peers },
        contacts,
        membership: MembershipChanges::default(),
        health: Health {
            majority: Majority::default(),
            stall: Stall::default(),
            log_full,
            raft_status: config.raft_status.clone(),
        },
        next_member: Arc::default(),
        proposals_in_flight: ProposalsInFlight::default(),
    };
    let initialized = context.raft.is_initialized().await.map_err(|error| failed(&error))?;
    if config.founder && !initialized {
        let founders = founders(node, ours, &context.own.founding_peers);
        // Another founder may have been faster, with the same membership.
        if founders.contains_key(&node.into())
            && let Err(error) = context.raft.initialize(founders).await
        {
            tracing::debug!(%error, "the cluster exists already");
        }
    }
    let listener =
        config.listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(config.listener));
    let listener = listener.map_err(|error| failed(&error))?;
    let owned_names = OwnedNames::default();
    owned_names.add_recovered(&config.names);
    admin::serve_admin_socket(&context, &config.folder, &config.state_folder).map_err(|error| failed(&error))?;
    spawn_critical(supervisor, serve(context.clone(), listener));
    spawn_critical(supervisor, watch_majority(context.clone(), config.pages.clone(), events.clone()));
    spawn_critical(supervisor, detect_stalls(context.health.stall.clone(), config.pages.clone()));
    let names = NameComparison::new(owned_names.clone(), events.clone(), config.state_folder);
    spawn_critical(supervisor, run_periodic_checks(context.clone(), config.run, names, config.pages));
    spawn_critical(supervisor, renew_leases(context.clone(), config.run, events));
    for (events, requests) in bridges {
        tokio::spawn(serve_requests(context.clone(), requests, events, owned_names.clone(), config.run));
    }
    Ok(context)
}

/// Asks the known nodes if this node may start.
async fn check_start(
    config: &ControlConfig,
    registration: Registration,
    rpc_client: &RpcClient,
    log: &LogStore,
    state_machine: &StateMachine,
) -> Result<(), StartError> {
    let (node, ours) = (config.node.0, Member { address: config.address });
    let mut known: BTreeMap<u16, Member> = state_machine.members().into_iter().collect();
    if let Some(membership) = log.membership() {
        let nodes = membership.nodes().filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member)));
        known = nodes.collect();
    }
    let has_no_state = known.is_empty() && log.is_empty();
    if known.is_empty() {
        known = config.peers.iter().map(|peer| (peer.node.0, Member { address: peer.address })).collect();
    }
    let mut known: Vec<_> = known.into_iter().collect();
    if let Some(place) = config.join.as_ref().filter(|_| has_no_state) {
        // The node id does not matter here.
        let found = resolve(place, RESOLVE_MAX).await.unwrap_or_default();
        known.extend(found.into_iter().map(|address| (NodeId::NONE.0, Member { address })));
    }
    let candidate = StartCheck { node, ours, registration, has_no_state };
    let admitted = candidate.check(rpc_client, known).await;
    admitted.map_err(|why| StartError::Refused { node, path: config.state_folder.clone(), why })
}

/// Spawns a critical task that may return but must not panic.
fn spawn_critical(supervisor: &Supervisor, task: impl Future<Output = ()> + Send + 'static) {
    let token = supervisor.register(TASK_NAME);
    tokio::spawn(async move {
        task.await;
        token.done();
    });
}

/// Serves the requests of a progress thread, each in a task of its own.
async fn serve_requests(
    context: Context,
    mut requests: asynchronous::UnboundedReceiver<ControlRequest>,
    events: EventSender,
    owned_names: OwnedNames,
    run: u32,
) {
    while let Some(request) = requests.recv().await {
        let (context, events, owned_names) = (context.clone(), events.clone(), owned_names.clone());
        tokio::spawn(async move {
            let event = match request {
                ControlRequest::Decide(decision) => {
                    return context.propose_replication(&owned_names, run, &decision).await;
                }
                ControlRequest::Lost(roles) => return owned_names.add_lost(&roles),
                ControlRequest::Claim { claim, name, within } => {
                    let result = context.claim(&owned_names, &name, unique_claim_id(run, claim), within).await;
                    ControlEvent::Claimed { claim, result }
                }
                ControlRequest::Disclaim { claim, name } => {
                    ControlEvent::Disclaimed { claim, result: context.disclaim(&owned_names, &name).await }
                }
                ControlRequest::Confirm { step, name, within } => {
                    ControlEvent::Confirmed { step, result: context.confirm(&name, within).await }
                }
            };
            events.send(event);
        });
    }
}

/// Returns a claim id that is unique over all runs of this node.
fn unique_claim_id(run: u32, claim: ClaimId) -> u64 {
    u64::from(run) << 32 | claim.to_bits() & 0xffff_ffff
}

impl Context {
    /// Maximum wait for a disclaim. If the cluster is not reached in time, reconciliation repeats it.
    const DISCLAIM_MAX: Duration = Duration::from_secs(2);
    /// Interval between two attempts to reach the leader.
    const RETRY_INTERVAL: Duration = Duration::from_millis(20);

    /// Calls the present leader until it replies or the limit is over. An error of the kind *storage full* means that
    /// the leader has no disk space for its log. [`NoMajority`] means that no majority can decide.
    pub(crate) async fn ask_leader(&self, call: &Call, limit: Duration) -> io::Result<Reply> {
        let end = Instant::now() + limit;
        let mut named: Option<Member> = None;
        let (mut full, mut no_majority) = (false, false);
        loop {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                full |= self.is_leader() && self.health.log_full.is_full();
                if !full && (no_majority || self.health.majority.is_lost()) {
                    return Err(io::Error::other(NoMajority));
                }
                let kind = if full { io::ErrorKind::StorageFull } else { io::ErrorKind::TimedOut };
                return Err(kind.into());
            }
            let reply = if self.is_leader() {
                tokio::time::timeout(remaining, self.answer(call.clone()))
                    .await
                    .map_err(|_| io::ErrorKind::TimedOut.into())
            } else {
                match named.take().or_else(|| self.leader()).or_else(|| self.next_other_member()) {
                    Some(member) if call.is_short() => {
                        self.rpc_client.ask_in_batch(member, call.clone(), remaining.min(CONNECT_MAX)).await
                    }
                    Some(member) => self.rpc_client.ask(member, call, remaining.min(CONNECT_MAX)).await,
                    None => Err(io::ErrorKind::NotConnected.into()),
                }
            };
            full = matches!(reply, Ok(Reply::LogFull)) || full && reply.is_err();
            no_majority = matches!(reply, Ok(Reply::NoMajority)) || no_majority && reply.is_err();
            match reply {
                Ok(Reply::NotLeader(leader)) => named = leader,
                Ok(Reply::NotNow(why)) => tracing::debug!(why, "the leader cannot serve the call now"),
                Ok(Reply::NoMajority) => tracing::debug!("the leader has no majority"),
                Ok(Reply::LogFull) => tracing::debug!("the leader has no disk space for its log"),
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    tracing::debug!(%error, "the leader does not answer");
                    named = self.resolve_join_address(end.saturating_duration_since(Instant::now())).await;
                }
            }
            tokio::time::sleep(Self::RETRY_INTERVAL.min(remaining)).await;
        }
    }

    /// Returns an address of the place where this node joined, if no member is at its known address. Each call
    /// returns the next address of that place.
    async fn resolve_join_address(&self, remaining: Duration) -> Option<Member> {
        let place = self.own.join_address.as_ref().filter(|_| self.leader().is_none())?;
        let turn = self.next_member.load(Ordering::Relaxed);
        let found = resolve(place, remaining.min(RESOLVE_MAX)).await.inspect_err(|error| {
            tracing::debug!(%error, %place, "cannot resolve the address where this node joined");
        });
        let found = found.ok()?;
        found.get(turn % found.len().max(1)).map(|&address| Member { address })
    }

    /// Returns another member, in turn: it knows the leader, or a node that does.
    pub(super) fn next_other_member(&self) -> Option<Member> {
        let others: Vec<_> = self.members().into_iter().filter(|&(node, _)| node != self.node).collect();
        let turn = self.next_member.fetch_add(1, Ordering::Relaxed);
        others.get(turn % others.len().max(1)).map(|&(_, member)| member)
    }

    async fn claim(&self, owned_names: &OwnedNames, name: &Name, claim: u64, within: Duration) -> Result<(), Failure> {
        let name = name.as_str().to_owned();
        // Recorded before the claim, or reconciliation could disclaim the name.
        owned_names.insert(&name, claim);
        let call = Call::Propose(Command::Claim { name: name.clone(), home: self.node, claim });
        // Ends a little early, so that the client receives the reason.
        let result = match self.ask_leader(&call, within - within / 8).await {
            Ok(Reply::Applied(CommandResult::Done)) => return Ok(()),
            Ok(Reply::Applied(CommandResult::Taken { .. })) => Err(Failure::AlreadyExists),
            Ok(Reply::Applied(CommandResult::Full)) => Err(Failure::SegmentsFull),
            // If the claim succeeds later, reconciliation disclaims it.
            reply => Err(self.failure_of(&reply)),
        };
        owned_names.remove_claim(&name, claim);
        result
    }

    /// Returns why the cluster has not decided.
    fn failure_of(&self, reply: &io::Result<Reply>) -> Failure {
        match reply {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Failure::LogUnwritable,
            Err(error) if NoMajority::is_in(error) => Failure::NoMajority,
            _ if self.has_stopped() => Failure::LogUnwritable,
            _ => Failure::TimedOut,
        }
    }

    /// Gives a name back. An error says that it stays taken until reconciliation reaches the cluster. If this node dies
    /// before that, a replica that is in sync takes over.
    async fn disclaim(&self, owned_names: &OwnedNames, name: &Name) -> Result<(), Failure> {
        let name = name.as_str();
        // Recorded before the proposal, or reconciliation could yield the segment to its replica.
        let recorded = self.state_machine.read(|directory| owned_names.release(name, directory, self.node));
        let Some(claim) = recorded else { return Ok(()) };
        let call = Call::Propose(Command::Disclaim { name: name.to_owned(), claim });
        let reply = self.ask_leader(&call, Self::DISCLAIM_MAX).await;
        if !matches!(reply, Ok(Reply::Applied(_))) {
            tracing::info!(name, "a name is given back when the cluster can be reached");
            return Err(self.failure_of(&reply));
        }
        // Until this node has applied it too, reconciliation has to know.
        if self.state_machine.read(|directory| directory.holder(name)).is_none_or(|holder| holder.claim != claim) {
            owned_names.forget_release(name, claim);
        }
        Ok(())
    }

    async fn confirm(&self, name: &Name, within: Duration) -> Result<Option<NodeId>, Failure> {
        let end = Instant::now() + within;
        // Ends a little early, as with a claim.
        let newest = match self.ask_leader(&Call::Newest, within - within / 8).await {
            Ok(Reply::Newest(newest)) => newest,
            Err(error) if NoMajority::is_in(&error) => return Err(Failure::NoMajority),
            _ => return Err(Failure::NodeDown),
        };
        let remaining = end.saturating_duration_since(Instant::now());
        let newest = newest.map(|log_id| log_id.index);
        let caught_up = self.raft.wait(Some(remaining)).applied_index_at_least(newest, "confirm").await;
        caught_up.map_err(|_| Failure::TimedOut)?;
        Ok(self.state_machine.read(|directory| directory.holder(name.as_str())).map(|holder| NodeId(holder.home)))
    }
}

/// Maximum time to resolve a host name.
const RESOLVE_MAX: Duration = Duration::from_secs(3);

/// Asks the cluster at `address` to add this node; returns its number and the id of the cluster. Each attempt resolves the host name again and
/// tries all addresses.
pub(crate) fn join(
    key: &ClusterKey,
    address: &HostPort,
    ours: SocketAddr,
    (node, shards, incarnation): (Option<u16>, u8, Incarnation),
    limit: Duration,
    stop_flag: &AtomicBool,
) -> Result<(NodeId, u64), StartError> {
    let failed = |why: String| StartError::Join { address: address.clone(), why };
    let refused = |why: String| StartError::JoinRefused { address: address.clone(), why };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let rpc_client = RpcClient::new(key.clone(), PeerHello { node: NodeId::NONE, run: 0, shards });
    let call = Call::Join { node, member: Member { address: ours } };
    let registration = Registration { incarnation, run: 0 };
    let end = Instant::now() + limit;
    let joining = async {
        let mut leader: Option<Member> = None;
        loop {
            let mut reasons = Vec::new();
            let places = match leader.take() {
                Some(leader) => vec![leader.address],
                None => resolve(address, RESOLVE_MAX).await.unwrap_or_else(|error| {
                    reasons.push(format!("its address cannot be found: {error}"));
                    Vec::new()
                }),
            };
            let (count, mut refusals, mut is_foreign) = (places.len(), 0, false);
            for place in places {
                if let Some(node) = node
                    && let Some(why) = identity_refusal(&rpc_client, place, node, registration).await
                {
                    return Err(failed(why));
                }
                let release = rpc_client.ask_release(Member { address: place }, CONNECT_MAX).await;
                if let Some(why) = release.and_then(|release| release.refusal(format_args!("the node at {place}"))) {
                    (refusals, is_foreign) = (refusals + 1, true);
                    reasons.push(why);
                    continue;
                }
                let reason = match rpc_client.ask(Member { address: place }, &call, CONNECT_MAX * 2).await {
                    Ok(Reply::Joined { node, cluster }) => {
                        // The node of this address, whose state is lost. This start would keep a number that it never may use.
                        let refusal = identity_refusal(&rpc_client, place, node, registration).await;
                        return refusal.map_or(Ok((NodeId(node), cluster)), |why| Err(failed(why)));
                    }
                    Ok(Reply::Refused(why)) => return Err(failed(why)),
                    Ok(Reply::NotLeader(Some(other))) => {
                        leader = Some(other);
                        "its leader is changing".to_owned()
                    }
                    Ok(Reply::NotLeader(None)) => "it has no leader: do most of its nodes run?".to_owned(),
                    Ok(Reply::NotNow(why)) => why,
                    Ok(Reply::NoMajority) => NoMajority.to_string(),
                    Ok(Reply::LogFull) => "the disk of its leader is full".to_owned(),
                    Ok(_) => "it sent a reply of the wrong type".to_owned(),
                    Err(error) => {
                        refusals += usize::from(is_permanent(&error));
                        format!("{place}: {error}")
                    }
                };
                reasons.push(reason);
                if leader.is_some() {
                    break;
                }
            }
            // One wrong address of a name keeps nobody from the others.
            if Instant::now() >= end || (count > 0 && refusals == count) {
                let why = reasons.join("; ");
                return Err(if is_foreign && refusals == count { refused(why) } else { failed(why) });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let joined = runtime.block_on(unless_stopped(joining, stop_flag, address));
    // Shutdown does not wait for a name service that does not answer.
    runtime.shutdown_background();
    joined
}

/// Returns why a member refuses a number to this node: it belongs to another state folder.
async fn identity_refusal(
    rpc_client: &RpcClient,
    place: SocketAddr,
    node: u16,
    registration: Registration,
) -> Option<String> {
    match rpc_client.ask(Member { address: place }, &Call::WhoIs { node, registration }, CONNECT_MAX).await {
        Ok(Reply::Refused(why)) => Some(why),
        _ => None,
    }
}

/// Joins the cluster at `address`, unless the flag is set before.
async fn unless_stopped<T>(
    joining: impl Future<Output = Result<T, StartError>>,
    stop_flag: &AtomicBool,
    address: &HostPort,
) -> Result<T, StartError> {
    tokio::select! {
        joined = joining => joined,
        () = wait_for_stop(stop_flag) => Err(StartError::Stopped { address: address.clone() }),
    }
}

/// Waits until the flag is set.
async fn wait_for_stop(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns true if a retry cannot succeed.
fn is_permanent(error: &io::Error) -> bool {
    use HandshakeError::{OtherHandshake, ShardCount, WrongKey};
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    matches!(inside, Some(ShardCount { .. } | WrongKey | OtherHandshake { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panicking_task_is_reported_and_finished_task_is_not() {
        // If this broke, a node could run on without its liveness task, or stop because a task ended normally.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::default();
            spawn_critical(&supervisor, async {});
            tokio::task::yield_now().await;
            assert_eq!(supervisor.failed_task(), None);
            spawn_critical(&supervisor, async { panic!("on purpose") });
            supervisor.wait_for_failure().await;
            assert_eq!(supervisor.failed_task(), Some(TASK_NAME));
        });
    }
}
