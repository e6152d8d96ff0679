//! Snapshot file: the directory, with the log position that it includes.

use super::directory::Directory;
use crate::control::identity::member::Member;
use crate::control::identity::state_file::replace_file_atomically;
use openraft::SnapshotMeta;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

const NAME: &str = "directory.json";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredSnapshot {
    pub(crate) meta: SnapshotMeta<u64, Member>,
    pub(crate) directory: Directory,
}

pub(crate) fn read_snapshot(folder: &Path) -> io::Result<Option<StoredSnapshot>> {
    match std::fs::read(folder.join(NAME)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Name of the file with the directory of a cluster that is being recovered.
fn prepared_name(cluster: u64) -> String {
    format!("directory-{cluster:016x}.json")
}

/// Writes the directory of a cluster that is being recovered beside the present one.
pub(crate) fn prepare_snapshot(folder: &Path, cluster: u64, snapshot: &StoredSnapshot) -> io::Result<()> {
    replace_file_atomically(folder, &prepared_name(cluster), &serde_json::to_vec(snapshot)?)
}

/// Puts the prepared directory of this cluster in the place of the present one, if that has not happened.
pub(crate) fn install_prepared_snapshot(folder: &Path, cluster: u64) -> io::Result<()> {
    match std::fs::rename(folder.join(prepared_name(cluster)), folder.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) => Ok(()),
        Ok(()) => std::fs::File::open(folder)?.sync_all(),
    }
}

pub(crate) fn write_snapshot(folder: &Path, snapshot: &StoredSnapshot) -> io::Result<()> {
    replace_file_atomically(folder, NAME, &serde_json::to_vec(snapshot)?)
}
