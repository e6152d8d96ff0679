//! Areas of the home's memory that this process has mapped.

use ddss_ipc::SharedMemory;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Areas that this process has mapped, or may not map.
#[derive(Debug, Default)]
pub(crate) struct MappedAreas(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    areas: HashMap<usize, Option<SharedMemory>>,
    /// Number of daemons that have ended: their areas are others.
    daemons: u64,
}

impl MappedAreas {
    /// Maximum wait for the acceptor to pass an area's file. Without the area every get goes to the daemon.
    const AREA_WAIT_MAX: Duration = Duration::from_millis(500);

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the mapping of an area, `None` if this process may not map it; an error if that is not known yet.
    pub(crate) fn get(&self, area: usize) -> Result<Option<SharedMemory>, ()> {
        self.known().areas.get(&area).cloned().ok_or(())
    }

    /// Returns the mapping of an area if this process may map it, and can do so by then. After another failure the next caller
    /// tries again.
    pub(crate) fn map(&self, socket: &Path, area: usize, by: Instant) -> Option<SharedMemory> {
        if let Ok(known) = self.get(area) {
            return known;
        }
        // Other threads may open segments of other areas meanwhile.
        let daemons = self.known().daemons;
        let left = by.saturating_duration_since(Instant::now()).min(Self::AREA_WAIT_MAX);
        let mapped = SharedMemory::map_area(socket, u32::try_from(area).ok()?, left).ok()?;
        let mut known = self.known();
        if known.daemons == daemons {
            known.areas.insert(area, mapped.clone());
        }
        mapped
    }

    /// Drops all mappings: a new daemon may have other files.
    pub(crate) fn forget(&self) {
        let mut known = self.known();
        known.areas.clear();
        known.daemons += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;

    #[test]
    fn area_that_could_not_be_mapped_once_is_mapped_later() {
        // If this broke, a moment without descriptors would send all gets of a client to the daemon for good.
        let node = TestNode::start();
        let client = node.client();
        client.segment("values").allocate(Spec::new(64)).unwrap();
        let (areas, by) = (MappedAreas::default(), Instant::now() + Duration::from_secs(60));
        let count = |socket: &Path| (0..8).filter(|&area| areas.map(socket, area, by).is_some()).count();
        assert_eq!(count(Path::new("/nowhere/ddssd.sock")), 0);
        assert!(count(client.socket()) > 0);
        assert_eq!((0..8).filter(|&area| areas.get(area).is_err()).count(), 0, "a refusal is an answer");
        areas.forget();
        assert_eq!((0..8).filter(|&area| areas.get(area).is_err()).count(), 8);
    }
}
