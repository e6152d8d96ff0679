//! The daemon's folder: made if it is not there, and locked, so that no second daemon works in it.

use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a daemon cannot work in a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
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
    #[error("another ddssd works in {}: stop it, or give this one another --dir", path.display())]
    Taken {
        /// Which.
        path: PathBuf,
    },
}

/// The lock on a folder. It ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

/// Makes a folder that only its owner sees, and everything above it.
pub(crate) fn make(path: &Path) -> Result<(), FolderError> {
    let unusable = |source| FolderError::Unusable { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let found = std::fs::symlink_metadata(path).map_err(unusable)?;
    // Whoever owns the folder, or may write to it, could put another socket in the place of ours.
    let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if ours { Ok(()) } else { Err(FolderError::Foreign { path: path.to_owned() }) }
}

impl FolderLock {
    /// Locks a folder, or says who is there.
    pub(crate) fn take(path: &Path) -> Result<Self, FolderError> {
        let unusable = |source| FolderError::Unusable { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(path.join("ddssd.lock"));
        let file = file.map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(FolderError::Taken { path: path.to_owned() }),
            Err(errno) => Err(unusable(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_and_a_dead_one_is_in_nobodys_way() {
        // If this broke, two daemons would commit to the same memory, or a crash would lock everyone out.
        let folder = std::env::temp_dir().join(format!("ddssd-folder-{}", std::process::id()));
        make(&folder).unwrap();
        let first = FolderLock::take(&folder).unwrap();
        assert!(matches!(FolderLock::take(&folder), Err(FolderError::Taken { .. })));
        drop(first);
        assert!(FolderLock::take(&folder).is_ok());
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(make(&folder), Err(FolderError::Foreign { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(FolderLock::take(&folder), Err(FolderError::Unusable { .. })));
    }
}
