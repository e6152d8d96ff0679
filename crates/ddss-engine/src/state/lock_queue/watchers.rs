//! Watchers of versions.

use super::wait_list::WaitList;
use super::waiter::Watcher;
use ddss_core::Version;
use std::collections::BTreeSet;

/// Watchers, found by row and version as well: a put costs the same beside any number of watchers of other rows and of
/// later versions.
#[derive(Debug)]
pub(super) struct Watchers {
    pub(super) list: WaitList<Watcher>,
    versions: BTreeSet<(u64, Version, u64)>,
}

impl Watchers {
    pub(super) const fn new() -> Self {
        Self { list: WaitList::new(), versions: BTreeSet::new() }
    }

    pub(super) fn push(&mut self, watcher: Watcher) {
        let number = self.list.push(watcher);
        self.versions.insert((watcher.row, watcher.above, number));
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Watcher> {
        let watcher = self.list.remove(number)?;
        self.versions.remove(&(watcher.row, watcher.above, number));
        Some(watcher)
    }

    /// Takes a watcher of that row whose version is reached.
    pub(super) fn take_satisfied(&mut self, row: u64, version: Version) -> Option<Watcher> {
        let &(.., number) = self.versions.range((row, Version(0), 0)..(row, version, 0)).next()?;
        self.remove(number)
    }

    pub(super) fn drain(&mut self) -> Vec<Watcher> {
        self.versions.clear();
        self.list.drain()
    }
}
