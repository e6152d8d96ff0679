//! Leases of claims, judged without a clock that two nodes share.

use crate::fault_injection::planted;
use crate::model::UnitRef;
use std::collections::BTreeMap;

/// Claims that a worker watches while it has no unit.
///
/// A living worker renews its claim, which gives the row another version. A claim has expired when its row was read with one
/// version for a whole lease, again and again, while the table could be written. A pause between two reads begins the lease anew:
/// the table may have been away, so that the claim could not be renewed. Many pauses are no outages: with the table there at each
/// read, a living worker would have renewed its claim in one of them.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    lease_us: u64,
    seen: BTreeMap<UnitRef, Seen>,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    version: u64,
    /// First read behind the last pause.
    since_us: u64,
    last_us: u64,
    pauses: u32,
}

impl LeaseWatch {
    /// Parts of a lease: the time between two renewals, which is also that between two reads at most.
    pub const PARTS: u64 = 4;
    /// Pauses after which a claim has expired: at least two leases.
    pub const PAUSES_MAX: u32 = 8;

    /// Creates a watch for claims of this lease.
    #[must_use]
    pub const fn new(lease_us: u64) -> Self {
        Self {
            lease_us,
            seen: BTreeMap::new(),
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Notes that the row of a claimed unit was read, and the table could be written behind that. Returns true if its claim has expired.
    pub fn observe(&mut self, unit: UnitRef, version: u64, now_us: u64) -> bool {
        let first = Seen { version, since_us: now_us, last_us: now_us, pauses: 0 };
        let seen = self.seen.entry(unit).or_insert(first);
        if seen.version != version && !planted!(self, RenewalIgnored) {
            *seen = first;
        }
        let is_pause = now_us.saturating_sub(seen.last_us) > self.lease_us / Self::PARTS;
        if is_pause && !planted!(self, OutageCounted) {
            seen.since_us = now_us;
            seen.pauses = seen.pauses.saturating_add(1);
        }
        seen.last_us = now_us;
        seen.pauses >= Self::PAUSES_MAX || now_us.saturating_sub(seen.since_us) >= self.lease_us
    }

    /// Forgets a unit, which this worker has claimed.
    pub fn forget(&mut self, unit: UnitRef) {
        self.seen.remove(&unit);
    }
}
