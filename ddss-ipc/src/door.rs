//! The socket of a node and the lock beside it: one daemon a socket, and no leftovers in the way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::socket;

/// How often the lock file may vanish between opening and locking it (another daemon just left) before we give up.
const LOCK_TRIES: usize = 16;

/// A listening socket; its files go when it is dropped.
///
/// A socket file says nothing about whether somebody listens, and asking by connecting would disturb whoever does. So
/// the lock on a file beside it decides: the kernel drops it with the process, however that dies.
#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Door {
    /// Takes the lock, clears away what a dead daemon left, and listens.
    pub(crate) fn open(path: &Path, mode: u32, backlog: i32) -> io::Result<Self> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = take_lock(path, &lock_path)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = socket::listen(path, backlog).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("cannot listen at {}: {error}", path.display()))
        })?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Self { listener, path: path.to_owned(), lock_path, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where clients connect.
    pub(crate) fn listener(&self) -> &OwnedFd {
        &self.listener
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The lock is still held here, so both files are ours.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

fn take_lock(path: &Path, lock_path: &Path) -> io::Result<File> {
    for _ in 0..LOCK_TRIES {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(lock_path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let text = format!("another daemon is alive at {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            Err(errno) => return Err(errno.into()),
        }
        // Its last owner may have removed the file between our open and our lock: then we locked a file without name.
        let same = std::fs::metadata(lock_path).is_ok_and(|named| {
            file.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (named.dev(), named.ino()))
        });
        if same {
            return Ok(file);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("cannot lock {}", lock_path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_and_a_stale_socket_is_not_in_the_way() {
        // If this broke, two daemons would share a socket, or a crash would need a hand to clean up.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let door = Door::open(&path, 0o600, 4).unwrap();
        let second = Door::open(&path, 0o600, 4).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(second.to_string().contains("another daemon is alive"), "{second}");
        drop(door);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        // What a killed daemon leaves: both files, nobody behind them.
        drop(socket::listen(&path, 4).unwrap());
        std::fs::write(folder.path().join("socket.lock"), "").unwrap();
        assert!(path.exists());
        Door::open(&path, 0o600, 4).unwrap();
    }
}
