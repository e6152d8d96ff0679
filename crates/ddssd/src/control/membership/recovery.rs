//! Recovery of a cluster whose voters are lost, on a survivor whose daemon is stopped.
//!
//! The survivor becomes the only member of a new cluster, with the directory that it knows. Replicas on it take over as
//! after any death. The new cluster has an id of its own, on which its key depends: a node of the former cluster cannot
//! talk to it by mistake, and is refused when it returns.

use crate::config::addresses::control_address;
use crate::config::config::Config;
use crate::control::identity::member::Member;
use crate::control::identity::state_file::remove_file_if_present;
use crate::control::identity::{Identity, forget_names_compared, last_memory_folder};
use crate::control::raft::offline::OfflineState;
use crate::control::raft::snapshot::install_prepared_snapshot;
use crate::control::rpc::stream::RpcStream;
use crate::start_error::StartError;
use crate::storage::state_dir;
use crate::storage::state_dir::StateDirLock;
use ddss_admin::storage::OfflineNode;
use ddss_admin::{ClusterKey, RecoveredName, RecoveryMode, RecoveryReport, SurvivorReport};
use ddss_core::{NodeId, PeerHello, SegmentId};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;

/// Files that a survivor drops before it joins the new cluster.
const REPLICATED_STATE: [&str; 2] = ["raft.log", "directory.json"];

/// A stopped member of a cluster.
struct Survivor<'a> {
    config: &'a Config,
    key: &'a ClusterKey,
    /// Folder of its segments in memory.
    memory_folder: PathBuf,
    identity: Identity,
    state: OfflineState,
}

/// Reports what a recovery on this node would keep, and does it unless it is only asked for the report.
pub fn recover(config: &Config, mode: RecoveryMode) -> Result<RecoveryReport, StartError> {
    let folder = &config.state_folder;
    let failed = |source| StartError::State { path: folder.clone(), source };
    let no_state = || StartError::NoState { state_folder: folder.clone() };
    let key = config.key.as_ref().ok_or_else(no_state)?;
    // Root would leave files that the daemon's user cannot read.
    state_dir::check(folder)?;
    let memory_folder = last_memory_folder(folder, &config.memory_folder);
    // A daemon that runs would go on with what it has in memory.
    for path in [&config.folder, &memory_folder, folder] {
        StateDirLock::check(path)?;
    }
    let changes = mode != RecoveryMode::List && folder.exists();
    let _locks = if changes { StateDirLock::lock_all(&[&**folder])? } else { Vec::new() };
    let identity = Identity::read(folder).map_err(failed)?.ok_or_else(no_state)?;
    let state = OfflineState::read(folder).map_err(failed)?;
    if !state.members().iter().any(|&(node, _)| node == identity.node) {
        return Err(no_state());
    }
    let survivor = Survivor { config, key, memory_folder, identity, state };
    let report = survivor.report().map_err(failed)?;
    let voters = report.members.iter().filter(|member| member.voter).count();
    // This node would vote too, if it is started.
    let able = report.members.iter().filter(|member| member.voter && (member.answers || member.node == report.node));
    let able = able.count();
    let answers = report.members.iter().any(|member| member.voter && member.answers);
    if mode == RecoveryMode::Begin && answers && 2 * able > voters {
        return Err(StartError::HasMajority { able, voters });
    }
    match mode {
        RecoveryMode::List => {}
        RecoveryMode::Begin => survivor.begin().map_err(failed)?,
        RecoveryMode::Rejoin => survivor.rejoin().map_err(failed)?,
    }
    Ok(report)
}

impl Survivor<'_> {
    fn report(&self) -> io::Result<RecoveryReport> {
        let node = self.identity.node;
        let stored = OfflineNode::read_all(&self.memory_folder, &self.config.state_folder);
        // Nothing is there after a reboot.
        let stored: BTreeMap<String, u64> = stored.map_or_else(
            |_| BTreeMap::new(),
            |found| {
                let record = |segment: &ddss_admin::storage::OfflineSegment| {
                    (segment.record.name.as_str().to_owned(), segment.record.known_as.to_bits())
                };
                found.segments.iter().map(record).collect()
            },
        );
        let (mut here, mut taken_over, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        for (name, owner) in self.state.directory.names() {
            let found = RecoveredName { name: name.to_owned(), home: owner.home };
            let is_stored = |id: Option<u64>| stored.get(name).is_some_and(|held| id.is_none_or(|id| id == *held));
            let replica = owner.roles.filter(|roles| roles.paired && roles.replica == node);
            let is_lost_at_home = owner.roles.is_some_and(|roles| roles.vacant);
            if owner.home == node && !is_lost_at_home && is_stored(owner.roles.map(|roles| roles.segment)) {
                here.push(found);
            } else if replica.is_some_and(|roles| is_stored(Some(roles.segment))) {
                taken_over.push(found);
            } else {
                elsewhere.push(found);
            }
        }
        // A log that ends early lacks names of this node; it claims them again.
        let is_own = |id: u64| SegmentId::from_bits(id).home().0 == node;
        let unknown = stored.iter().filter(|(name, id)| self.state.directory.holder(name).is_none() && is_own(**id));
        here.extend(unknown.map(|(name, _)| RecoveredName { name: name.clone(), home: node }));
        let members = self.members()?;
        let (term, index) = self.state.last.map_or((0, 0), |last| (last.leader_id.get_term(), last.index));
        let memory = self.memory_folder.display().to_string();
        Ok(RecoveryReport { node, term, index, memory, members, here, taken_over, elsewhere })
    }

    /// Returns all members, and whether each one answers. This node does not count as one that answers: it is stopped.
    fn members(&self) -> io::Result<Vec<SurvivorReport>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let key = self.key.of_cluster(self.identity.cluster);
        let ours = PeerHello { node: NodeId::NONE, run: 0, shards: self.config.progress_threads };
        let answering = runtime.block_on(async {
            let mut asked = JoinSet::new();
            for (node, member) in self.state.members().into_iter().filter(|&(node, _)| node != self.identity.node) {
                let (key, ours) = (key.clone(), ours);
                asked.spawn(async move {
                    let met = RpcStream::connect(control_address(member.address), &key, &ours).await;
                    met.is_ok_and(|(theirs, _)| theirs.node.0 == node).then_some(node)
                });
            }
            asked.join_all().await
        });
        let report = |(node, member): (u16, Member)| {
            let voter = self.state.is_voter(node);
            SurvivorReport { node, address: member.address, voter, answers: answering.contains(&Some(node)) }
        };
        Ok(self.state.members().into_iter().map(report).collect())
    }

    /// Begins the new cluster. The write of the identity decides: before it the node belongs to the former cluster, and
    /// after it the next start goes on where this ended.
    fn begin(self) -> io::Result<()> {
        let folder = &*self.config.state_folder;
        let node = self.identity.node;
        let member = self.state.members().into_iter().find(|&(other, _)| other == node).map(|(_, member)| member);
        let (cluster, former_cluster) = (random_id()?, Some(self.identity.cluster));
        self.state.prepare_new_cluster(folder, cluster, node, member.unwrap_or_default())?;
        // Names of this node that its log lacks were not released.
        forget_names_compared(folder)?;
        Identity { founder: true, cluster, former_cluster, rejoins_at: None, ..self.identity }.write(folder)?;
        complete_recovery(folder, cluster)
    }

    /// Prepares the next start, which joins the new cluster under the same number.
    fn rejoin(self) -> io::Result<()> {
        let folder: &Path = &self.config.state_folder;
        let Some(join) = &self.config.join else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to join: give --join HOST:PORT"));
        };
        // The start drops the old state, once it has joined.
        let (former_cluster, rejoins_at) = (Some(self.identity.cluster), Some(join.to_string()));
        Identity { founder: false, former_cluster, rejoins_at, ..self.identity }.write(folder)
    }
}

/// Completes a recovery of this node after its identity is that of the new cluster.
pub(crate) fn complete_recovery(folder: &Path, cluster: u64) -> io::Result<()> {
    if cluster == 0 { Ok(()) } else { install_prepared_snapshot(folder, cluster) }
}

/// Drops the directory and the log of the former cluster.
pub(crate) fn drop_replicated_state(folder: &Path) -> io::Result<()> {
    REPLICATED_STATE.iter().try_for_each(|name| remove_file_if_present(folder, name))
}

/// Returns the id of a new cluster.
fn random_id() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    // Zero means that the cluster was never recovered.
    Ok(u64::from_le_bytes(bytes).max(1))
}
