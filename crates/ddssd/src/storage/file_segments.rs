//! Segments in files: a folder on disk with a registry, an undo log and areas of its own, mapped like those in memory.
//! The first file segment creates it.
//!
//! The kernel writes pages back at any time and in any order. This file syncs all pages when the daemon stops, and
//! refuses pages whose state is unknown. A mark file records the state:
//!
//! ```text
//!   BOOT open      a daemon of that boot of the machine works here, or died here
//!   BOOT clean     the daemon has stopped, and everything was on the disk by then
//! ```
//!
//! Within one boot the page cache holds the last writes, however the daemon died. *Open* with another boot means that
//! the machine ended first: the disk may hold a mix of several puts.

use super::large_undo::LargeUndo;
use super::pool_error::PoolError;
use super::segment_folder::{self, LARGE_UNDO_NAME, UNDO_NAME, check_registry};
use super::state_dir;
use super::state_dir::StateDirLock;
use super::undo_log::UndoLog;
use ddss_admin::UncleanFiles;
use ddss_admin::storage::{Registry, Unusable, area_path};
use ddss_core::NodeId;
use ddss_ipc::{MemoryError, SharedMemory};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Storage of file segments; the folder may not exist yet.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    node: NodeId,
    bytes: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    registry: Registry,
    undo: UndoLog,
    /// Undo log of large commits, from the first one on.
    large_undo: Option<LargeUndo>,
    _lock: StateDirLock,
}

impl Files {
    const MARK_NAME: &str = "boot";

    /// Opens the existing files, if there are any.
    pub(crate) fn open(folder: PathBuf, node: NodeId, bytes: u64, unclean: UncleanFiles) -> Result<Self, PoolError> {
        let mut files = Self { folder, node, bytes, open: None };
        if files.folder.join(Registry::FILE_NAME).exists() {
            Self::check(&files.folder, unclean)?;
            match (Self::is_unclean(&files.folder), unclean) {
                (true, UncleanFiles::Keep) => {
                    tracing::warn!(path = %files.folder.display(), "using segments in files as the machine left them: they may hold a mix of several puts");
                }
                (true, UncleanFiles::Drop) => {
                    tracing::warn!(path = %files.folder.display(), "discarded the segments in files");
                    Self::discard(&files.folder);
                }
                (true, UncleanFiles::Refuse) | (false, _) => {}
            }
            files.open_folder()?;
        }
        Ok(files)
    }

    /// Discards all file segments of a folder.
    pub(crate) fn discard(folder: &Path) {
        if folder.exists() {
            segment_folder::discard(folder);
            let _ = std::fs::remove_file(folder.join(Self::MARK_NAME));
        }
    }

    /// Returns the size of an area.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the path of an area.
    pub(crate) fn area_path(&self, area: usize) -> PathBuf {
        area_path(&self.folder, area)
    }

    fn open_folder(&mut self) -> Result<&Open, PoolError> {
        if self.open.is_none() {
            let at = |name: &str| self.folder.join(name);
            let file = |path: PathBuf| move |source| PoolError::File { path, source };
            state_dir::make(&self.folder).map_err(PoolError::Folder)?;
            let lock = StateDirLock::lock_folder(&self.folder).map_err(PoolError::Folder)?;
            check_registry(&self.folder)?;
            let registry = at(Registry::FILE_NAME);
            let registry = Registry::open(&registry).map_err(file(registry.clone()))?;
            registry.claim(self.node).map_err(|unusable| match unusable {
                Unusable::Version(found) => PoolError::other_release(&self.folder, found, String::new()),
                Unusable::Node(node) => PoolError::OtherNode { path: self.folder.clone(), node },
            })?;
            let undo = at(UNDO_NAME);
            let undo = UndoLog::open(&undo).map_err(file(undo.clone()))?;
            let path = at(LARGE_UNDO_NAME);
            let large_undo = path.exists().then(|| LargeUndo::open(&path)).transpose().map_err(file(path.clone()))?;
            self.mark("open").map_err(|source| PoolError::File { path: at(Self::MARK_NAME), source: lost(source) })?;
            self.open = Some(Open { registry, undo, large_undo, _lock: lock });
        }
        Ok(self.open.as_ref().expect("it was just opened"))
    }

    /// Returns the registry, and creates it if needed.
    pub(crate) fn open_registry(&mut self) -> Result<&Registry, MemoryError> {
        self.open_folder().map(|open| &open.registry).map_err(|error| lost(io::Error::other(error)))
    }

    /// Returns the registry, if it exists.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.open.as_ref().map(|open| &open.registry)
    }

    /// Returns the undo log, if it exists.
    pub(crate) fn undo(&self) -> Option<&UndoLog> {
        self.open.as_ref().map(|open| &open.undo)
    }

    /// Returns the undo log of large commits, if it exists.
    pub(crate) fn large_undo(&self) -> Option<&LargeUndo> {
        self.open.as_ref()?.large_undo.as_ref()
    }

    /// Opens the undo log of large commits, or creates it.
    pub(crate) fn open_large_undo(&mut self) -> Result<(), MemoryError> {
        self.open_registry()?;
        if let Some(open) = self.open.as_mut().filter(|open| open.large_undo.is_none()) {
            open.large_undo = Some(LargeUndo::open(&self.folder.join(LARGE_UNDO_NAME))?);
        }
        Ok(())
    }

    /// Syncs everything to the disk and marks the folder clean.
    pub(crate) fn close<'a>(&'a self, areas: impl Iterator<Item = &'a SharedMemory>) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        for memory in areas.chain([open.registry.memory(), open.undo.memory()]) {
            rustix::fs::fsync(memory.descriptor())?;
        }
        self.mark("clean")
    }

    /// Refuses files in an unknown state, unless `unclean` says how to treat them.
    pub(crate) fn check(folder: &Path, unclean: UncleanFiles) -> Result<(), PoolError> {
        let is_there = folder.join(Registry::FILE_NAME).exists();
        if is_there && unclean == UncleanFiles::Refuse && Self::is_unclean(folder) {
            return Err(PoolError::Unclean { path: folder.to_owned() });
        }
        Ok(())
    }

    fn is_unclean(folder: &Path) -> bool {
        let mark = std::fs::read_to_string(folder.join(Self::MARK_NAME)).unwrap_or_default();
        match mark.trim().split_once(' ') {
            Some((_, "clean")) => false,
            Some((boot, "open")) => boot != current_boot_id(),
            // The mark itself was being written.
            _ => true,
        }
    }

    fn mark(&self, state: &str) -> io::Result<()> {
        let (path, fresh) = (self.folder.join(Self::MARK_NAME), self.folder.join("boot.new"));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        writeln!(file, "{} {state}", current_boot_id())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

fn lost(source: io::Error) -> MemoryError {
    MemoryError::System { tried: "use the files of", source }
}

/// Returns the kernel's id of this boot.
fn current_boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_admin::storage::file_folder;

    #[test]
    fn files_after_machine_crash_are_refused_unless_configured() {
        // If this broke, a get after a power loss could silently return a mix of several puts.
        let state = std::env::temp_dir().join(format!("ddssd-files-{}", std::process::id()));
        let find = |unclean| Files::open(file_folder(&state, 0), NodeId(1), 1 << 20, unclean);
        let mark = |text: &str| std::fs::write(file_folder(&state, 0).join(Files::MARK_NAME), text).unwrap();
        let there = || file_folder(&state, 0).join(Registry::FILE_NAME).exists();
        std::fs::create_dir_all(&state).unwrap();
        let mut files = find(UncleanFiles::Refuse).unwrap();
        assert!(!there(), "no file segment exists yet");
        files.open_registry().unwrap();
        assert!(matches!(find(UncleanFiles::Refuse), Err(PoolError::Folder(_))), "another daemon has the lock");
        drop(files);
        // First only the daemon died; then the machine did.
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
        assert!(files.registry().is_some());
        files.close(std::iter::empty()).unwrap();
        drop(files);
        mark("another-boot clean\n");
        drop(find(UncleanFiles::Refuse).unwrap());
        mark("another-boot open\n");
        let files = find(UncleanFiles::Drop).unwrap();
        assert_eq!(files.registry().unwrap().entries().count(), 0);
        std::fs::remove_dir_all(&state).unwrap();
    }
}
