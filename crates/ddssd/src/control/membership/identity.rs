//! Node identity of a state folder, so that a restart needs no flags.

use super::incarnation::Incarnation;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Identity that is stored when a node founds or joins a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: u16,
    /// True if the node may found a cluster: false after a join.
    pub(crate) founder: bool,
}

impl Identity {
    const NAME: &str = "node.json";

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
    for name in [Identity::NAME, Incarnation::NAME, "raft.log", "directory.json"] {
        remove_file_if_present(folder, name)?;
    }
    Ok(())
}

/// Removes the mark: the node belongs to a cluster again.
pub(crate) fn clear_left_mark(folder: &Path) -> io::Result<()> {
    remove_file_if_present(folder, LEFT_MARK_NAME)
}

pub(in crate::control) fn remove_file_if_present(folder: &Path, name: &str) -> io::Result<()> {
    match std::fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file atomically; returns when the new content would survive a loss of power.
pub(in crate::control) fn replace_file_atomically(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)
    });
    if written.is_err() {
        // A partial file would occupy scarce disk space.
        let _ = std::fs::remove_file(&fresh);
    }
    written.and_then(|()| File::open(folder)?.sync_all())
}
