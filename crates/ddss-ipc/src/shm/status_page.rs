//! Reader of a daemon's status page, which works without the daemon's help and after its end.
//!
//! The page is a file that the daemon maps. The reader copies it instead of mapping it: a process that truncates the
//! file could otherwise kill the reader.

use crate::paths::{STATUS_NAME, status_name};
use crate::trace_sampling::clock_ns;
use ddss_core::status::{DaemonState, Layout, Status, StatusError};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Age up to which a heartbeat shows that the daemon lives. An idle daemon writes one each 50 ms.
const HEARTBEAT_FRESH: Duration = Duration::from_secs(1);

/// Reasons for which a status page cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusReadError {
    /// There is no page: no daemon has run there since the machine started, or it removed everything.
    #[error("no status page at {}: no daemon has run there since boot", path.display())]
    NotFound {
        /// Path of the page.
        path: PathBuf,
    },
    /// The user may not read it.
    #[error("no permission to read the status page at {}: run as the daemon's user or root, or start the daemon with another --status-mode", path.display())]
    PermissionDenied {
        /// Path of the page.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the status page at {}", path.display())]
    Unreadable {
        /// Path of the page.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The content is not a valid page.
    #[error("cannot decode the status page at {}", path.display())]
    Invalid {
        /// Path of the page.
        path: PathBuf,
        /// Error of the decoder.
        #[source]
        source: StatusError,
    },
}

/// Reads the page of the daemon that runs, or ran, in `folder`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ddss_ipc::{StatusReadError, read_status};
/// let empty = tempfile::tempdir()?;
/// assert!(matches!(read_status(empty.path()), Err(StatusReadError::NotFound { .. })));
/// # Ok(()) }
/// ```
pub fn read_status(folder: &Path) -> Result<Status, StatusReadError> {
    read_page(folder.join(STATUS_NAME))
}

/// Reads the pages of all shards of that daemon, in order. Returns the pages of the daemon's current run only.
pub fn read_all_statuses(folder: &Path) -> Result<Vec<Status>, StatusReadError> {
    let first = read_status(folder)?;
    let (run, shards) = (first.daemon.run, first.daemon.shard.count());
    let mut all = vec![first];
    for shard in 1..shards {
        match read_page(folder.join(status_name(shard))) {
            Ok(status) if status.daemon.run == run => all.push(status),
            // A page of an earlier run: the daemon has just started.
            Ok(_) | Err(StatusReadError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn read_page(path: PathBuf) -> Result<Status, StatusReadError> {
    match read(&path) {
        Ok(bytes) => Status::decode(&bytes).map_err(|source| StatusReadError::Invalid { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StatusReadError::NotFound { path }),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(StatusReadError::PermissionDenied { path })
        }
        Err(source) => Err(StatusReadError::Unreadable { path, source }),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe at the path must not block the reader.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let bytes = usize::try_from(found.st_size).unwrap_or(usize::MAX);
    if bytes > Layout::BYTES_MAX {
        return Err(io::Error::other("the file is too long"));
    }
    let mut copy = vec![0; bytes];
    file.read_exact_at(&mut copy, 0)?;
    Ok(copy)
}

/// Liveness of a daemon, from its page and its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// The daemon recovers its state.
    Starting,
    /// The daemon serves clients.
    Serving,
    /// The process exists and has sent no heartbeat for that long: stopped, or short of processor time.
    Silent(Duration),
    /// The daemon was stopped in order.
    Stopped,
    /// The process ended without stopping in order.
    Dead,
}

impl Liveness {
    /// Determines the liveness of a page's daemon at this moment.
    pub fn of(status: &Status) -> Self {
        let daemon = &status.daemon;
        if daemon.state == DaemonState::Stopped {
            return Liveness::Stopped;
        }
        // A heartbeat from the future was written before the machine restarted.
        let silent = clock_ns().checked_sub(daemon.heartbeat_ns).map(Duration::from_nanos);
        match silent {
            Some(silent) if silent < HEARTBEAT_FRESH && daemon.state == DaemonState::Starting => Liveness::Starting,
            Some(silent) if silent < HEARTBEAT_FRESH => Liveness::Serving,
            Some(silent) if Self::start_ticks_of(daemon.pid) == Some(daemon.process_began) => Liveness::Silent(silent),
            _ => Liveness::Dead,
        }
    }

    /// Returns the start time of a process in the kernel's ticks since boot; `None` if it does not exist or is not visible.
    pub fn start_ticks_of(pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in brackets, which may hold any byte.
        let fields = stat.rsplit_once(')')?.1;
        fields.split_ascii_whitespace().nth(19)?.parse().ok()
    }

    /// Returns true if clients are served.
    pub fn is_serving(self) -> bool {
        self == Liveness::Serving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::status::IdentityWord;
    use std::os::unix::fs::symlink;

    fn page(words: &[(IdentityWord, u64)]) -> Vec<u8> {
        let mut page = vec![0; Layout::BYTES];
        let mut set = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        Layout::begin(&mut set);
        words.iter().for_each(|&(which, word)| set(which.at(), word));
        page
    }

    #[test]
    fn dead_daemon_differs_from_silent_daemon() {
        // If this failed, an operator could not tell a daemon to restart from one to debug.
        let (ours, began) = (std::process::id(), Liveness::start_ticks_of(std::process::id()).unwrap());
        let liveness = |state: DaemonState, pid: u32, began, heartbeat_ns| {
            let words = [
                (IdentityWord::State, state.code()),
                (IdentityWord::Pid, pid.into()),
                (IdentityWord::ProcessBegan, began),
                (IdentityWord::HeartbeatNs, heartbeat_ns),
            ];
            Liveness::of(&Status::decode(&page(&words)).unwrap())
        };
        let now = clock_ns();
        assert_eq!(liveness(DaemonState::Serving, ours, began, now), Liveness::Serving);
        assert_eq!(liveness(DaemonState::Starting, ours, began, now), Liveness::Starting);
        assert_eq!(liveness(DaemonState::Stopped, ours, began, now), Liveness::Stopped);
        assert!(matches!(liveness(DaemonState::Serving, ours, began, now - 5_000_000_000), Liveness::Silent(_)));
        assert_eq!(
            liveness(DaemonState::Serving, ours, began + 1, now - 5_000_000_000),
            Liveness::Dead,
            "the process id is reused"
        );
        assert_eq!(
            liveness(DaemonState::Serving, ours, began + 1, now + 3_600_000_000_000),
            Liveness::Dead,
            "heartbeat of an earlier boot"
        );
    }

    #[test]
    fn invalid_status_file_is_an_error() {
        // If this failed, a pipe or a huge file in the daemon's directory would hang or kill the reading tool.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(STATUS_NAME);
        let error = || read_status(folder.path()).unwrap_err().to_string();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(error().starts_with("cannot read the status page"));
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(error().starts_with("cannot read the status page"));
        std::fs::remove_file(&path).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(Layout::BYTES_MAX as u64 + 1).unwrap();
        assert!(error().starts_with("cannot read the status page"));
        file.set_len(4096).unwrap();
        assert!(error().starts_with("cannot decode"));
        std::fs::write(&path, page(&[(IdentityWord::Node, 5)])).unwrap();
        assert_eq!(read_status(folder.path()).unwrap().daemon.node.0, 5);
        symlink("nowhere", folder.path().join("link")).unwrap();
        std::fs::rename(folder.path().join("link"), &path).unwrap();
        assert!(error().starts_with("no status page"));
    }
}
