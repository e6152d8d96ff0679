//! Which node of which cluster a state folder belongs to, so that a restart needs no flags.

use super::incarnation::Incarnation;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// What is written down when a node founds or joins a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: u16,
    /// Whether it may begin a cluster: not if it joined one.
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
        replace(folder, Self::NAME, &serde_json::to_vec(self)?)
    }
}

/// Says that the node of this folder has left its cluster.
const LEFT: &str = "left";

/// Whether the node of this folder has left its cluster, and has not been told since where to go.
pub(crate) fn has_left(folder: &Path) -> bool {
    folder.join(LEFT).exists()
}

/// A node that left begins anew when it is started again, where it is told to: not where it was, and not by itself.
pub(crate) fn forget(folder: &Path) -> io::Result<()> {
    // First, so that a crash in between founds no second cluster.
    replace(folder, LEFT, b"")?;
    for name in [Identity::NAME, Incarnation::NAME, "raft.log", "directory.json"] {
        remove(folder, name)?;
    }
    Ok(())
}

/// The node belongs to a cluster again.
pub(crate) fn has_come_back(folder: &Path) -> io::Result<()> {
    remove(folder, LEFT)
}

pub(in crate::control) fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match std::fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file whole, or not at all, and returns when that would survive a loss of power.
pub(in crate::control) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)
    });
    if written.is_err() {
        // Half of it would take the room that others wait for.
        let _ = std::fs::remove_file(&fresh);
    }
    written.and_then(|()| File::open(folder)?.sync_all())
}
