//! Incarnation of a node: its state folder, and the number of starts in this folder.
//!
//! Both are registered with the cluster. This detects a second folder under the same node id, and an old copy of the
//! folder.

use crate::control::identity::state_file::replace_file_atomically;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// One start of a daemon in one state folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Incarnation {
    /// Random id of the folder.
    pub(crate) folder: u64,
    /// Counter of starts, from one.
    pub(crate) start: u64,
}

impl Incarnation {
    pub(in crate::control) const NAME: &str = "incarnation.json";

    /// Counts a start in a state folder, and creates the folder's id if it has none. When this returns the count
    /// would survive a loss of power; a daemon that is killed earlier has written nothing.
    pub(crate) fn begin(folder: &Path) -> io::Result<Self> {
        let last = match std::fs::read(folder.join(Self::NAME)) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut number = [0; 8];
                getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
                Self { folder: u64::from_le_bytes(number), start: 0 }
            }
            Err(error) => return Err(error),
        };
        let next = Self { start: last.start + 1, ..last };
        replace_file_atomically(folder, Self::NAME, &serde_json::to_vec(&next)?)?;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_and_kill_during_write_changes_nothing() {
        // If this broke, a node that was killed at its start would look like a copy of itself, and never return.
        let folder = std::env::temp_dir().join(format!("ddssd-incarnation-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = Incarnation::begin(&folder).unwrap();
        let whole = std::fs::read(folder.join(Incarnation::NAME)).unwrap();
        let fresh = folder.join(format!("{}.new", Incarnation::NAME));
        for (start, written) in (2..).zip(0..=whole.len()) {
            // A kill left this much of the next file.
            std::fs::write(&fresh, &whole[..written]).unwrap();
            let next = Incarnation::begin(&folder).unwrap();
            assert_eq!(next, Incarnation { folder: first.folder, start });
            assert!(!fresh.exists());
        }
        std::fs::remove_file(folder.join(Incarnation::NAME)).unwrap();
        assert_ne!(Incarnation::begin(&folder).unwrap().folder, first.folder);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
