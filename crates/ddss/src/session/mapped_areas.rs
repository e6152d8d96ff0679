//! Areas of the home's memory that this process has mapped.

use ddss_ipc::SharedMemory;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Areas that this process has mapped.
#[derive(Debug, Default)]
pub(crate) struct MappedAreas(Mutex<HashMap<usize, Option<SharedMemory>>>);

impl MappedAreas {
    /// Maximum wait for the acceptor to pass an area's file. Without the area every get goes to the daemon.
    const AREA_WAIT_MAX: Duration = Duration::from_millis(500);

    /// Returns the mapping of an area if this process is permitted to map it.
    pub(crate) fn get(&self, socket: &Path, area: usize) -> Option<SharedMemory> {
        let mut areas = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = || SharedMemory::map_area(socket, u32::try_from(area).ok()?, Self::AREA_WAIT_MAX).ok();
        areas.entry(area).or_insert_with(view).clone()
    }

    /// Drops all mappings: a new daemon may have other files.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
