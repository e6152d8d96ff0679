//! Node identity of a state folder, so that a restart needs no flags.

use crate::control::identity::incarnation::Incarnation;
use crate::control::identity::state_file::{remove_file_if_present, replace_file_atomically};
use ddss_admin::ClusterKey;
use ddss_admin::storage::FOUND_FILE_NAME;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Identity that is stored when a node founds or joins a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: u16,
    /// True if the node may found a cluster: false after a join.
    pub(crate) founder: bool,
    /// Id of the cluster: 0 until it is recovered after the loss of its voters.
    #[serde(default)]
    pub(crate) cluster: u64,
    /// Id of the cluster from which this one was recovered.
    #[serde(default)]
    pub(crate) former_cluster: Option<u64>,
    /// Address of the recovered cluster that the node has to join under its number.
    #[serde(default)]
    pub(crate) rejoins_at: Option<String>,
    /// Addresses of the last start, for one that names none.
    #[serde(default)]
    pub(crate) addresses: Option<Addresses>,
}

/// A cluster, and the clusters from which it was recovered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterLineage {
    /// Id of the cluster: 0 until it is recovered after the loss of its voters.
    pub(crate) id: u64,
    /// Keys of the clusters from which it was recovered.
    pub(crate) former_keys: Arc<[ClusterKey]>,
}

/// Addresses of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) listen: SocketAddr,
    /// Address for other nodes, if it was configured.
    pub(crate) advertise: Option<SocketAddr>,
}

impl Identity {
    const NAME: &str = "node.json";

    /// Returns the identity of a new member.
    pub(crate) fn new(node: u16, founder: bool, cluster: u64) -> Self {
        Self { node, founder, cluster, former_cluster: None, rejoins_at: None, addresses: None }
    }

    /// Returns the key of this cluster, and its lineage.
    pub(crate) fn keys(&self, key: &ClusterKey) -> (ClusterKey, ClusterLineage) {
        let id = self.cluster;
        let former = [Some(0), self.former_cluster].into_iter().flatten().filter(|&other| other != id);
        let former_keys = former.map(|id| key.of_cluster(id)).collect();
        (key.of_cluster(id), ClusterLineage { id, former_keys })
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(folder.join(Self::NAME)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        replace_file_atomically(folder, Self::NAME, &serde_json::to_vec(self)?)
    }
}

/// File in the state folder with its own path, and the memory folder of the last start.
const MEMORY_MARK_NAME: &str = "memory-folder";

/// Returns the memory folder of the last start, else the one of the settings.
pub(crate) fn last_memory_folder(folder: &Path, memory_folder: &Path) -> PathBuf {
    let mark = std::fs::read_to_string(folder.join(MEMORY_MARK_NAME)).unwrap_or_default();
    // A copy of the state folder is the node without its segments.
    let own = format!("{}\n", folder.display());
    let last = mark.strip_prefix(&own).map(|last| PathBuf::from(last.trim_end_matches('\n')));
    last.unwrap_or_else(|| memory_folder.to_owned())
}

/// Records the memory folder of this start.
pub(crate) fn record_memory_folder(folder: &Path, memory_folder: &Path) -> io::Result<()> {
    let mark = format!("{}\n{}\n", folder.display(), memory_folder.display());
    replace_file_atomically(folder, MEMORY_MARK_NAME, mark.as_bytes())
}

/// File that marks a node whose names were compared with the cluster's directory.
const NAMES_MARK_NAME: &str = "names-compared";

/// Returns true if all names of this node were once in the directory of this cluster. A replicated segment whose name is
/// not there was released since. Without the mark the cluster may be new, on the memory of an older one.
pub(crate) fn are_names_compared(folder: &Path) -> bool {
    folder.join(NAMES_MARK_NAME).exists()
}

/// Records that the directory has all names of this node.
pub(crate) fn mark_names_compared(folder: &Path) -> io::Result<()> {
    replace_file_atomically(folder, NAMES_MARK_NAME, b"")
}

/// Removes that record: the node begins or joins a cluster.
pub(crate) fn forget_names_compared(folder: &Path) -> io::Result<()> {
    remove_file_if_present(folder, NAMES_MARK_NAME)
}

/// Returns true if the operator allowed this node to begin a cluster, with `ddss cluster init`.
pub(crate) fn may_found(folder: &Path) -> bool {
    folder.join(FOUND_FILE_NAME).exists()
}

/// Ends that permission: the node belongs to a cluster now.
pub(crate) fn end_founding(folder: &Path) -> io::Result<()> {
    remove_file_if_present(folder, FOUND_FILE_NAME)
}

/// File that marks a node that has left its cluster.
const LEFT_MARK_NAME: &str = "left";

/// Returns true if the node of this folder has left its cluster and has not joined one since.
pub(crate) fn has_left(folder: &Path) -> bool {
    folder.join(LEFT_MARK_NAME).exists()
}

/// Deletes the cluster's state after a leave, so that the next start needs `--join`.
pub(crate) fn delete_cluster_state(folder: &Path) -> io::Result<()> {
    // Written first, so that a crash in between founds no second cluster.
    replace_file_atomically(folder, LEFT_MARK_NAME, b"")?;
    for name in [NAMES_MARK_NAME, Identity::NAME, Incarnation::NAME, "raft.log", "directory.json"] {
        remove_file_if_present(folder, name)?;
    }
    Ok(())
}

/// Removes the mark: the node belongs to a cluster again.
pub(crate) fn clear_left_mark(folder: &Path) -> io::Result<()> {
    remove_file_if_present(folder, LEFT_MARK_NAME)
}
