//! Recovery of a cluster whose voters are lost, on a survivor whose daemon is stopped.
//!
//! The survivor becomes the only member of a new cluster, with the directory that it knows. Replicas on it take over as
//! after any death. The new cluster has an id of its own, on which its key depends: a node of the former cluster cannot
//! talk to it by mistake, and is refused when it returns.

use super::identity::Identity;
use super::state_file::{remove_file_if_present, replace_file_atomically};
use crate::config::config::Config;
use crate::control::member::Member;
use crate::control::raft::offline::OfflineState;
use crate::control::rpc::addresses::control_address;
use crate::control::rpc::stream::RpcStream;
use crate::start_error::StartError;
use crate::storage::state_dir::StateDirLock;
use ddss_admin::storage::{JOIN_FILE_NAME, OfflineNode};
use ddss_admin::{ClusterKey, RecoveredName, RecoveryMode, RecoveryReport, SurvivorReport};
use ddss_core::{NodeId, PeerHello};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tokio::task::JoinSet;

/// Files that a survivor drops before it joins the new cluster.
const REPLICATED_STATE: [&str; 2] = ["raft.log", "directory.json"];

/// A stopped member of a cluster.
struct Survivor<'a> {
    config: &'a Config,
    key: &'a ClusterKey,
    identity: Identity,
    state: OfflineState,
}

/// Reports what a recovery on this node would keep, and does it unless it is only asked for the report.
pub fn recover(config: &Config, mode: RecoveryMode) -> Result<RecoveryReport, StartError> {
    let folder = &config.state_folder;
    let failed = |source| StartError::State { path: folder.clone(), source };
    let no_state = || StartError::NoState { state_folder: folder.clone() };
    let key = config.key.as_ref().ok_or_else(no_state)?;
    // A daemon that runs would go on with what it has in memory.
    let _locks = if mode == RecoveryMode::List {
        for path in [&config.folder, &config.memory_folder, folder] {
            StateDirLock::check(path)?;
        }
        Vec::new()
    } else {
        let mut locks = vec![StateDirLock::lock_by_file(&config.folder)?];
        locks.extend(StateDirLock::lock_all(&[&*config.memory_folder, &**folder])?);
        locks
    };
    let identity = Identity::read(folder).map_err(failed)?.ok_or_else(no_state)?;
    let state = OfflineState::read(folder).map_err(failed)?;
    if !state.members().iter().any(|&(node, _)| node == identity.node) {
        return Err(no_state());
    }
    let survivor = Survivor { config, key, identity, state };
    let report = survivor.report().map_err(failed)?;
    let lost = report.members.iter().filter(|member| member.voter && !member.answers).count();
    let voters = report.members.iter().filter(|member| member.voter).count();
    if mode == RecoveryMode::Begin && 2 * lost < voters {
        return Err(StartError::HasMajority { answering: voters - lost, voters });
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
        let stored = OfflineNode::read_all(&self.config.memory_folder, &self.config.state_folder);
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
        let members = self.members()?;
        let (term, index) = self.state.last.map_or((0, 0), |last| (last.leader_id.get_term(), last.index));
        Ok(RecoveryReport { node, term, index, members, here, taken_over, elsewhere })
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

    /// Begins the new cluster. The identity comes first: a kill between the two leaves a node that reaches nobody, and the
    /// recovery can be repeated.
    fn begin(self) -> io::Result<()> {
        let folder = &*self.config.state_folder;
        let node = self.identity.node;
        let member = self.state.members().into_iter().find(|&(other, _)| other == node).map(|(_, member)| member);
        let (cluster, former_cluster) = (random_id()?, Some(self.identity.cluster));
        Identity { founder: true, cluster, former_cluster, rejoins: false, ..self.identity }.write(folder)?;
        self.state.keep_only(folder, node, member.unwrap_or_default())
    }

    /// Prepares the next start, which joins the new cluster under the same number.
    fn rejoin(self) -> io::Result<()> {
        let folder: &Path = &self.config.state_folder;
        let Some(join) = &self.config.join else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to join: give --join HOST:PORT"));
        };
        replace_file_atomically(folder, JOIN_FILE_NAME, format!("{join}\n").as_bytes())?;
        // The start that joins drops the old state: a kill before it changes nothing.
        let former_cluster = Some(self.identity.cluster);
        Identity { founder: false, former_cluster, rejoins: true, ..self.identity }.write(folder)
    }
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
