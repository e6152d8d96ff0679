//! The daemon's folder: made if it is not there, and locked, so that no second daemon works in it.

use rustix::fs::{Access, FlockOperation, access, flock};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a daemon cannot work in a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// It cannot be made or written to.
    #[error("cannot use the folder {}: does it exist, and may this user write to it?", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others could change it.
    #[error("{} is not this user's own folder, or others may write to it: chown and chmod 700 it, or use another", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// Another daemon is there.
    #[error("another ddssd works in {}: stop it, or give this one another --dir (and --memory-dir and --state-dir, if they are named)", path.display())]
    Taken {
        /// Which.
        path: PathBuf,
    },
}

/// Where one plane of a daemon has its memory, below the daemon's folder of memory: the first plane has that itself.
pub(crate) fn plane_folder(memory_folder: &Path, plane: u8) -> PathBuf {
    if plane == 0 { memory_folder.to_owned() } else { memory_folder.join(format!("plane-{plane}")) }
}

/// The lock on a folder. It ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct StateDirLock {
    _file: File,
}

/// Makes a folder that only its owner sees, and everything above it.
pub(crate) fn make(path: &Path) -> Result<(), StateDirError> {
    let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let found = std::fs::symlink_metadata(path).map_err(unusable)?;
    if is_ours(&found) { Ok(()) } else { Err(StateDirError::Foreign { path: path.to_owned() }) }
}

/// Whether [`make`] would find or make such a folder; nothing is made.
pub(crate) fn check(path: &Path) -> Result<(), StateDirError> {
    let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_ours(&found) => Ok(()),
        Ok(_) => Err(StateDirError::Foreign { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // It would be made in the nearest folder above it that is there.
            let above = path.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
            let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            access(above, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| unusable(errno.into()))
        }
        Err(error) => Err(unusable(error)),
    }
}

/// Nobody else owns the folder, or may write to it: such a user could put another socket in the place of ours.
fn is_ours(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

impl StateDirLock {
    /// Says who works in a folder, if it is there: by its own lock, and by that of the file in it. The lock is taken for an
    /// instant and shared, so that it is in no other check's way.
    pub(crate) fn check(path: &Path) -> Result<(), StateDirError> {
        for lock in [path.to_owned(), path.join(Self::FILE_NAME)] {
            let Ok(file) = File::open(&lock) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK) {
                return Err(StateDirError::Taken { path: path.to_owned() });
            }
        }
        Ok(())
    }

    const FILE_NAME: &str = "ddssd.lock";

    /// Locks each of these folders, which are there; those that are one and the same once.
    pub(crate) fn take_all(paths: &[&Path]) -> Result<Vec<Self>, StateDirError> {
        let mut taken: Vec<PathBuf> = Vec::new();
        let mut locks = Vec::new();
        for path in paths {
            let real = path.canonicalize();
            let real = real.map_err(|source| StateDirError::Unusable { path: path.to_path_buf(), source })?;
            if !taken.contains(&real) {
                locks.push(Self::take_itself(path)?);
                taken.push(real);
            }
        }
        Ok(locks)
    }

    /// Locks a folder by a file in it, or says who is there.
    pub(crate) fn take(path: &Path) -> Result<Self, StateDirError> {
        let mut options = OpenOptions::new();
        Self::hold(path, options.create(true).truncate(false).write(true).mode(0o600).open(path.join(Self::FILE_NAME)))
    }

    /// Locks the folder itself: nothing of that is left in it.
    pub(crate) fn take_itself(path: &Path) -> Result<Self, StateDirError> {
        Self::hold(path, File::open(path))
    }

    fn hold(path: &Path, opened: io::Result<File>) -> Result<Self, StateDirError> {
        let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
        let file = opened.map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateDirError::Taken { path: path.to_owned() }),
            Err(errno) => Err(unusable(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_shares_one_of_its_folders_is_told() {
        // If this broke, two daemons with folders of their own and one memory would commit over each other.
        let root = std::env::temp_dir().join(format!("ddssd-folders-{}", std::process::id()));
        let [a, b, memory] = ["a", "b", "memory"].map(|name| root.join(name));
        for path in [&a, &b, &memory] {
            make(path).unwrap();
        }
        let first = StateDirLock::take_all(&[&a, &memory, &a.join("../a")]).unwrap();
        assert_eq!(first.len(), 2, "one folder is locked once");
        assert!(matches!(StateDirLock::take_all(&[&b, &memory]), Err(StateDirError::Taken { path }) if path == memory));
        drop(first);
        assert!(StateDirLock::take_all(&[&b, &memory]).is_ok());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_second_daemon_is_told_and_a_dead_one_is_in_nobodys_way() {
        // If this broke, two daemons would commit to the same memory, or a crash would lock everyone out.
        let folder = std::env::temp_dir().join(format!("ddssd-folder-{}", std::process::id()));
        make(&folder).unwrap();
        let first = StateDirLock::take(&folder).unwrap();
        assert!(matches!(StateDirLock::take(&folder), Err(StateDirError::Taken { .. })));
        drop(first);
        assert!(StateDirLock::take(&folder).is_ok());
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(make(&folder), Err(StateDirError::Foreign { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(StateDirLock::take(&folder), Err(StateDirError::Unusable { .. })));
    }
}
