//! Values of the kernel about this process, its memory limit and its file systems.

use ddss_admin::storage::MemoryLimit;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Directories whose file systems are shown, by their role.
#[derive(Clone, Debug)]
pub(crate) struct WatchedFolders {
    pub(crate) memory: PathBuf,
    pub(crate) state: PathBuf,
}

/// Values of one moment; `None` where the kernel has none.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessSample {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
    pub(super) memory_limit_bytes: Option<u64>,
    /// Role of the directory, free and all bytes of its file system.
    pub(super) file_systems: Vec<(&'static str, u64, u64)>,
}

impl ProcessSample {
    pub(super) fn take(folders: &WatchedFolders) -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        let file_systems = [("memory", &folders.memory), ("state", &folders.state)];
        Self {
            cpu_seconds: cpu_ticks(&stat).map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
            resident_bytes: pages.map(|pages| pages * rustix::param::page_size() as u64),
            // The directory that is being read is one of them.
            open_descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|found| found.count() as u64 - 1),
            descriptors_max: getrlimit(Resource::Nofile).current,
            memory_limit_bytes: MemoryLimit::of_this_process().map(|limit| limit.bytes),
            file_systems: file_systems
                .into_iter()
                .filter_map(|(role, folder)| file_system(folder).map(|(free, all)| (role, free, all)))
                .collect(),
        }
    }
}

/// Returns the processor time of a process from its line in `/proc`, in ticks. Its name may hold blanks and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Returns the bytes of a file system that this user may still use, and all of them. A directory that does not exist yet is
/// looked for above it.
fn file_system(folder: &Path) -> Option<(u64, u64)> {
    let found = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        // If this broke, a monitor would show the flags of a process as its processor time.
        let line = "7 (ddssd) x) (y) S 1 7 7 0 -1 4194560 100 0 0 0 40 2 0 0 20 0 9 0 100 5000 900";
        assert_eq!(cpu_ticks(line), Some(42));
        assert_eq!(cpu_ticks("7 (cut"), None);
        let here = std::env::temp_dir();
        let sample = ProcessSample::take(&WatchedFolders { memory: here.clone(), state: here.join("not/there/yet") });
        assert!(sample.resident_bytes > Some(1 << 20) && sample.open_descriptors > Some(2), "{sample:?}");
        assert_eq!(sample.file_systems.len(), 2, "{sample:?}");
    }
}
