//! Number of replicated names of each home, beside the names.

use std::collections::BTreeMap;

/// Number of replicated names of each home. It follows from the names: it is counted when it is first needed, and snapshots do not
/// contain it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicatedCounts(Option<BTreeMap<u16, u32>>);

/// The names are compared instead.
impl PartialEq for ReplicatedCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReplicatedCounts {}

impl ReplicatedCounts {
    /// Returns the count of a home. `homes` lists the home of each replicated name.
    pub(super) fn count<I: Iterator<Item = u16>>(&mut self, home: u16, homes: impl FnOnce() -> I) -> u32 {
        let counts = self.0.get_or_insert_with(|| {
            let mut counts = BTreeMap::new();
            homes().for_each(|home| *counts.entry(home).or_default() += 1);
            counts
        });
        counts.get(&home).copied().unwrap_or_default()
    }

    /// Records that a replicated name changes its home, appears or disappears.
    pub(super) fn record(&mut self, before: Option<u16>, after: Option<u16>) {
        let Some(counts) = &mut self.0 else { return };
        if let Some(count) = before.and_then(|home| counts.get_mut(&home)) {
            debug_assert!(*count > 0, "a name that was not counted disappears");
            *count = count.saturating_sub(1);
        }
        if let Some(home) = after {
            *counts.entry(home).or_default() += 1;
        }
    }
}
