//! Memory limit of the control group in which a process runs: beyond it the kernel kills the process.

use std::path::{Path, PathBuf};

/// Mount points of the memory controller: control groups of version 2, its hybrid form, and version 1.
const ROOTS: &[(&str, &str)] = &[
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/unified", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];
/// Version 1 shows no limit as a huge number.
const LIMIT_MAX: u64 = 1 << 60;

/// The lowest limit of a process's control group and those above it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// Bytes that the processes of the group may use together, shared memory included.
    pub bytes: u64,
    /// File that says so.
    pub path: PathBuf,
}

impl MemoryLimit {
    /// Returns the limit of this process, if it has one.
    pub fn of_this_process() -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let limits = ROOTS.iter().flat_map(|(root, name)| Self::all(Path::new(root), name, &groups));
        limits.min_by_key(|limit| limit.bytes)
    }

    /// Returns all limits of these groups below a mount point.
    fn all(root: &Path, name: &str, groups: &str) -> Vec<Self> {
        // number:controllers:path; version 2 names no controller.
        let is_wanted = |controllers: &str| match name {
            "memory.max" => controllers.is_empty(),
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        let path = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            is_wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        });
        let Some(path) = path else { return Vec::new() };
        // In a container without a namespace of its own the path is that of the host; the mount point is the group.
        let group = Some(root.join(&path)).filter(|group| group.is_dir()).unwrap_or_else(|| root.to_owned());
        let above = group.ancestors().take_while(|above| above.starts_with(root));
        let limit = |folder: &Path| {
            let path = folder.join(name);
            let bytes = std::fs::read_to_string(&path).ok()?.trim().parse().ok().filter(|&bytes| bytes < LIMIT_MAX)?;
            Some(Self { bytes, path })
        };
        above.filter_map(limit).collect()
    }

    /// Returns the bytes that the segments of a daemon may have: it needs some for itself.
    pub fn pool_bytes(&self) -> u64 {
        const OWN_MIN: u64 = 32 << 20;
        const OWN_MAX: u64 = 1 << 30;
        self.bytes.saturating_sub((self.bytes / 4).clamp(OWN_MIN, OWN_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_limit_of_all_levels_counts() {
        // If this failed, a daemon would take more memory than its container may have, and the kernel would kill it.
        let root = std::env::temp_dir().join(format!("ddss-admin-cgroup-{}", std::process::id()));
        let group = root.join("a/b");
        std::fs::create_dir_all(&group).unwrap();
        let groups = "5:cpu:/other\n4:memory,hugetlb:/a/b\n0::/a/b\n";
        let lowest = |name: &str, groups: &str| {
            let all = MemoryLimit::all(&root, name, groups);
            all.into_iter().min_by_key(|limit| limit.bytes).map(|limit| (limit.bytes, limit.path))
        };
        for name in ["memory.max", "memory.limit_in_bytes"] {
            assert_eq!(lowest(name, groups), None);
            std::fs::write(group.join(name), "9223372036854771712\n").unwrap();
            assert_eq!(lowest(name, groups), None, "no limit in version 1");
            std::fs::write(group.join(name), "max\n").unwrap();
            assert_eq!(lowest(name, groups), None, "no limit in version 2");
            std::fs::write(group.join(name), "2000\n").unwrap();
            std::fs::write(root.join("a").join(name), "1000\n").unwrap();
            assert_eq!(lowest(name, groups), Some((1000, root.join("a").join(name))));
            std::fs::write(root.join(name), "500\n").unwrap();
            assert_eq!(lowest(name, "4:memory:/of/the/host\n0::/of/the/host"), Some((500, root.join(name))));
            assert_eq!(lowest(name, "1:cpu:/a/b\n"), None);
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
