//! Memory that may be used for transfers. Registrations with the adapter belong to the peers.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::fabric::{FabricError, Trust};
use crate::id::RegionId;
use crate::limits::REGIONS_MAX;
use crate::memory;
use crate::slab::Slab;
use crate::sys::Mapping;

/// All regions of one fabric. A deregistered region stays mapped while operations on it are in flight.
pub(super) struct Regions {
    regions: Slab<RegionId, Arc<Mapping>>,
    bytes: u64,
}

impl Regions {
    pub(super) fn new() -> Self {
        Self { regions: Slab::new(REGIONS_MAX), bytes: 0 }
    }

    pub(super) fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        let id = self.regions.next().ok_or(FabricError::Full("region"))?;
        let mapping = memory::map(memory, trust, offset, bytes)?;
        check_lock_limit(self.bytes.saturating_add(bytes))?;
        self.regions.insert(id, Arc::new(mapping));
        self.bytes += bytes;
        Ok(id)
    }

    /// Removes a region; returns whether it existed.
    pub(super) fn deregister(&mut self, region: RegionId) -> bool {
        let removed = self.regions.remove(region);
        self.bytes -= removed.as_ref().map_or(0, |mapping| mapping.bytes() as u64);
        removed.is_some()
    }

    /// Returns a region that new work may use.
    pub(super) fn get(&self, region: RegionId) -> Option<&Arc<Mapping>> {
        self.regions.get(region)
    }
}

/// Checks the limit on locked memory. The kernel counts each registration, once for each peer, so a limit below the
/// size of all regions is certainly too low.
fn check_lock_limit(bytes: u64) -> Result<(), FabricError> {
    use rustix::process::{Resource, getrlimit};
    check_limit(bytes, getrlimit(Resource::Memlock).current, has_ipc_lock_capability)
}

fn check_limit(bytes: u64, limit: Option<u64>, can_exceed: impl FnOnce() -> bool) -> Result<(), FabricError> {
    match limit {
        Some(limit) if bytes > limit && !can_exceed() => Err(FabricError::NotLocked { bytes, limit }),
        _ => Ok(()),
    }
}

/// Raises the limit on locked memory as far as permitted: root can lift it, other users can use their hard limit.
/// Failure is no error; a later registration reports the lack.
pub(super) fn raise_lock_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Memlock);
    if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let _ = setrlimit(Resource::Memlock, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}

/// Returns true if the process has `CAP_IPC_LOCK`, which lifts the limit.
fn has_ipc_lock_capability() -> bool {
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits & (1 << IPC_LOCK) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_above_the_lock_limit_names_the_limit() {
        // If this failed, a node with a low limit would start, and each get would fail later.
        assert!(check_limit(8 << 20, None, || false).is_ok());
        assert!(check_limit(8 << 20, Some(8 << 20), || false).is_ok());
        assert!(check_limit((8 << 20) + 1, Some(8 << 20), || true).is_ok());
        let refused = check_limit((8 << 20) + 1, Some(8 << 20), || false).unwrap_err();
        assert!(matches!(refused, FabricError::NotLocked { bytes: 8_388_609, limit: 8_388_608 }), "{refused:?}");
        let words = refused.to_string();
        assert!(words.contains("8388609") && words.contains("8388608") && words.contains("LimitMEMLOCK"), "{words}");
    }
}
