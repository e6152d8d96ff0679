//! Leases of claims, judged without a clock that two nodes share.

use crate::model::UnitRef;
use std::collections::BTreeMap;

/// Claims that a worker watches while it has no unit.
///
/// A living worker renews its claim, which gives the row another version. A claim has expired when its row was read with one
/// version for a whole lease, again and again, while the table could be written: a pause begins the lease anew, because the
/// claim could not be renewed either while the table was away.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    lease_us: u64,
    seen: BTreeMap<UnitRef, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    version: u64,
    since_us: u64,
    last_us: u64,
}

impl LeaseWatch {
    /// Parts of a lease: the time between two renewals, which is also that between two reads at most.
    pub const PARTS: u64 = 4;

    /// Creates a watch for claims of this lease.
    #[must_use]
    pub const fn new(lease_us: u64) -> Self {
        Self { lease_us, seen: BTreeMap::new() }
    }

    /// Notes that the row of a claimed unit was read, and the table could be written behind that. Returns true if its claim has expired.
    pub fn observe(&mut self, unit: UnitRef, version: u64, now_us: u64) -> bool {
        let first = Seen { version, since_us: now_us, last_us: now_us };
        let seen = self.seen.entry(unit).or_insert(first);
        let pause_us = now_us.saturating_sub(seen.last_us);
        if seen.version != version || pause_us > self.lease_us / Self::PARTS {
            *seen = first;
        }
        seen.last_us = now_us;
        now_us.saturating_sub(seen.since_us) >= self.lease_us
    }

    /// Forgets a unit, which this worker has claimed.
    pub fn forget(&mut self, unit: UnitRef) {
        self.seen.remove(&unit);
    }
}
