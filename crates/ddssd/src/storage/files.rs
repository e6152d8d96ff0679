//! Segments in files: a folder on a disk with a register, an undo record and areas of its own, mapped as those in memory
//! are. It is made with the first such segment.
//!
//! The kernel writes the pages back when it likes, in any order; this file sees that they are all written when the daemon
//! stops, and that nobody takes pages for whole of which nobody knows. For that it keeps a mark:
//!
//! ```text
//!   BOOT open      a daemon of that boot of the machine works here, or died here
//!   BOOT clean     the daemon has stopped, and everything was on the disk by then
//! ```
//!
//! Within one boot the pages are those that were written last, however the daemon died. *Open* and of another boot says
//! that the machine ended first: what is on the disk may be a mix of several puts.

use super::memory::{NodeMemory, PoolError};
use super::registry::{Registry, Unusable};
use super::state_dir;
use super::state_dir::{StateDirLock, plane_folder};
use super::undo_log::UndoLog;
use ddss_core::NodeId;
use ddss_ipc::{MemoryError, SharedMemory};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What becomes of segments in files when the machine ended before the daemon did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UncleanFiles {
    /// The daemon does not start, and says so.
    #[default]
    Refuse,
    /// They are taken as they are on the disk: the bytes of one may be those of several puts.
    Keep,
    /// They are thrown away.
    Drop,
}

impl UncleanFiles {
    const ALL: [(Self, &str); 3] = [(Self::Refuse, "refuse"), (Self::Keep, "keep"), (Self::Drop, "drop")];
}

impl FromStr for UncleanFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(_, word)| *word == text);
        known.map(|(what, _)| what).ok_or_else(|| format!("{text:?} is none of refuse, keep and drop"))
    }
}

impl fmt::Display for UncleanFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.into_iter().find(|(what, _)| what == self).map_or("refuse", |(_, word)| word);
        f.write_str(word)
    }
}

/// Where segments in files are kept, whether or not there is one.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    node: NodeId,
    bytes: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    register: Registry,
    undo: UndoLog,
    _lock: StateDirLock,
}

impl Files {
    const MARK_NAME: &str = "boot";

    /// Their folder for one plane, in that of what survives a restart.
    pub(crate) fn folder(state_folder: &Path, plane: u8) -> PathBuf {
        plane_folder(&state_folder.join("segments"), plane)
    }

    /// Takes in what is there.
    pub(crate) fn find(folder: PathBuf, node: NodeId, bytes: u64, unclean: UncleanFiles) -> Result<Self, PoolError> {
        let mut files = Self { folder, node, bytes, open: None };
        if files.folder.join(NodeMemory::REGISTER_NAME).exists() {
            Self::check(&files.folder, unclean)?;
            match (Self::is_unclean(&files.folder), unclean) {
                (true, UncleanFiles::Keep) => {
                    tracing::warn!(path = %files.folder.display(), "took segments in files as the machine left them");
                }
                (true, UncleanFiles::Drop) => {
                    tracing::warn!(path = %files.folder.display(), "threw away the segments in files");
                    Self::discard(&files.folder);
                }
                (true, UncleanFiles::Refuse) | (false, _) => {}
            }
            files.start()?;
        }
        Ok(files)
    }

    /// Throws them away.
    pub(crate) fn discard(folder: &Path) {
        if folder.exists() {
            NodeMemory::discard(folder);
            let _ = std::fs::remove_file(folder.join(Self::MARK_NAME));
        }
    }

    /// How long an area is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where an area is.
    pub(crate) fn area_path(&self, area: usize) -> PathBuf {
        NodeMemory::area_path(&self.folder, area)
    }

    fn start(&mut self) -> Result<&Open, PoolError> {
        if self.open.is_none() {
            let at = |name: &str| self.folder.join(name);
            let file = |path: PathBuf| move |source| PoolError::File { path, source };
            state_dir::make(&self.folder).map_err(PoolError::Folder)?;
            let lock = StateDirLock::take_itself(&self.folder).map_err(PoolError::Folder)?;
            NodeMemory::check_register(&self.folder)?;
            let register = at(NodeMemory::REGISTER_NAME);
            let register = Registry::open(&register).map_err(file(register.clone()))?;
            register.claim(self.node).map_err(|unusable| match unusable {
                Unusable::Version(found) => PoolError::other_release(&self.folder, found, String::new()),
                Unusable::Node(node) => PoolError::OtherNode { path: self.folder.clone(), node },
            })?;
            let undo = at(NodeMemory::UNDO_NAME);
            let undo = UndoLog::open(&undo).map_err(file(undo.clone()))?;
            self.mark("open").map_err(|source| PoolError::File { path: at(Self::MARK_NAME), source: lost(source) })?;
            self.open = Some(Open { register, undo, _lock: lock });
        }
        Ok(self.open.as_ref().expect("it was just opened"))
    }

    /// The register, made if it is not there yet.
    pub(crate) fn register(&mut self) -> Result<&Registry, MemoryError> {
        self.start().map(|open| &open.register).map_err(|error| lost(io::Error::other(error)))
    }

    /// The register, if there is one.
    pub(crate) fn known(&self) -> Option<&Registry> {
        self.open.as_ref().map(|open| &open.register)
    }

    /// The undo record of what is in files.
    pub(crate) fn undo(&self) -> Option<&UndoLog> {
        self.open.as_ref().map(|open| &open.undo)
    }

    /// Everything is on the disk when this returns.
    pub(crate) fn close<'a>(&'a self, areas: impl Iterator<Item = &'a SharedMemory>) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        for memory in areas.chain([open.register.memory(), open.undo.memory()]) {
            rustix::fs::fsync(memory.descriptor())?;
        }
        self.mark("clean")
    }

    /// Refuses files that are not known to be whole, unless it was said what becomes of them.
    pub(crate) fn check(folder: &Path, unclean: UncleanFiles) -> Result<(), PoolError> {
        let is_there = folder.join(NodeMemory::REGISTER_NAME).exists();
        if is_there && unclean == UncleanFiles::Refuse && Self::is_unclean(folder) {
            return Err(PoolError::Unclean { path: folder.to_owned() });
        }
        Ok(())
    }

    fn is_unclean(folder: &Path) -> bool {
        let mark = std::fs::read_to_string(folder.join(Self::MARK_NAME)).unwrap_or_default();
        match mark.trim().split_once(' ') {
            Some((_, "clean")) => false,
            Some((boot, "open")) => boot != this_boot(),
            // It was being written.
            _ => true,
        }
    }

    fn mark(&self, state: &str) -> io::Result<()> {
        let (path, fresh) = (self.folder.join(Self::MARK_NAME), self.folder.join("boot.new"));
        let mut file = File::create(&fresh)?;
        writeln!(file, "{} {state}", this_boot())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

fn lost(source: io::Error) -> MemoryError {
    MemoryError::System { tried: "use the files of", source }
}

/// The number that the kernel gave this boot.
fn this_boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_machine_that_ended_first_are_not_taken_for_whole() {
        // If this broke, a get after a loss of power could return a mix of several puts, and nobody would know.
        let state = std::env::temp_dir().join(format!("ddssd-files-{}", std::process::id()));
        let find = |unclean| Files::find(Files::folder(&state, 0), NodeId(1), 1 << 20, unclean);
        let mark = |text: &str| std::fs::write(Files::folder(&state, 0).join(Files::MARK_NAME), text).unwrap();
        let there = || Files::folder(&state, 0).join(NodeMemory::REGISTER_NAME).exists();
        std::fs::create_dir_all(&state).unwrap();
        let mut files = find(UncleanFiles::Refuse).unwrap();
        assert!(!there(), "nobody has asked for a file yet");
        files.register().unwrap();
        assert!(matches!(find(UncleanFiles::Refuse), Err(PoolError::Folder(_))), "a second one works there");
        drop(files);
        // It died, and the machine did not; then the machine did.
        drop(find(UncleanFiles::Refuse).unwrap());
        for torn in ["another-boot open\n", "another-boot op", ""] {
            mark(torn);
            let told = find(UncleanFiles::Refuse).unwrap_err();
            assert!(
                matches!(&told, PoolError::Unclean { .. }) && told.to_string().contains("--unclean-files"),
                "{told}"
            );
        }
        let files = find(UncleanFiles::Keep).unwrap();
        assert!(files.known().is_some());
        files.close(std::iter::empty()).unwrap();
        drop(files);
        mark("another-boot clean\n");
        drop(find(UncleanFiles::Refuse).unwrap());
        mark("another-boot open\n");
        let files = find(UncleanFiles::Drop).unwrap();
        assert_eq!(files.known().unwrap().entries().count(), 0);
        std::fs::remove_dir_all(&state).unwrap();
    }
}
