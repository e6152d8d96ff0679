//! Reading a daemon's status page: without its help, and after its end.
//!
//! The page is a file that the daemon has mapped. It is read here, not mapped: whoever could change the file under a
//! reader could otherwise end him by making it shorter.

use crate::paths::status_name;
use crate::trace_sampling::clock_ns;
use ddss_core::status::{DaemonState, Layout, Status, StatusError};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the page in the daemon's folder: a link to where it is.
pub const STATUS_NAME: &str = "ddssd.status";

/// A sign of life that is younger than this says that the daemon lives: an idle one gives one each 50 ms.
const FRESH: Duration = Duration::from_secs(1);

/// Why a daemon's page could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusReadError {
    /// There is none: no daemon has run there since the machine was started, or it threw everything away.
    #[error("no daemon has left a status page at {}: has one run there?", path.display())]
    Nothing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It is not for this user.
    #[error("the status page at {} is not for this user: ask as the daemon's user or root, or set its --status-mode", path.display())]
    NotYours {
        /// Which.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the status page at {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It says nothing that can be understood.
    #[error("cannot use {}", path.display())]
    Wrong {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: StatusError,
    },
}

/// Reads the page of the daemon that works, or has worked, in `folder`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ddss_ipc::{StatusReadError, read_status};
/// let empty = tempfile::tempdir()?;
/// assert!(matches!(read_status(empty.path()), Err(StatusReadError::Nothing { .. })));
/// # Ok(()) }
/// ```
pub fn read_status(folder: &Path) -> Result<Status, StatusReadError> {
    read_page(folder.join(STATUS_NAME))
}

/// The same of all planes of that daemon, the first one first. Of a daemon that was started meanwhile with fewer planes
/// there are as many as it has now.
pub fn read_all_statuses(folder: &Path) -> Result<Vec<Status>, StatusReadError> {
    let first = read_status(folder)?;
    let (run, planes) = (first.daemon.run, first.daemon.plane.count());
    let mut all = vec![first];
    for plane in 1..planes {
        match read_page(folder.join(status_name(plane))) {
            Ok(status) if status.daemon.run == run => all.push(status),
            // What is there is of an earlier run: the daemon has just begun.
            Ok(_) | Err(StatusReadError::Nothing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn read_page(path: PathBuf) -> Result<Status, StatusReadError> {
    match read(&path) {
        Ok(bytes) => Status::decode(&bytes).map_err(|source| StatusReadError::Wrong { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StatusReadError::Nothing { path }),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(StatusReadError::NotYours { path }),
        Err(source) => Err(StatusReadError::Unreadable { path, source }),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe that somebody put there must not hold us.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no file"));
    }
    let bytes = usize::try_from(found.st_size).unwrap_or(usize::MAX);
    if bytes > Layout::BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    let mut copy = vec![0; bytes];
    file.read_exact_at(&mut copy, 0)?;
    Ok(copy)
}

/// How a daemon is, as its page and its process tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It takes in what is there.
    Starting,
    /// It serves.
    Serving,
    /// Its process is there and has given no sign of life for so long: stopped, or short of processor time.
    Silent(Duration),
    /// It was told to stop, and has.
    Stopped,
    /// It ended without saying so.
    Dead,
}

impl Life {
    /// How the daemon is whose page that is, at this moment.
    pub fn of(status: &Status) -> Self {
        let daemon = &status.daemon;
        if daemon.state == DaemonState::Stopped {
            return Life::Stopped;
        }
        // A sign from the future was given before the machine was started again.
        let silent = clock_ns().checked_sub(daemon.heartbeat_ns).map(Duration::from_nanos);
        match silent {
            Some(silent) if silent < FRESH && daemon.state == DaemonState::Starting => Life::Starting,
            Some(silent) if silent < FRESH => Life::Serving,
            Some(silent) if process_began(daemon.pid) == Some(daemon.process_began) => Life::Silent(silent),
            _ => Life::Dead,
        }
    }

    /// Whether clients are answered.
    pub fn is_serving(self) -> bool {
        self == Life::Serving
    }
}

/// When a process began, in the kernel's ticks since the boot; `None` if it is not there or cannot be seen.
pub fn process_began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, which may hold anything.
    let fields = stat.rsplit_once(')')?.1;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
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
    fn a_daemon_that_died_is_told_from_one_that_is_silent() {
        // If this broke, nobody would know whether to start a daemon or to look why it hangs.
        let (ours, began) = (std::process::id(), process_began(std::process::id()).unwrap());
        let life = |state: DaemonState, pid: u32, began, heartbeat_ns| {
            let words = [
                (IdentityWord::State, state.code()),
                (IdentityWord::Pid, pid.into()),
                (IdentityWord::ProcessBegan, began),
                (IdentityWord::HeartbeatNs, heartbeat_ns),
            ];
            Life::of(&Status::decode(&page(&words)).unwrap())
        };
        let now = clock_ns();
        assert_eq!(life(DaemonState::Serving, ours, began, now), Life::Serving);
        assert_eq!(life(DaemonState::Starting, ours, began, now), Life::Starting);
        assert_eq!(life(DaemonState::Stopped, ours, began, now), Life::Stopped);
        assert!(matches!(life(DaemonState::Serving, ours, began, now - 5_000_000_000), Life::Silent(_)));
        assert_eq!(
            life(DaemonState::Serving, ours, began + 1, now - 5_000_000_000),
            Life::Dead,
            "the number is another's by now"
        );
        assert_eq!(
            life(DaemonState::Serving, ours, began + 1, now + 3_600_000_000_000),
            Life::Dead,
            "from before the boot"
        );
    }

    #[test]
    fn what_lies_there_instead_of_a_page_does_no_harm() {
        // If this broke, a pipe or a huge file in the daemon's folder would hang or fell the tool that looks at it.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(STATUS_NAME);
        let told = || read_status(folder.path()).unwrap_err().to_string();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(told().starts_with("cannot read the status page"));
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(told().starts_with("cannot read the status page"));
        std::fs::remove_file(&path).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(Layout::BYTES_MAX as u64 + 1).unwrap();
        assert!(told().starts_with("cannot read the status page"));
        file.set_len(4096).unwrap();
        assert!(told().starts_with("cannot use"));
        std::fs::write(&path, page(&[(IdentityWord::Node, 5)])).unwrap();
        assert_eq!(read_status(folder.path()).unwrap().daemon.node.0, 5);
        symlink("nowhere", folder.path().join("link")).unwrap();
        std::fs::rename(folder.path().join("link"), &path).unwrap();
        assert!(told().starts_with("no daemon has left"));
    }
}
