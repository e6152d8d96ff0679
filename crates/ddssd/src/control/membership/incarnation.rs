//! Incarnation of a node: its state folder, and the number of starts in this folder.
//!
//! Both are registered with the cluster. This detects a second folder under the same node id, and an old copy of the
//! folder.

use super::identity::replace_file_atomically;
use crate::control::raft::types::Member;
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

/// The newest registration of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) incarnation: Incarnation,
    /// Run number of the daemon of this start.
    pub(crate) run: u32,
}

impl Registration {
    /// Returns true if `next` may follow: a later start in the same folder, or a repetition of this one.
    pub(crate) fn admits(&self, next: Registration) -> bool {
        let (old, new) = (self.incarnation, next.incarnation);
        old.folder == new.folder && (new.start > old.start || new.start == old.start && next.run == self.run)
    }

    /// Explains why `next` may not follow, and what the operator can do.
    pub(crate) fn refusal(&self, node: u16, at: Option<Member>, next: Registration) -> String {
        if self.incarnation.folder == next.incarnation.folder {
            return format!(
                "a copy of this state folder is node {node} now (start {} is registered, this is start {}): this one is out of date. Use the copy, \
                 or take node {node} out with `ddss cluster remove {node}` and join anew with an empty state folder",
                self.incarnation.start, next.incarnation.start
            );
        }
        let place = at.map_or_else(String::new, |at| format!("the node at {at}, which has "));
        format!(
            "number {node} belongs to {place}another state folder: give another --node, or none; if that folder is lost, take the node out with \
             `ddss cluster remove {node}` elsewhere and join anew"
        )
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

    #[test]
    fn only_a_later_start_of_the_same_folder_is_admitted() {
        // If this broke, an old copy of a folder would replace its node, or a restart would be refused.
        let registration = |folder, start, run| Registration { incarnation: Incarnation { folder, start }, run };
        let known = registration(7, 5, 50);
        for (next, admitted) in [
            (registration(7, 6, 60), true),
            (registration(7, 9, 90), true),
            (registration(7, 5, 50), true),
            (registration(7, 5, 51), false),
            (registration(7, 4, 40), false),
            (registration(8, 6, 60), false),
        ] {
            assert_eq!(known.admits(next), admitted, "{next:?}");
        }
    }
}
