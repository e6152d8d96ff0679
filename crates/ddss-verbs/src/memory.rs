//! Registered memory: regions, and the windows that give a peer access to them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::BorrowedFd;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use crate::fabric::{FabricError, Rights, Trust, Window};
use crate::id::RegionId;
use crate::limits::{REGIONS_MAX, WINDOWS_PER_PEER_MAX};
use crate::slab::Slab;
use crate::sys::Mapping;
use crate::terminate_code::TerminateCode;

struct Region {
    mapping: Mapping,
    /// True if only the thread that polls the fabric writes the memory.
    exclusive: bool,
    /// Operations in flight that will still touch the mapping.
    holds: u32,
    /// True after deregistration: no new operation may use the region, and the last hold unmaps it.
    deregistered: bool,
}

/// All regions of one fabric.
pub(crate) struct RegionTable(Slab<RegionId, Region>);

impl Default for RegionTable {
    fn default() -> Self {
        Self(Slab::new(REGIONS_MAX))
    }
}

impl RegionTable {
    pub(crate) fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        let id = self.0.next().ok_or(FabricError::Full("region"))?;
        let mapping = map(memory, trust, offset, bytes)?;
        let exclusive = trust == Trust::Exclusive;
        self.0.insert(id, Region { mapping, exclusive, holds: 0, deregistered: false });
        Ok(id)
    }

    pub(crate) fn deregister(&mut self, region: RegionId) {
        if let Some(found) = self.0.get_mut(region) {
            found.deregistered = true;
            self.unmap_if_unused(region);
        }
    }

    /// Returns a region that new work may use.
    pub(crate) fn usable_mapping(&self, region: RegionId) -> Option<&Mapping> {
        self.0.get(region).filter(|found| !found.deregistered).map(|found| &found.mapping)
    }

    /// Returns the mapping of a region on which the caller has a hold.
    pub(crate) fn mapping(&self, region: RegionId) -> &Mapping {
        &self.0.get(region).expect("a region with a hold stays mapped and is not reused").mapping
    }

    /// Returns true if only the polling thread writes the region.
    pub(crate) fn is_exclusive(&self, region: RegionId) -> bool {
        self.0.get(region).is_some_and(|found| found.exclusive)
    }

    /// Returns whether a range lies inside a region that new work may use. `None` if there is no such region.
    pub(crate) fn covers(&self, region: RegionId, offset: u64, bytes: u64) -> Option<bool> {
        let size = self.usable_mapping(region)?.bytes() as u64;
        Some(offset.checked_add(bytes).is_some_and(|end| end <= size))
    }

    /// Keeps a region mapped until [`release`](Self::release).
    pub(crate) fn hold(&mut self, region: RegionId) {
        self.0.get_mut(region).expect("only a usable region gets a hold").holds += 1;
    }

    pub(crate) fn release(&mut self, region: RegionId) {
        let found = self.0.get_mut(region).expect("a region with a hold has not been reused");
        found.holds = found.holds.checked_sub(1).expect("a region is released once for each hold");
        self.unmap_if_unused(region);
    }

    /// Returns the number of mappings, including deregistered regions with holds.
    pub(crate) fn mapped_count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of holds that were not released.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn hold_count(&self) -> u32 {
        self.0.iter().map(|region| region.holds).sum()
    }

    fn unmap_if_unused(&mut self, region: RegionId) {
        if self.0.get(region).is_some_and(|found| found.deregistered && found.holds == 0) {
            self.0.remove(region);
        }
    }
}

/// Maps memory that stays mapped: the range is inside of it, and no process can truncate it.
pub(crate) fn map(memory: BorrowedFd<'_>, trust: Trust, offset: u64, bytes: u64) -> Result<Mapping, FabricError> {
    let page = rustix::param::page_size() as u64;
    if !offset.is_multiple_of(page) {
        return Err(FabricError::Unaligned(offset));
    }
    let end = offset.checked_add(bytes).ok_or(FabricError::OutOfBounds { offset, bytes })?;
    let size = fstat(memory).map_err(|error| FabricError::System("query the memory file", error.into()))?.st_size;
    if bytes == 0 || bytes > isize::MAX as u64 || end > size as u64 {
        return Err(FabricError::OutOfBounds { offset, bytes });
    }
    if trust == Trust::Sealed {
        let seals = fcntl_get_seals(memory).map_err(|_| FabricError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(FabricError::NotSealed);
        }
    }
    Mapping::new(memory, offset, bytes as usize).map_err(|error| FabricError::System("map the memory", error))
}

/// Access that a key grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) region: RegionId,
    offset: u64,
    bytes: u64,
    rights: Rights,
}

/// Reason to refuse a peer's access, before a protocol layer picks its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessDenied {
    Key,
    Bounds,
    Rights,
    Wrap,
}

impl AccessDenied {
    /// Returns the DDP code, for tagged segments.
    pub(crate) fn ddp(self) -> TerminateCode {
        match self {
            AccessDenied::Key => TerminateCode::DDP_KEY,
            AccessDenied::Bounds => TerminateCode::DDP_BOUNDS,
            AccessDenied::Rights => TerminateCode::RDMAP_RIGHTS,
            AccessDenied::Wrap => TerminateCode::DDP_WRAP,
        }
    }

    /// Returns the RDMAP code, for read and atomic requests.
    pub(crate) fn rdmap(self) -> TerminateCode {
        match self {
            AccessDenied::Key => TerminateCode::RDMAP_KEY,
            AccessDenied::Bounds => TerminateCode::RDMAP_BOUNDS,
            AccessDenied::Rights => TerminateCode::RDMAP_RIGHTS,
            AccessDenied::Wrap => TerminateCode::RDMAP_WRAP,
        }
    }
}

/// Hasher for keys. Keys are random already; the multiplication spreads them over the high bits of the table's hash.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Windows that one peer may use.
#[derive(Default)]
pub(crate) struct Windows {
    grants: HashMap<u32, Grant, BuildHasherDefault<KeyHasher>>,
}

impl Windows {
    pub(crate) fn expose(
        &mut self,
        memory: &RegionTable,
        keys: &mut KeySource,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let covered = memory.covers(region, offset, bytes).ok_or(FabricError::UnknownRegion(region))?;
        if !covered {
            return Err(FabricError::OutOfBounds { offset, bytes });
        }
        if self.grants.len() >= WINDOWS_PER_PEER_MAX {
            self.grants.retain(|_, grant| memory.usable_mapping(grant.region).is_some());
        }
        if self.grants.len() >= WINDOWS_PER_PEER_MAX {
            return Err(FabricError::Full("window"));
        }
        let mut key = keys.draw()?;
        while key == 0 || self.grants.contains_key(&key) {
            key = keys.draw()?;
        }
        self.grants.insert(key, Grant { region, offset, bytes, rights });
        Ok(Window { key, base: 0, bytes })
    }

    pub(crate) fn withdraw(&mut self, key: u32) -> bool {
        self.grants.remove(&key).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.grants.clear();
    }

    /// Translates a peer's address to a region and an offset, both checked. A window on a deregistered region grants
    /// nothing.
    pub(crate) fn translate(
        &self,
        memory: &RegionTable,
        key: u32,
        address: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<(RegionId, u64), AccessDenied> {
        let grant = self.grants.get(&key).ok_or(AccessDenied::Key)?;
        let end = address.checked_add(bytes).ok_or(AccessDenied::Wrap)?;
        if !grant.rights.contains(rights) {
            return Err(AccessDenied::Rights);
        }
        if end > grant.bytes {
            return Err(AccessDenied::Bounds);
        }
        if memory.usable_mapping(grant.region).is_none() {
            return Err(AccessDenied::Key);
        }
        Ok((grant.region, grant.offset + address))
    }
}

/// Source of random keys, drawn from the system in batches.
#[derive(Default)]
pub(crate) struct KeySource {
    batch: Vec<u32>,
    /// State of the deterministic generator, in a simulation.
    seeded: Option<SplitMix64>,
}

impl KeySource {
    /// Returns a source that yields the same keys in each run.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { batch: Vec::new(), seeded: Some(SplitMix64::seed_from_u64(seed)) }
    }

    pub(crate) fn draw(&mut self) -> Result<u32, FabricError> {
        if let Some(seeded) = &mut self.seeded {
            return Ok(seeded.next_u64() as u32);
        }
        if self.batch.is_empty() {
            let mut bytes = [0; 256];
            getrandom::fill(&mut bytes)
                .map_err(|error| FabricError::System("draw a random key", std::io::Error::other(error)))?;
            let (words, _) = bytes.as_chunks::<4>();
            self.batch.extend(words.iter().map(|word| u32::from_ne_bytes(*word)));
        }
        Ok(self.batch.pop().expect("the batch was just filled"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_unpredictable() {
        // If this failed, a node could guess the key of another node's window that was not opened to it.
        let (mut one, mut other) = (KeySource::default(), KeySource::default());
        let batch: Vec<u32> = (0..2048).flat_map(|_| [one.draw().unwrap(), other.draw().unwrap()]).collect();
        let different: HashSet<u32> = batch.iter().copied().collect();
        // Of 4,096 random keys two are equal once in 512 runs, and eight never.
        assert!(different.len() > batch.len() - 8, "{} different keys of {}", different.len(), batch.len());
        let steps: HashSet<u32> = batch.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
        assert!(steps.len() > batch.len() - 9, "{} different steps: keys are counted", steps.len());
        for bit in 0..32 {
            let ones = batch.iter().filter(|key| *key >> bit & 1 == 1).count();
            // Sixteen standard deviations.
            assert!((1536..2560).contains(&ones), "bit {bit} is set in {ones} of {}", batch.len());
        }
    }
}
