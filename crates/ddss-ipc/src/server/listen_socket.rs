//! The socket of a node and the lock beside it: one daemon a socket, and no leftovers in the way. The socket may be one that
//! somebody else has made, who listens on while no daemon runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::socket;
use crate::sys::InheritedSocket;

/// How often the lock file may vanish between opening and locking it (another daemon just left) before we give up.
const LOCK_TRIES: usize = 16;

/// A listening socket; its files go when it is dropped.
///
/// A socket file says nothing about whether somebody listens, and asking by connecting would disturb whoever does. So
/// the lock on a file beside it decides: the kernel drops it with the process, however that dies.
#[derive(Debug)]
pub(crate) struct ListenSocket {
    listener: OwnedFd,
    path: PathBuf,
    lock_path: PathBuf,
    /// Somebody else has made the socket, and keeps it.
    lent: bool,
    _lock: File,
}

impl ListenSocket {
    /// Takes the lock, and the socket that listens there already.
    pub(crate) fn adopt(path: &Path, InheritedSocket(listener): InheritedSocket) -> io::Result<Self> {
        let lock_path = lock_path_of(path);
        let lock = take_lock(path, &lock_path)?;
        socket::adopt(&listener, path).map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))?;
        Ok(Self { listener, path: path.to_owned(), lock_path, lent: true, _lock: lock })
    }

    /// Takes the lock, clears away what a dead daemon left, and listens.
    pub(crate) fn open(path: &Path, mode: u32, backlog: i32) -> io::Result<Self> {
        let lock_path = lock_path_of(path);
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
        Ok(Self { listener, path: path.to_owned(), lock_path, lent: false, _lock: lock })
    }

    /// Nobody is let in any more; what is locked stays locked. Whoever comes finds no socket, or, where it is somebody
    /// else's, waits in front of it for the next daemon.
    pub(crate) fn close(&self) {
        if !self.lent {
            // The file is ours as long as the lock is. If it cannot be removed, nobody is accepted all the same.
            let _ = std::fs::remove_file(&self.path);
        }
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

impl Drop for ListenSocket {
    fn drop(&mut self) {
        // The lock is still held here, so both files are ours.
        self.close();
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

fn lock_path_of(path: &Path) -> PathBuf {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    PathBuf::from(lock_path)
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
        let door = ListenSocket::open(&path, 0o600, 4).unwrap();
        let second = ListenSocket::open(&path, 0o600, 4).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(second.to_string().contains("another daemon is alive"), "{second}");
        drop(door);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        // What a killed daemon leaves: both files, nobody behind them.
        drop(socket::listen(&path, 4).unwrap());
        std::fs::write(folder.path().join("socket.lock"), "").unwrap();
        assert!(path.exists());
        ListenSocket::open(&path, 0o600, 4).unwrap();
    }
}
