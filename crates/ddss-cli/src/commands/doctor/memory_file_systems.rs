//! File systems that live in memory.

use std::path::Path;

/// Their types: tmpfs, ramfs, hugetlbfs.
const TYPES: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x958458f6];

/// Returns true if a directory is in memory; `None` if that cannot be known.
pub(super) fn is_in_memory(folder: &Path) -> Option<bool> {
    Some(TYPES.contains(&rustix::fs::statfs(folder).ok()?.f_type))
}
