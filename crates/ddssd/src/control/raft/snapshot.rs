//! Snapshot file: the directory, with the log position that it includes.

use super::directory::Directory;
use crate::control::member::Member;
use crate::control::membership::state_file::replace_file_atomically;
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

pub(crate) fn write_snapshot(folder: &Path, snapshot: &StoredSnapshot) -> io::Result<()> {
    replace_file_atomically(folder, NAME, &serde_json::to_vec(snapshot)?)
}
