//! Folders of the daemon: created if missing, and locked against a second daemon.

use rustix::fs::{Access, FlockOperation, access, flock};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Failure to use a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// The folder cannot be created or written.
    #[error("cannot use the folder {}: does it exist, and may this user write to it?", path.display())]
    Unusable {
        /// Path of the folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Other users could change the folder.
    #[error("{} is not this user's own folder, or others may write to it: chown and chmod 700 it, or use another", path.display())]
    Foreign {
        /// Path of the folder.
        path: PathBuf,
    },
    /// Another daemon has locked the folder.
    #[error("another ddssd works in {}: stop it, or give this one another --dir (and --memory-dir and --state-dir, if they are named)", path.display())]
    InUse {
        /// Path of the folder.
        path: PathBuf,
    },
}

/// Lock on a folder. The kernel releases it when the process ends in any way.
#[derive(Debug)]
pub(crate) struct StateDirLock {
    _file: File,
}

/// Creates a folder that is private to its owner, and its parents.
pub(crate) fn make(path: &Path) -> Result<(), StateDirError> {
    let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let found = std::fs::symlink_metadata(path).map_err(unusable)?;
    if is_private(&found) { Ok(()) } else { Err(StateDirError::Foreign { path: path.to_owned() }) }
}

/// Takes the files of a folder away from other users. An older release made them with the modes that its umask left.
pub(crate) fn narrow_modes(path: &Path) -> Result<(), StateDirError> {
    let narrow = || {
        for entry in std::fs::read_dir(path)? {
            let (path, found) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
            if found.is_file() && found.mode() & 0o077 != 0 {
                std::fs::set_permissions(&path, Permissions::from_mode(found.mode() & 0o700))?;
            }
        }
        Ok(())
    };
    narrow().map_err(|source| StateDirError::Unusable { path: path.to_owned(), source })
}

/// Checks that [`make`] would succeed, without creating anything.
pub(crate) fn check(path: &Path) -> Result<(), StateDirError> {
    let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_private(&found) => Ok(()),
        Ok(_) => Err(StateDirError::Foreign { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // It would be created in the nearest existing parent.
            let above = path.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
            let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            access(above, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| unusable(errno.into()))
        }
        Err(error) => Err(unusable(error)),
    }
}

/// Returns true if no other user owns the folder or may write to it: such a user could replace the daemon's socket.
fn is_private(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

impl StateDirLock {
    /// Checks that no daemon has locked the folder, itself or by the lock file in it. Takes a shared lock for an
    /// instant, which does not disturb other checks.
    pub(crate) fn check(path: &Path) -> Result<(), StateDirError> {
        for lock in [path.to_owned(), path.join(Self::FILE_NAME)] {
            let Ok(file) = File::open(&lock) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK) {
                return Err(StateDirError::InUse { path: path.to_owned() });
            }
        }
        Ok(())
    }

    const FILE_NAME: &str = "ddssd.lock";

    /// Locks each of these existing folders; aliases of one folder once.
    pub(crate) fn lock_all(paths: &[&Path]) -> Result<Vec<Self>, StateDirError> {
        let mut taken: Vec<PathBuf> = Vec::new();
        let mut locks = Vec::new();
        for path in paths {
            let real = path.canonicalize();
            let real = real.map_err(|source| StateDirError::Unusable { path: path.to_path_buf(), source })?;
            if !taken.contains(&real) {
                locks.push(Self::lock_folder(path)?);
                taken.push(real);
            }
        }
        Ok(locks)
    }

    /// Locks a folder by a file in it.
    pub(crate) fn lock_by_file(path: &Path) -> Result<Self, StateDirError> {
        let mut options = OpenOptions::new();
        Self::lock(path, options.create(true).truncate(false).write(true).mode(0o600).open(path.join(Self::FILE_NAME)))
    }

    /// Locks the folder itself, which leaves no file in it.
    pub(crate) fn lock_folder(path: &Path) -> Result<Self, StateDirError> {
        Self::lock(path, File::open(path))
    }

    fn lock(path: &Path, opened: io::Result<File>) -> Result<Self, StateDirError> {
        let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
        let file = opened.map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateDirError::InUse { path: path.to_owned() }),
            Err(errno) => Err(unusable(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_folder_of_two_daemons_is_refused() {
        // If this broke, two daemons with separate folders and one shared memory folder would commit over each other.
        let root = std::env::temp_dir().join(format!("ddssd-folders-{}", std::process::id()));
        let [a, b, memory] = ["a", "b", "memory"].map(|name| root.join(name));
        for path in [&a, &b, &memory] {
            make(path).unwrap();
        }
        let first = StateDirLock::lock_all(&[&a, &memory, &a.join("../a")]).unwrap();
        assert_eq!(first.len(), 2, "one folder is locked once");
        assert!(matches!(StateDirLock::lock_all(&[&b, &memory]), Err(StateDirError::InUse { path }) if path == memory));
        drop(first);
        assert!(StateDirLock::lock_all(&[&b, &memory]).is_ok());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn second_daemon_is_refused_and_lock_ends_with_process() {
        // If this broke, two daemons would commit to the same memory, or a crash would lock every later daemon out.
        let folder = std::env::temp_dir().join(format!("ddssd-folder-{}", std::process::id()));
        make(&folder).unwrap();
        let first = StateDirLock::lock_by_file(&folder).unwrap();
        assert!(matches!(StateDirLock::lock_by_file(&folder), Err(StateDirError::InUse { .. })));
        drop(first);
        assert!(StateDirLock::lock_by_file(&folder).is_ok());
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(make(&folder), Err(StateDirError::Foreign { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(StateDirLock::lock_by_file(&folder), Err(StateDirError::Unusable { .. })));
    }
}
