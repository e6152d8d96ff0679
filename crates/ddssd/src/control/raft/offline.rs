//! The replicated state of a node whose daemon is stopped.

use super::directory::Directory;
use super::log::read_log;
use super::snapshot::{StoredSnapshot, prepare_snapshot, read_snapshot};
use super::types::{LogId, Membership, Vote};
use crate::control::identity::member::Member;
use openraft::{EntryPayload, SnapshotMeta};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Knowledge of a stopped node about its cluster: its snapshot and all entries behind it. It does not know which of them a
/// majority has: a leader may have acknowledged each of them.
#[derive(Debug)]
pub(crate) struct OfflineState {
    vote: Option<Vote>,
    /// Position of the last entry.
    pub(crate) last: Option<LogId>,
    membership: Membership,
    pub(crate) directory: Directory,
}

impl OfflineState {
    /// Reads the state below a state folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let StoredSnapshot { meta, directory } = read_snapshot(folder)?.unwrap_or_default();
        let (vote, entries) = read_log(folder)?;
        let mut state = Self { vote, last: meta.last_log_id, membership: meta.last_membership, directory };
        for entry in entries {
            // An entry of an older leader behind the snapshot of a later one was never decided.
            if state.last.is_some_and(|last| entry.log_id.index <= last.index || entry.log_id < last) {
                continue;
            }
            state.last = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(command) => drop(state.directory.apply(&command, |_| {})),
                EntryPayload::Membership(membership) => {
                    state.membership = Membership::new(Some(entry.log_id), membership);
                    let members: Vec<u16> = state.members().into_iter().map(|(node, _)| node).collect();
                    state.directory.clear_removed(members.into_iter());
                }
            }
        }
        Ok(state)
    }

    /// Returns the members.
    pub(crate) fn members(&self) -> Vec<(u16, Member)> {
        let nodes = self.membership.nodes();
        nodes.filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member))).collect()
    }

    pub(crate) fn is_voter(&self, node: u16) -> bool {
        self.membership.voter_ids().any(|voter| voter == u64::from(node))
    }

    /// Prepares the state of a cluster with this node as its only member. The old log ends before it, so that the start
    /// that finds it installed drops the log.
    pub(crate) fn prepare_new_cluster(
        mut self,
        folder: &Path,
        cluster: u64,
        node: u16,
        member: Member,
    ) -> io::Result<()> {
        let members: Vec<u16> = self.members().into_iter().map(|(node, _)| node).collect();
        self.directory.begin_new_cluster(node, members.into_iter());
        // Not before any entry, and by no later leader than the one that this node has voted for.
        let leader = self.vote.map(|vote| *vote.leader_id());
        let leader = leader.max(self.last.map(|last| last.leader_id)).unwrap_or_default();
        let at = LogId::new(leader, self.last.map_or(0, |last| last.index) + 1);
        let (voters, nodes) = (BTreeSet::from([u64::from(node)]), BTreeMap::from([(u64::from(node), member)]));
        let membership = Membership::new(Some(at), openraft::Membership::new(vec![voters], nodes));
        let snapshot_id = format!("{}-{}", at.leader_id, at.index);
        let meta = SnapshotMeta { last_log_id: Some(at), last_membership: membership, snapshot_id };
        prepare_snapshot(folder, cluster, &StoredSnapshot { meta, directory: self.directory })
    }
}
