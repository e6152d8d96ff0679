//! Memory areas for segments. Memory is split by *audience*: a user that may read one segment of an area may read all of
//! them. So a process that may read one segment can map the whole area.

use crate::state::memory::extent_allocator::ExtentAllocator;
use ddss_core::limits::{AREA_BYTES_MAX, AREAS_MAX, BLOCK_BYTES, PAGE_BYTES};
use ddss_core::{Audience, Failure, OWN_AREA, Storage, area_of, offset_of, start_of};

#[derive(Debug)]
struct Area {
    audience: Audience,
    storage: Storage,
    blocks: ExtentAllocator,
}

/// Capacity of one kind of storage.
#[derive(Clone, Copy, Debug, Default)]
struct StoragePool {
    bytes_max: u64,
    free: u64,
    /// Free bytes that are not given away.
    reserved: u64,
}

impl StoragePool {
    fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        Self { bytes_max, free: bytes_max, reserved: 0 }
    }

    fn area(&self, audience: Audience, storage: Storage) -> Area {
        Area { audience, storage, blocks: ExtentAllocator::new(self.bytes_max.min(AREA_BYTES_MAX)) }
    }
}

/// Returns the failure for a segment that does not fit.
pub(crate) const fn no_room(storage: Storage) -> Failure {
    match storage {
        Storage::Memory => Failure::NoSpace,
        Storage::File => Failure::NoFileSpace,
    }
}

/// All areas, with one bound over memory and one over files.
#[derive(Debug)]
pub(crate) struct Areas {
    areas: Vec<Area>,
    memory: StoragePool,
    files: StoragePool,
}

impl Areas {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let memory = StoragePool::new(bytes_max);
        let own = memory.area(Audience::NONE, Storage::Memory);
        Self { areas: vec![own], memory, files: StoragePool::default() }
    }

    /// Sets the bound over files; the default is none.
    pub(crate) fn set_file_bytes(&mut self, bytes_max: u64) {
        self.files = StoragePool::new(bytes_max);
    }

    /// Sets how much of the memory may be taken; what was in use in the previous run may be more.
    pub(crate) fn set_memory_limit(&mut self, bytes: u64) {
        self.memory.reserved = self.memory.bytes_max.saturating_sub(bytes);
    }

    fn pool(&mut self, storage: Storage) -> &mut StoragePool {
        match storage {
            Storage::Memory => &mut self.memory,
            Storage::File => &mut self.files,
        }
    }

    fn rounded(bytes: u64) -> u64 {
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }

    fn area(&mut self, audience: Audience, storage: Storage) -> Option<usize> {
        if let Some(index) = self.areas.iter().position(|area| (area.audience, area.storage) == (audience, storage)) {
            return Some(index);
        }
        let fresh = self.pool(storage).area(audience, storage);
        // An area without an audience only fills a gap before an area of the daemon's previous run.
        let unused = self.areas.iter().skip(OWN_AREA + 1).position(|area| area.audience == Audience::NONE);
        if let Some(index) = unused.map(|index| index + OWN_AREA + 1) {
            self.areas[index] = fresh;
            return Some(index);
        }
        if self.areas.len() == AREAS_MAX {
            return None;
        }
        self.areas.push(fresh);
        Some(self.areas.len() - 1)
    }

    /// Allocates `bytes` in the area of an audience.
    pub(crate) fn take(&mut self, audience: Audience, storage: Storage, bytes: u64) -> Result<u64, Failure> {
        let wanted = Self::rounded(bytes);
        let StoragePool { free, reserved, .. } = *self.pool(storage);
        if wanted > free.saturating_sub(reserved) {
            return Err(no_room(storage));
        }
        let index = self.area(audience, storage).ok_or(Failure::ReaderSetsFull)?;
        let offset = self.areas[index].blocks.take(bytes).ok_or(no_room(storage))?;
        self.pool(storage).free -= wanted;
        Ok(start_of(index) | offset)
    }

    /// Allocates a run that was in use in the daemon's previous run.
    pub(crate) fn retake(&mut self, place: u64, audience: Audience, storage: Storage, bytes: u64) -> bool {
        let (index, wanted) = (area_of(place), Self::rounded(bytes));
        if index == OWN_AREA || index >= AREAS_MAX || wanted > self.pool(storage).free {
            return false;
        }
        while self.areas.len() <= index {
            // The first segment that is restored into it sets its audience.
            self.areas.push(self.memory.area(Audience::NONE, Storage::Memory));
        }
        if self.areas[index].audience == Audience::NONE {
            self.areas[index] = self.pool(storage).area(audience, storage);
        }
        let area = &mut self.areas[index];
        let fits = (area.audience, area.storage) == (audience, storage);
        let taken = fits && area.blocks.take_at(offset_of(place), bytes);
        self.pool(storage).free -= if taken { wanted } else { 0 };
        taken
    }

    /// Frees what `allocate` returned for the same `bytes`. Returns the pages at its two ends that are now free, and of
    /// which a part was free before or belonged to another segment.
    pub(crate) fn give(&mut self, place: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let (index, at) = (area_of(place), offset_of(place));
        let area = &mut self.areas[index];
        let run = area.blocks.give(at, bytes);
        let storage = area.storage;
        let pool = self.pool(storage);
        pool.free += Self::rounded(bytes);
        assert!(pool.free <= pool.bytes_max, "no more memory is freed than was taken");
        shared_pages((at, at + Self::rounded(bytes)), run).map(move |page| start_of(index) | page)
    }

    /// Returns the free bytes, in runs of any length.
    pub(crate) fn free_bytes(&self, storage: Storage) -> u64 {
        match storage {
            Storage::Memory => self.memory.free,
            Storage::File => self.files.free,
        }
    }

    /// Returns true if segments may be in files.
    pub(crate) fn allows_files(&self) -> bool {
        self.files.bytes_max > 0
    }
}

/// Returns the pages that contain a part of `freed` but not only that, and that lie in `run`.
fn shared_pages((start, end): (u64, u64), (from, to): (u64, u64)) -> impl Iterator<Item = u64> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let (first, last) = (start / PAGE * PAGE, (end - 1) / PAGE * PAGE);
    let first = (start > first || end < first + PAGE).then_some(first);
    let last = (end < last + PAGE && first != Some(last)).then_some(last);
    first.into_iter().chain(last).filter(move |&page| from <= page && page + PAGE <= to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Permissions, Principal};

    fn audience(uid: u32, mode: u16) -> Audience {
        Permissions { owner: Principal { uid, gid: uid }, mode }.audience()
    }

    #[test]
    fn different_audiences_never_share_an_area() {
        // If this broke, a process that maps what it may read would map what it may not.
        let mut areas = Areas::new(1 << 20);
        let mine = areas.take(audience(1, 0o600), Storage::Memory, 100).unwrap();
        let open = areas.take(audience(1, 0o644), Storage::Memory, 100).unwrap();
        let theirs = areas.take(audience(2, 0o600), Storage::Memory, 100).unwrap();
        let again = areas.take(audience(1, 0o620), Storage::Memory, 100).unwrap();
        assert_ne!(area_of(mine), area_of(open));
        assert_ne!(area_of(mine), area_of(theirs));
        assert_eq!(area_of(mine), area_of(again), "who may write does not matter to who may map");
    }

    #[test]
    fn memory_bound_covers_all_areas() {
        // If this broke, a node would take more memory than its configuration allows.
        let mut areas = Areas::new(8 * BLOCK_BYTES as u64);
        let first = areas.take(audience(1, 0o600), Storage::Memory, 5 * BLOCK_BYTES as u64).unwrap();
        assert_eq!(areas.take(audience(2, 0o600), Storage::Memory, 4 * BLOCK_BYTES as u64), Err(Failure::NoSpace));
        drop(areas.give(first, 5 * BLOCK_BYTES as u64));
        assert!(areas.take(audience(2, 0o600), Storage::Memory, 8 * BLOCK_BYTES as u64).is_ok());
        assert_eq!(areas.free_bytes(Storage::Memory), 0);
    }

    #[test]
    fn page_is_given_back_with_its_last_segment() {
        // If this broke, the memory of many small segments would stay with the daemon after their release, or a page
        // would be taken from a segment that lives.
        let (mut areas, page) = (Areas::new(1 << 20), PAGE_BYTES as u64);
        let mut take = |bytes| areas.take(audience(1, 0o600), Storage::Memory, bytes).unwrap();
        let (half, large, rest, whole) = (take(page / 2), take(3 * page), take(page / 2), take(page));
        let last = take(1);
        assert_eq!(areas.give(large, 3 * page).collect::<Vec<_>>(), [], "others use both pages at its ends");
        assert_eq!(areas.give(half, page / 2).collect::<Vec<_>>(), [half]);
        assert_eq!(areas.give(rest, page / 2).collect::<Vec<_>>(), [half + 3 * page]);
        assert_eq!(areas.give(whole, page).collect::<Vec<_>>(), [], "it was cleared as a whole");
        assert_eq!(areas.give(last, 1).collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn files_and_memory_have_separate_areas_and_bounds() {
        // If this broke, a segment that must survive a boot would lie in memory, or a full disk would use up the
        // memory.
        let (mut areas, mine) = (Areas::new(8 * BLOCK_BYTES as u64), audience(1, 0o600));
        assert_eq!(areas.take(mine, Storage::File, 100), Err(Failure::NoFileSpace), "nothing was said of files");
        areas.set_file_bytes(4 * BLOCK_BYTES as u64);
        let in_memory = areas.take(mine, Storage::Memory, 8 * BLOCK_BYTES as u64).unwrap();
        let in_file = areas.take(mine, Storage::File, 100).unwrap();
        assert_ne!(area_of(in_memory), area_of(in_file));
        assert_eq!(areas.take(mine, Storage::File, 4 * BLOCK_BYTES as u64), Err(Failure::NoFileSpace));
        drop(areas.give(in_file, 100));
        assert_eq!((areas.free_bytes(Storage::File), areas.free_bytes(Storage::Memory)), (4 * BLOCK_BYTES as u64, 0));
        // After a boot the file is where it was, and the area numbers before it are free.
        let mut areas = Areas::new(8 * BLOCK_BYTES as u64);
        areas.set_file_bytes(4 * BLOCK_BYTES as u64);
        assert!(areas.retake(start_of(3), mine, Storage::File, 100));
        assert!(!areas.retake(start_of(3) | 8192, mine, Storage::Memory, 100));
        assert_eq!(areas.take(mine, Storage::Memory, 100).map(area_of), Ok(1));
    }

    #[test]
    fn restored_extent_is_taken_once() {
        // If this broke, two segments of a record that was forged or torn would lie over each other.
        let mut areas = Areas::new(1 << 20);
        let place = start_of(2) | 4096;
        assert!(areas.retake(place, audience(1, 0o600), Storage::Memory, 5000));
        assert!(!areas.retake(place + 4096, audience(1, 0o600), Storage::Memory, 100), "taken already");
        assert!(!areas.retake(start_of(2) | 65536, audience(2, 0o600), Storage::Memory, 100), "another audience");
        assert!(!areas.retake(place + 1, audience(1, 0o600), Storage::Memory, 100), "no block begins there");
        assert!(!areas.retake(start_of(AREAS_MAX), audience(1, 0o600), Storage::Memory, 100));
        drop(areas.give(place, 5000));
        assert_eq!(areas.free_bytes(Storage::Memory), 1 << 20);
    }

    #[test]
    fn memory_limit_bounds_new_segments_and_restores_old_ones() {
        // If this broke, a daemon that is started again with less memory would refuse, or delete, its own segments.
        let (block, reader) = (BLOCK_BYTES as u64, audience(1, 0o600));
        let mut before = Areas::new(8 * block);
        let places: Vec<u64> = (0..8).map(|_| before.take(reader, Storage::Memory, block).unwrap()).collect();
        let mut areas = Areas::new(8 * block);
        areas.set_memory_limit(4 * block);
        assert!(places[2..].iter().all(|&place| areas.retake(place, reader, Storage::Memory, block)));
        assert_eq!(areas.take(reader, Storage::Memory, block), Err(Failure::NoSpace));
        places[2..5].iter().for_each(|&place| drop(areas.give(place, block)));
        assert!(areas.take(reader, Storage::Memory, block).is_ok(), "three of four are in use");
        assert_eq!(areas.take(reader, Storage::Memory, block), Err(Failure::NoSpace));
    }
}
