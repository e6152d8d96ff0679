//! The status page: a file `status` beside the segments, found through a link in the daemon's folder.
//!
//! Each run creates its own page, and renames the one before to `status.before`: after a crash it shows the last state
//! of that daemon. A reader with the old file open continues to read the old file.

use crate::storage::pool_error::PoolError;
use ddss_core::status::{
    Counter, DaemonState, Gauge, Histogram, IdentityWord, Kind, Layout, Location, Row, Section, Step,
};
use ddss_core::{NodeId, Shard};
use ddss_ipc::{LAYOUT_VERSION, Liveness, MemoryError, SharedMemory, clock_ns, status_name};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CHECKED: &str = "the layout keeps every word inside the page";

/// Identity of a page's daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageIdentity {
    pub(crate) node: NodeId,
    pub(crate) run: u32,
    pub(crate) core: Option<usize>,
    pub(crate) shard: Shard,
    /// Permission bits of the file.
    pub(crate) mode: u32,
}

/// The mapped page. Clones share it; each word has one writer.
#[derive(Clone, Debug)]
pub(crate) struct StatusPage {
    memory: SharedMemory,
}

impl StatusPage {
    const NAME: &str = "status";
    const BEFORE_NAME: &str = "status.before";
    const FRESH_NAME: &str = "status.new";

    /// Creates the page of this run, and links it from the daemon's folder.
    pub(crate) fn make(folder: &Path, memory_folder: &Path, identity: PageIdentity) -> Result<Self, PoolError> {
        let path = memory_folder.join(Self::NAME);
        let fresh = memory_folder.join(Self::FRESH_NAME);
        remove(&fresh).map_err(system(&fresh))?;
        let make = || SharedMemory::create_file(&fresh, Layout::BYTES);
        let mut made = make();
        for name in [Self::BEFORE_NAME, Self::NAME] {
            if made.is_err() {
                // A full file system must not keep a node from its segments: pages of earlier runs make room.
                remove(&memory_folder.join(name)).map_err(system(&path))?;
                made = make();
            }
        }
        let page = Self { memory: made.map_err(|source| PoolError::File { path: fresh.clone(), source })? };
        page.begin(identity);
        std::fs::set_permissions(&fresh, Permissions::from_mode(identity.mode)).map_err(system(&fresh))?;
        match std::fs::rename(&path, memory_folder.join(Self::BEFORE_NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(&path)(error)),
            _ => {}
        }
        std::fs::rename(&fresh, &path).map_err(system(&path))?;
        let link = folder.join(status_name(identity.shard.index()));
        link_page(&path, &link).map_err(system(&link))?;
        Ok(page)
    }

    /// Removes all files of the page.
    pub(crate) fn discard(folder: &Path, memory_folder: &Path, shard: u8) {
        for name in [Self::NAME, Self::BEFORE_NAME, Self::FRESH_NAME] {
            // Another process may have removed the files already.
            let _ = std::fs::remove_file(memory_folder.join(name));
        }
        let _ = std::fs::remove_file(folder.join(status_name(shard)));
    }

    fn begin(&self, identity: PageIdentity) {
        let pid = std::process::id();
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut release = [0; 16];
        let name = env!("CARGO_PKG_VERSION").as_bytes();
        let length = name.len().min(release.len());
        release[..length].copy_from_slice(&name[..length]);
        let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| release[at + byte]));
        self.set(IdentityWord::Node.at(), identity.node.0.into());
        self.set(IdentityWord::Pid.at(), pid.into());
        self.set(IdentityWord::ProcessBegan.at(), Liveness::start_ticks_of(pid).unwrap_or(0));
        self.set(IdentityWord::Run.at(), identity.run.into());
        self.set(IdentityWord::StartedUs.at(), wall_us());
        self.set(IdentityWord::User.at(), u64::from(user.0) | u64::from(user.1) << 32);
        self.set(IdentityWord::Protocol.at(), LAYOUT_VERSION.into());
        self.set(IdentityWord::Release.at(), half(0));
        self.set(IdentityWord::Release.at() + 8, half(8));
        self.set(IdentityWord::Core.at(), identity.core.map_or(0, |core| core as u64 + 1));
        let shard = identity.shard;
        self.set(IdentityWord::Shard.at(), u64::from(shard.index()) | u64::from(shard.count()) << 32);
        self.set_state(DaemonState::Starting);
        self.beat(wall_us());
        Layout::begin(|at, word| self.set(at, word));
    }

    /// Publishes the state of the daemon.
    pub(crate) fn set_state(&self, state: DaemonState) {
        self.set(IdentityWord::State.at(), state.code());
    }

    /// Records a sign of life.
    pub(crate) fn beat(&self, wall_us: u64) {
        self.set(IdentityWord::HeartbeatNs.at(), clock_ns());
        self.set(IdentityWord::HeartbeatUs.at(), wall_us);
    }

    /// Returns the time of the last sign of life.
    pub(crate) fn heartbeat_ns(&self) -> u64 {
        self.word(IdentityWord::HeartbeatNs.at())
    }

    /// Returns the time since the last sign of life.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_nanos(clock_ns().saturating_sub(self.heartbeat_ns()))
    }

    pub(crate) fn set_counter(&self, counter: Counter, value: u64) {
        self.set(Layout::counter_at(counter), value);
    }

    pub(crate) fn set_gauge(&self, gauge: Gauge, value: u64) {
        self.set(Layout::gauge_at(gauge), value);
    }

    /// Adds the duration of a step to its histogram.
    pub(crate) fn add_sample(&self, kind: Kind, location: Location, step: Step, ns: u64) {
        let at = Layout::histogram_at(kind, location, step);
        self.add(at + Histogram::bucket_of(ns) * size_of::<u64>(), 1);
        self.add(at + Layout::SUM_AT, ns);
    }

    /// Writes or erases a row.
    pub(crate) fn set_row<R: Row>(&self, section: Section, index: usize, row: Option<&R>) {
        let at = section.at + index % section.rows * section.row_bytes;
        let (load, store) = (|offset| self.word(at + offset), |offset, word| self.set_last(at + offset, word));
        match row {
            Some(row) => row.write(load, store),
            None => R::erase(load, store),
        }
    }

    #[inline]
    pub(crate) fn set(&self, at: usize, value: u64) {
        self.memory.store(at, value, Ordering::Relaxed).expect(CHECKED);
    }

    /// Stores a word that becomes visible after all earlier ones.
    fn set_last(&self, at: usize, value: u64) {
        self.memory.store(at, value, Ordering::Release).expect(CHECKED);
    }

    fn add(&self, at: usize, value: u64) {
        self.set(at, self.word(at).wrapping_add(value));
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load(at, Ordering::Relaxed).expect(CHECKED)
    }

    /// Copies the page, as a reader does.
    pub(crate) fn copy(&self) -> Vec<u8> {
        (0..Layout::BYTES).step_by(size_of::<u64>()).flat_map(|at| self.word(at).to_ne_bytes()).collect()
    }
}

/// Returns microseconds since 1970.
pub(crate) fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn system(path: &Path) -> impl Fn(io::Error) -> PoolError {
    let path = path.to_owned();
    move |source| PoolError::File { path: path.clone(), source: MemoryError::System { tried: "name", source } }
}

/// Creates a link, or replaces an older one. A target below the link's own folder is relative: outside of a container
/// that folder has another path.
fn link_page(path: &Path, link: &Path) -> io::Result<()> {
    let (path, link) = (std::path::absolute(path)?, std::path::absolute(link)?);
    let below = link.parent().and_then(|folder| path.strip_prefix(folder).ok());
    let path = below.unwrap_or(&path);
    let fresh: PathBuf = link.with_extension("status.new");
    remove(&fresh)?;
    symlink(path, &fresh)?;
    std::fs::rename(&fresh, &link)
}

/// Lets readers of the page enter its folder. All other files in it stay private to their owner.
pub(crate) fn allow_readers(memory_folder: &Path, mode: u32) -> io::Result<()> {
    let through = (mode & 0o044) >> 2;
    let found = std::fs::metadata(memory_folder)?.permissions().mode() & 0o777;
    if found & through == through {
        return Ok(());
    }
    std::fs::set_permissions(memory_folder, Permissions::from_mode(found | through))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::status::Status;
    use ddss_ipc::{STATUS_NAME, read_all_statuses, read_status};

    #[test]
    fn each_run_has_own_page_and_keeps_previous_one() {
        // If this broke, a crashed daemon's last state would be lost at its restart, or mixed with that of the next.
        let folder = std::env::temp_dir().join(format!("ddssd-page-{}", std::process::id()));
        let memory_folder = folder.join("memory");
        std::fs::create_dir_all(&memory_folder).unwrap();
        let shard = Shard::new(0, 2).unwrap();
        let identity = |run| PageIdentity { node: NodeId(3), run, core: Some(1), shard, mode: 0o640 };
        let first = StatusPage::make(&folder, &memory_folder, identity(1)).unwrap();
        first.set_counter(Counter::Commits, 5);
        first.set_state(DaemonState::Serving);
        let seen = read_status(&folder).unwrap();
        assert_eq!((seen.daemon.run, seen.daemon.core, seen.counter(Counter::Commits)), (1, Some(1), 5));
        assert_eq!(seen.daemon.release, env!("CARGO_PKG_VERSION"));
        assert_eq!(Status::decode(&first.copy()).unwrap(), seen);
        let second = StatusPage::make(&folder, &memory_folder, identity(2)).unwrap();
        second.set_counter(Counter::Commits, 1);
        first.set_counter(Counter::Commits, 6);
        let seen = read_status(&folder).unwrap();
        assert_eq!((seen.daemon.run, seen.counter(Counter::Commits)), (2, 1));
        let before = Status::decode(&std::fs::read(memory_folder.join(StatusPage::BEFORE_NAME)).unwrap()).unwrap();
        assert_eq!((before.daemon.run, before.counter(Counter::Commits)), (1, 6));
        assert_eq!(std::fs::read_link(folder.join(STATUS_NAME)).unwrap(), Path::new("memory/status"));
        let mode = std::fs::metadata(folder.join(STATUS_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        // The page of the other shard, of an earlier run and then of this one.
        let second = memory_folder.join("plane-1");
        std::fs::create_dir_all(&second).unwrap();
        for (run, count) in [(1, 1), (2, 2)] {
            StatusPage::make(&folder, &second, PageIdentity { shard: Shard::new(1, 2).unwrap(), ..identity(run) })
                .unwrap();
            let all = read_all_statuses(&folder).unwrap();
            assert_eq!(all.iter().map(|status| status.daemon.shard.index()).collect::<Vec<_>>(), [0, 1][..count]);
        }
        StatusPage::discard(&folder, &second, 1);
        std::fs::remove_dir(&second).unwrap();
        StatusPage::discard(&folder, &memory_folder, 0);
        assert_eq!(std::fs::read_dir(&memory_folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
