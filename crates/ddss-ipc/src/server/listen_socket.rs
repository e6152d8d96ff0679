//! The listening socket of a node and its lock file: one daemon a socket, and stale files are replaced.
//!
//! The socket may be inherited from a supervisor (socket activation), which listens while no daemon runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::socket;
use crate::sys::InheritedSocket;

/// Attempts to lock a lock file that vanishes between open and lock because another daemon ends.
const LOCK_TRIES: usize = 16;

/// A listening socket; its files are removed when it is dropped.
///
/// A socket file does not show whether a daemon listens, and a test connection would disturb that daemon. So the lock
/// on a file beside it decides: the kernel releases it with the process, however that ends.
#[derive(Debug)]
pub(crate) struct ListenSocket {
    listener: OwnedFd,
    path: PathBuf,
    lock_path: PathBuf,
    /// The socket is inherited, and its creator keeps it.
    is_inherited: bool,
    _lock: File,
}

impl ListenSocket {
    /// Takes the lock, and adopts a socket that already listens.
    pub(crate) fn adopt(path: &Path, InheritedSocket(listener): InheritedSocket) -> io::Result<Self> {
        let lock_path = lock_path_of(path);
        let lock = take_lock(path, &lock_path)?;
        socket::adopt(&listener, path).map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))?;
        Ok(Self { listener, path: path.to_owned(), lock_path, is_inherited: true, _lock: lock })
    }

    /// Takes the lock, removes the socket of a dead daemon, and listens.
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
        Ok(Self { listener, path: path.to_owned(), lock_path, is_inherited: false, _lock: lock })
    }

    /// Stops accepting connections and keeps the lock. A new client finds no socket, or waits in the backlog of an
    /// inherited one for the next daemon.
    pub(crate) fn close(&self) {
        if !self.is_inherited {
            // The lock makes the file ours. If it cannot be removed, connections are still not accepted.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor that clients connect to.
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
                let text = format!("another daemon runs at {}: stop it, or use another --dir", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            Err(errno) => return Err(errno.into()),
        }
        // The last owner may have removed the file between open and lock: the lock then is on a file without a name.
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
    fn second_daemon_is_refused_and_stale_socket_is_replaced() {
        // If this failed, two daemons would share a socket, or a crash would need manual clean-up.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let open = ListenSocket::open(&path, 0o600, 4).unwrap();
        let second = ListenSocket::open(&path, 0o600, 4).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(second.to_string().contains("another daemon runs"), "{second}");
        drop(open);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        // A killed daemon leaves both files behind.
        drop(socket::listen(&path, 4).unwrap());
        std::fs::write(folder.path().join("socket.lock"), "").unwrap();
        assert!(path.exists());
        ListenSocket::open(&path, 0o600, 4).unwrap();
    }
}
