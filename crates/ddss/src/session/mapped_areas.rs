//! Areas of the home's memory that this process has mapped.

use super::ended::Ended;
use ddss_ipc::SharedMemory;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Areas that this process has mapped, or may not map.
#[derive(Default)]
pub(crate) struct MappedAreas(Mutex<Known>);

#[derive(Default)]
struct Known {
    areas: HashMap<usize, Option<SharedMemory>>,
    /// Tasks that wait until a thread has mapped an area, or has failed.
    waiting: HashMap<usize, Vec<Arc<Ended<Option<SharedMemory>>>>>,
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
        // Another thread may have mapped it: one mapping serves all handles.
        if known.daemons == daemons { known.areas.entry(area).or_insert(mapped).clone() } else { mapped }
    }

    /// Has a task wait for the mapping of an area. Returns true if it is the first one: its caller maps the area and then calls
    /// [`end`](Self::end).
    pub(crate) fn wait(&self, area: usize, task: &Arc<Ended<Option<SharedMemory>>>) -> bool {
        let mut known = self.known();
        let waiting = known.waiting.entry(area).or_default();
        waiting.push(Arc::clone(task));
        waiting.len() == 1
    }

    /// Wakes the tasks that wait for an area, mapped or not.
    pub(crate) fn end(&self, area: usize) {
        let waiting = self.known().waiting.remove(&area).unwrap_or_default();
        let mapped = self.get(area).ok().flatten();
        waiting.into_iter().for_each(|task| task.end(mapped.clone()));
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
    use std::os::fd::AsRawFd;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn tasks_that_open_segments_of_one_area_share_one_thread_and_one_mapping() {
        // If this broke, a service that opens hundreds of segments at its start would be refused by the acceptor.
        let node = TestNode::start();
        let client = node.client();
        client.segment("values").allocate(Spec::new(64)).unwrap();
        let (areas, by) = (MappedAreas::default(), Instant::now() + Duration::from_secs(60));
        let area = (0..8).find(|&area| areas.map(client.socket(), area, by).is_some()).unwrap();
        areas.forget();
        let tasks: Vec<_> = (0..200).map(|_| Arc::new(Ended::default())).collect();
        assert_eq!(tasks.iter().filter(|task| areas.wait(area, task)).count(), 1);
        // Two threads are as fast as each other.
        let mapped: Vec<_> = std::thread::scope(|scope| {
            let map = || areas.map(client.socket(), area, by).unwrap();
            [scope.spawn(map), scope.spawn(map)].map(|thread| thread.join().unwrap()).into()
        });
        let is_one = |memory: &SharedMemory| memory.descriptor().as_raw_fd() == mapped[0].descriptor().as_raw_fd();
        assert!(is_one(&mapped[1]));
        areas.end(area);
        for task in tasks {
            let Poll::Ready(Some(memory)) = task.poll(&Context::from_waker(Waker::noop())) else {
                panic!("no mapping")
            };
            assert!(is_one(&memory));
        }
        assert!(areas.wait(area, &Arc::default()), "the next task begins again");
    }

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
