//! The files of a folder with segments.

use super::pool_error::PoolError;
use ddss_admin::storage::{Head, Registry, RegistryEntry, area_path};
use ddss_core::limits::AREAS_MAX;
use ddss_core::{Header, area_of, offset_of};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Name of the undo log.
pub(crate) const UNDO_NAME: &str = "undo";

/// Name of the undo log of large commits.
pub(crate) const LARGE_UNDO_NAME: &str = "undo-large";

/// Refuses a registry that is truncated or of another format, before anything is created or opened in the folder.
pub(crate) fn check_registry(folder: &Path) -> Result<(), PoolError> {
    let path = folder.join(Registry::FILE_NAME);
    let has_areas = || (0..AREAS_MAX).any(|area| area_path(folder, area).exists());
    let is_truncated = match Registry::head(&path) {
        Ok(Head::Other { version, release }) => return Err(PoolError::other_release(folder, version, release)),
        Ok(Head::Foreign) => return Err(PoolError::NotARegistry { path }),
        Ok(Head::Truncated) => true,
        Ok(Head::Current | Head::Unclaimed) => Registry::is_truncated(&path, has_areas()),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => false,
        Err(source) => {
            let source = MemoryError::System { tried: "read the file of", source };
            return Err(PoolError::File { path, source });
        }
    };
    if is_truncated {
        let what = "its registry is truncated: restore that file".to_owned();
        return Err(PoolError::Broken { path: folder.to_owned(), what });
    }
    Ok(())
}

/// Discards all segments and named files. A client with a mapping sees that its segment is gone; the memory is
/// freed with the last mapping.
pub(crate) fn discard(folder: &Path) {
    if let Ok(registry) = Registry::open_existing(&folder.join(Registry::FILE_NAME)) {
        for entry in registry.entries() {
            let RegistryEntry::Live(record) = entry else { continue };
            let path = area_path(folder, area_of(record.at));
            let Ok(area) = SharedMemory::open_file(&path) else { continue };
            // A place outside of the area has no header.
            let line = (offset_of(record.at) + Header::SEGMENT_OFFSET) as usize;
            let _ = area.store(line, 0, Ordering::Release);
        }
    }
    // Another process may have removed the files already.
    for name in [Registry::FILE_NAME, UNDO_NAME, LARGE_UNDO_NAME] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    for area in 0..AREAS_MAX {
        let _ = std::fs::remove_file(area_path(folder, area));
    }
}
