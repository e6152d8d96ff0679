//! The control plane of one node: its thread, what it starts, and what it does for the progress thread.

use super::admin;
use super::bridge::{ControlEvent, ControlRequest, EventSender, EventSenders};
use super::failure_detector::watch;
use super::majority::{NoMajority, watch_majority};
use super::membership::founding::founders;
use super::membership::incarnation::{Incarnation, Registration};
use super::membership::registration::Candidate;
use super::membership::removal::Removal;
use super::owned_names::OwnedNames;
use super::raft::log::LogStore;
use super::raft::network::{LastContact, LocalIdentity, Network};
use super::raft::state_machine::StateMachine;
use super::raft::types::{Answer, Command, Member, Raft};
use super::replication::hold_lease;
use super::rpc::server::{Context, serve};
use super::rpc::stream::MEET_MAX;
use super::rpc::types::{Call, Reply};
use super::stall::detect_stalls;
use crate::auth::{ClusterKey, HandshakeError};
use crate::config::config::PeerAddress;
use crate::config::host_port::HostPort;
use crate::status::StatusPage;
use crate::supervisor::Supervisor;
use ddss_core::engine::ClaimId;
use ddss_core::{Failure, Name, NodeId, PeerHello};
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

/// Why the control plane could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// What it wrote down cannot be used.
    #[error("cannot use the cluster's state in {}", path.display())]
    State {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be started.
    #[error("cannot start the control plane: {0}")]
    Start(String),
    /// The daemon was told to stop before the cluster had let it in.
    #[error("told to stop while joining the cluster at {address}")]
    Stopped {
        /// Where it was tried.
        address: HostPort,
    },
    /// The cluster knows another one under this number.
    #[error("this node may not be node {node} with the state in {}: {why}", path.display())]
    Refused {
        /// Which number.
        node: u16,
        /// The state folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The cluster could not be joined.
    #[error("cannot join the cluster at {address}: {why}")]
    Join {
        /// Where it was tried.
        address: HostPort,
        /// Why.
        why: String,
    },
}

/// What a control plane is told.
#[derive(Debug)]
pub(crate) struct ControlConfig {
    pub(crate) node: NodeId,
    pub(crate) run: u32,
    pub(crate) incarnation: Incarnation,
    /// How many planes this node has.
    pub(crate) planes: u8,
    pub(crate) key: ClusterKey,
    /// Where other nodes reach this one's data plane.
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
    pub(crate) state_folder: PathBuf,
    pub(crate) folder: PathBuf,
    /// The nodes with which it begins, if it begins a cluster.
    pub(crate) peers: Vec<PeerAddress>,
    /// Whether it may begin one.
    pub(crate) founder: bool,
    /// Who knows where the cluster is, when it is nowhere else.
    pub(crate) join: Option<HostPort>,
    /// The segments that it has already; with each, whether it was first at home elsewhere.
    pub(crate) names: Vec<(Name, bool)>,
    /// Where others see how the cluster is: the pages of all planes.
    pub(crate) pages: Vec<StatusPage>,
}

/// The control plane's side of one plane's desk: where it tells, and what it is asked.
pub(crate) type BridgeEnd = (EventSender, asynchronous::UnboundedReceiver<ControlRequest>);

/// What it is called among the parts of the node.
const VITAL: &str = "the control plane";

/// The running control plane. It ends with this value.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Starts it; when this returns, other nodes are answered.
    pub(crate) fn start(
        config: ControlConfig,
        desks: Vec<BridgeEnd>,
        vitals: Supervisor,
    ) -> Result<Self, ControlError> {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::sync_channel(1);
        let body = move || {
            let _vital = vitals.register(VITAL);
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(ControlError::Start(error.to_string())))),
            };
            runtime.block_on(async {
                match begin(config, desks, &vitals).await {
                    Ok(context) => {
                        let _ = tell.send(Ok(()));
                        tokio::select! {
                            // An error is a value that was dropped: then it is to stop as well.
                            _ = stopped => {}
                            // Without a progress thread it is no home of anything, and the cluster shall know.
                            () = vitals.wait_for_failure() => {}
                        }
                        let _ = tokio::time::timeout(Duration::from_secs(1), context.raft.shutdown()).await;
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("ddss-control".to_owned()).spawn(body);
        let thread = thread.map_err(|error| ControlError::Start(error.to_string()))?;
        let began = told.recv().unwrap_or_else(|_| Err(ControlError::Start("its thread ended".to_owned())));
        let plane = Self { stop: Some(stop), thread: Some(thread) };
        began.map(|()| plane)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was logged by the runtime; the node ends all the same.
            let _ = thread.join();
        }
    }
}

fn group_config() -> Result<Config, ControlError> {
    let config = Config {
        cluster_name: "ddss".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 500,
        election_timeout_max: 1000,
        install_snapshot_timeout: 2000,
        max_payload_entries: 64,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(2000),
        max_in_snapshot_log_to_keep: 500,
        snapshot_max_chunk_size: 256 << 10,
        ..Config::default()
    };
    config.validate().map_err(|error| ControlError::Start(error.to_string()))
}

async fn begin(config: ControlConfig, desks: Vec<BridgeEnd>, vitals: &Supervisor) -> Result<Context, ControlError> {
    let state = |source| ControlError::State { path: config.state_folder.clone(), source };
    let failed = |error: &dyn std::fmt::Display| ControlError::Start(error.to_string());
    let node = config.node.0;
    let ours = Member { address: config.address };
    let hello = PeerHello { node: config.node, run: config.run, planes: config.planes };
    let caller = LocalIdentity::new(config.key.clone(), hello).of_member(Removal::new(vitals.clone()));
    let tellers = EventSenders::new(desks.iter().map(|(teller, _)| teller.clone()));
    let heard = LastContact::default();
    let log = LogStore::open(&config.state_folder).map_err(state)?;
    let keeper = StateMachine::open(&config.state_folder, node, tellers.clone()).map_err(state)?;
    let log_full = log.full();
    let registration = Registration { incarnation: config.incarnation, run: config.run };
    admit(&config, registration, &caller, &log, &keeper).await?;
    let network = Network { caller: caller.clone(), heard: heard.clone() };
    let group = Arc::new(group_config()?);
    let raft = Raft::new(node.into(), group, network, log, keeper.clone()).await;
    let raft = raft.map_err(|error| failed(&error))?;
    let (doomed, deciding) = Default::default();
    let (members, turn) = Default::default();
    let (majority, stall, stalled) = Default::default();
    let (leaving, left) = Default::default();
    let context = Context {
        raft,
        keeper,
        caller,
        heard,
        registration,
        majority,
        stall,
        stalled,
        node,
        ours,
        members,
        turn,
        doomed,
        leaving,
        left,
        deciding,
        log_full,
        join: config.join.clone(),
        peers: config.peers.into(),
    };
    let initialized = context.raft.is_initialized().await.map_err(|error| failed(&error))?;
    if config.founder && !initialized {
        let founders = founders(node, ours, &context.peers);
        // The others of the founders may have been faster, with the same words.
        if founders.contains_key(&node.into())
            && let Err(error) = context.raft.initialize(founders).await
        {
            tracing::debug!(%error, "the cluster exists already");
        }
    }
    let listener =
        config.listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(config.listener));
    let listener = listener.map_err(|error| failed(&error))?;
    let held = OwnedNames::default();
    held.take_up(&config.names);
    admin::open(&context, &config.folder, &config.state_folder).map_err(|error| failed(&error))?;
    spawn(vitals, serve(context.clone(), listener));
    spawn(vitals, watch_majority(context.clone(), config.pages.clone(), tellers.clone()));
    spawn(vitals, detect_stalls(context.stall.clone(), config.pages.clone()));
    spawn(vitals, watch(context.clone(), config.run, held.clone(), config.pages));
    spawn(vitals, hold_lease(context.clone(), config.run, tellers));
    for (teller, asked) in desks {
        tokio::spawn(attend(context.clone(), asked, teller, held.clone(), config.run));
    }
    Ok(context)
}

/// Asks those of whom this node knows whether it may begin.
async fn admit(
    config: &ControlConfig,
    registration: Registration,
    caller: &LocalIdentity,
    log: &LogStore,
    keeper: &StateMachine,
) -> Result<(), ControlError> {
    let (node, ours) = (config.node.0, Member { address: config.address });
    let mut known: BTreeMap<u16, Member> = keeper.members().into_iter().collect();
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
        // Its number is of no interest.
        let found = place.resolve(FIND_MAX).await.unwrap_or_default();
        known.extend(found.into_iter().map(|address| (NodeId::NOBODY.0, Member { address })));
    }
    let candidate = Candidate { node, ours, registration, has_no_state };
    let admitted = candidate.is_admitted(caller, known).await;
    admitted.map_err(|why| ControlError::Refused { node, path: config.state_folder.clone(), why })
}

/// Runs a task that may come to its end, and must not panic.
fn spawn(vitals: &Supervisor, task: impl Future<Output = ()> + Send + 'static) {
    let vital = vitals.register(VITAL);
    tokio::spawn(async move {
        task.await;
        vital.done();
    });
}

/// Does what a progress thread asks, each on its own.
async fn attend(
    context: Context,
    mut asked: asynchronous::UnboundedReceiver<ControlRequest>,
    teller: EventSender,
    held: OwnedNames,
    run: u32,
) {
    while let Some(ask) = asked.recv().await {
        let (context, teller, held) = (context.clone(), teller.clone(), held.clone());
        tokio::spawn(async move {
            let tell = match ask {
                ControlRequest::Decide(decision) => return context.decide(&held, run, &decision).await,
                ControlRequest::Claim { claim, name, within } => {
                    let result = context.claim(&held, &name, number(run, claim), within).await;
                    ControlEvent::Claimed { claim, result }
                }
                ControlRequest::Disclaim { claim, name } => {
                    ControlEvent::Disclaimed { claim, result: context.disclaim(&held, &name).await }
                }
                ControlRequest::Confirm { step, name, within } => {
                    ControlEvent::Confirmed { step, result: context.confirm(&name, within).await }
                }
            };
            teller.tell(tell);
        });
    }
}

/// A number that no other claim of this node has, in this run or an older one.
fn number(run: u32, claim: ClaimId) -> u64 {
    u64::from(run) << 32 | claim.to_bits() & 0xffff_ffff
}

impl Context {
    /// How long a name that is given back is waited for. What the cluster does not hear in that time, it is told later.
    const DISCLAIM_MAX: Duration = Duration::from_secs(2);
    /// How long until the leader is asked again.
    const AGAIN: Duration = Duration::from_millis(20);

    /// Asks the leader, whoever it is by now, until it answers or time is up. An error of the kind *storage full* says that it
    /// has no room to write down what was asked, and [`NoMajority`] in one that nothing can be decided.
    pub(crate) async fn ask_leader(&self, call: &Call, limit: Duration) -> io::Result<Reply> {
        let end = Instant::now() + limit;
        let mut named: Option<Member> = None;
        let (mut full, mut no_majority) = (false, false);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                full |= self.is_leader() && self.log_full.is_full();
                if !full && (no_majority || self.majority.is_lost()) {
                    return Err(io::Error::other(NoMajority));
                }
                let kind = if full { io::ErrorKind::StorageFull } else { io::ErrorKind::TimedOut };
                return Err(kind.into());
            }
            let reply = if self.is_leader() {
                tokio::time::timeout(left, self.answer(call.clone())).await.map_err(|_| io::ErrorKind::TimedOut.into())
            } else {
                match named.take().or_else(|| self.leader()).or_else(|| self.somebody()) {
                    Some(member) if call.is_short() => {
                        self.caller.ask_in_batch(member, call.clone(), left.min(MEET_MAX)).await
                    }
                    Some(member) => self.caller.ask(member, call, left.min(MEET_MAX)).await,
                    None => Err(io::ErrorKind::NotConnected.into()),
                }
            };
            full = matches!(reply, Ok(Reply::LogFull)) || full && reply.is_err();
            no_majority = matches!(reply, Ok(Reply::NoMajority)) || no_majority && reply.is_err();
            match reply {
                Ok(Reply::NotLeader(leader)) => named = leader,
                Ok(Reply::NotNow(why)) => tracing::debug!(why, "the leader cannot do it now"),
                Ok(Reply::NoMajority) => tracing::debug!("the leader has no majority"),
                Ok(Reply::LogFull) => tracing::debug!("the leader has no room for its log"),
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    tracing::debug!(%error, "the leader does not answer");
                    named = self.found_anew(end.saturating_duration_since(Instant::now())).await;
                }
            }
            tokio::time::sleep(Self::AGAIN.min(left)).await;
        }
    }

    /// Somebody at the place where this node joined, if nobody of the cluster is where it was: all of them may have other
    /// addresses by now. Each time another of that place's.
    async fn found_anew(&self, left: Duration) -> Option<Member> {
        let place = self.join.as_ref().filter(|_| self.leader().is_none())?;
        let turn = self.turn.load(Ordering::Relaxed);
        let found = place.resolve(left.min(FIND_MAX)).await.inspect_err(|error| {
            tracing::debug!(%error, %place, "cannot find the place where this node joined");
        });
        let found = found.ok()?;
        found.get(turn % found.len().max(1)).map(|&address| Member { address })
    }

    /// Any other member: it knows the leader, or somebody who does.
    pub(super) fn somebody(&self) -> Option<Member> {
        let others: Vec<_> = self.members().into_iter().filter(|&(node, _)| node != self.node).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        others.get(turn % others.len().max(1)).map(|&(_, member)| member)
    }

    async fn claim(&self, held: &OwnedNames, name: &Name, claim: u64, within: Duration) -> Result<(), Failure> {
        let name = name.as_str().to_owned();
        // Noted before it is asked for, or the sweep could take it for a name that nobody has.
        held.insert(&name, claim);
        let call = Call::Propose(Command::Claim { name: name.clone(), home: self.node, claim });
        // A little less than there is, so that whoever asked hears why it was in vain.
        let result = match self.ask_leader(&call, within - within / 8).await {
            Ok(Reply::Applied(Answer::Done)) => return Ok(()),
            Ok(Reply::Applied(Answer::Taken { .. })) => Err(Failure::AlreadyExists),
            Ok(Reply::Applied(Answer::Full)) => Err(Failure::SegmentsFull),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(Failure::LogUnwritable),
            Err(error) if NoMajority::is_in(&error) => Err(Failure::NoMajority),
            _ if self.has_stopped() => Err(Failure::LogUnwritable),
            // If it happens all the same, the sweep gives it back.
            _ => Err(Failure::TimedOut),
        };
        held.remove_claim(&name, claim);
        result
    }

    /// Gives a name back. An error says that it is taken until a majority can be reached.
    async fn disclaim(&self, held: &OwnedNames, name: &Name) -> Result<(), Failure> {
        let Some(claim) = held.remove(name.as_str()) else { return Ok(()) };
        let name = name.as_str().to_owned();
        let holder = || self.keeper.look(|directory| directory.holder(&name)).filter(|holder| holder.home == self.node);
        let Some(claim) = claim.or_else(|| holder().map(|holder| holder.claim)) else { return Ok(()) };
        let call = Call::Propose(Command::Disclaim { name: name.clone(), claim });
        let Err(error) = self.ask_leader(&call, Self::DISCLAIM_MAX).await else { return Ok(()) };
        tracing::info!(name, "a name is given back when the cluster can be reached");
        if NoMajority::is_in(&error) { Err(Failure::NoMajority) } else { Ok(()) }
    }

    async fn confirm(&self, name: &Name, within: Duration) -> Result<Option<NodeId>, Failure> {
        let end = Instant::now() + within;
        // A little less than there is, as with a claim.
        let newest = match self.ask_leader(&Call::Newest, within - within / 8).await {
            Ok(Reply::Newest(newest)) => newest,
            Err(error) if NoMajority::is_in(&error) => return Err(Failure::NoMajority),
            _ => return Err(Failure::NodeDown),
        };
        let left = end.saturating_duration_since(Instant::now());
        let newest = newest.map(|log_id| log_id.index);
        let caught_up = self.raft.wait(Some(left)).applied_index_at_least(newest, "confirm").await;
        caught_up.map_err(|_| Failure::TimedOut)?;
        Ok(self.keeper.look(|directory| directory.holder(name.as_str())).map(|holder| NodeId(holder.home)))
    }
}

/// How long the addresses of a name may take to be found.
const FIND_MAX: Duration = Duration::from_secs(3);

/// Asks the cluster at `address` to take this node in; says which number it has there. A name is looked up with each try,
/// and each of its addresses is tried.
pub(crate) fn join(
    key: &ClusterKey,
    address: &HostPort,
    ours: SocketAddr,
    (node, planes, incarnation): (Option<u16>, u8, Incarnation),
    limit: Duration,
    stop_requested: &AtomicBool,
) -> Result<NodeId, ControlError> {
    let failed = |why: String| ControlError::Join { address: address.clone(), why };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let caller = LocalIdentity::new(key.clone(), PeerHello { node: NodeId::NOBODY, run: 0, planes });
    let call = Call::Join { node, member: Member { address: ours } };
    let registration = Registration { incarnation, run: 0 };
    let end = Instant::now() + limit;
    let joining = async {
        let mut leader: Option<Member> = None;
        loop {
            let mut why = Vec::new();
            let places = match leader.take() {
                Some(leader) => vec![leader.address],
                None => address.resolve(FIND_MAX).await.unwrap_or_else(|error| {
                    why.push(format!("its address cannot be found: {error}"));
                    Vec::new()
                }),
            };
            for place in places {
                // A number that this node had with another state folder is not given to it again.
                if let Some(node) = node
                    && let Ok(Reply::Refused(why)) =
                        caller.ask(Member { address: place }, &Call::WhoIs { node, registration }, MEET_MAX).await
                {
                    return Err(failed(why));
                }
                let told = match caller.ask(Member { address: place }, &call, MEET_MAX * 2).await {
                    Ok(Reply::Joined { node }) => return Ok(NodeId(node)),
                    Ok(Reply::Refused(why)) => return Err(failed(why)),
                    Ok(Reply::NotLeader(Some(other))) => {
                        leader = Some(other);
                        "its leader is changing".to_owned()
                    }
                    Ok(Reply::NotLeader(None)) => "it has no leader: do most of its nodes run?".to_owned(),
                    Ok(Reply::NotNow(why)) => why,
                    Ok(Reply::NoMajority) => NoMajority.to_string(),
                    Ok(Reply::LogFull) => "the disk of its leader is full".to_owned(),
                    Ok(_) => "it answers another question".to_owned(),
                    Err(error) if is_for_good(&error) => return Err(failed(error.to_string())),
                    Err(error) => format!("{place}: {error}"),
                };
                why.push(told);
                if leader.is_some() {
                    break;
                }
            }
            if Instant::now() >= end {
                return Err(failed(why.join("; ")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let joined = runtime.block_on(async {
        tokio::select! {
            joined = joining => joined,
            () = is_told(stop_requested) => Err(ControlError::Stopped { address: address.clone() }),
        }
    });
    // A name service that does not answer is waited for by nobody.
    runtime.shutdown_background();
    joined
}

/// Waits until the flag is set.
async fn is_told(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether asking again changes nothing.
fn is_for_good(error: &io::Error) -> bool {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    matches!(inside, Some(HandshakeError::ShardCount { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_panics_is_missed_and_one_that_comes_to_its_end_is_not() {
        // If this broke, a node could go on for ever without the task that says that it lives, or end since it left its cluster.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let vitals = Supervisor::default();
            spawn(&vitals, async {});
            tokio::task::yield_now().await;
            assert_eq!(vitals.failed_task(), None);
            spawn(&vitals, async { panic!("on purpose") });
            vitals.wait_for_failure().await;
            assert_eq!(vitals.failed_task(), Some(VITAL));
        });
    }
}
