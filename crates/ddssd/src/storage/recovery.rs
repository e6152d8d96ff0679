//! Recovery of the last daemon's segments: every acknowledged put is complete, and every other put has had no effect.
//!
//! Volatile state is gone: locks, lock queues, windows, and memory without an owner.

use super::memory::NodeMemory;
use crate::storage::pool_error::PoolError;
use ddss_admin::storage::{RegistryEntry, area_path};
use ddss_core::limits::{AREAS_MAX, BLOCK_BYTES, VALUE_BYTES_MAX};
use ddss_core::{
    Audience, Failure, Header, LockToken, OWN_AREA, Record, Storage, Timestamp, Version, area_of, offset_of,
};
use ddss_engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecoveryReport {
    pub(crate) segments: usize,
    pub(crate) bytes: u64,
    /// Unfinished puts that were undone.
    pub(crate) undone: usize,
    /// Areas in use, and the audience of each.
    pub(crate) areas: BTreeMap<usize, (Audience, Storage)>,
}

/// Restores the segments. Changes nothing before everything has been checked.
pub(crate) fn restore(
    folder: &Path,
    memory: &mut NodeMemory,
    engine: &mut Engine,
) -> Result<RecoveryReport, PoolError> {
    let broken = |what: String| PoolError::Broken { path: folder.to_owned(), what };
    let entries = memory.entries();
    check_lengths(memory, &entries)?;
    let mut found = RecoveryReport::default();
    let mut live = BTreeSet::new();
    let mut taken: Vec<Vec<(u64, u64)>> = vec![Vec::new(); AREAS_MAX];
    for &(storage, entry) in &entries {
        match entry {
            RegistryEntry::Live(record) => {
                if record.spec.storage != storage {
                    return Err(broken(format!(
                        "{:?} has its record in the registry of another storage kind",
                        record.name
                    )));
                }
                let bytes = restore_segment(memory, engine, &record, &mut found).map_err(&broken)?;
                taken[area_of(record.at)].push((offset_of(record.at), bytes));
                live.insert(record.segment.index());
                found.segments += 1;
                found.bytes += record.spec.bytes;
                found.areas.insert(area_of(record.at), (record.permissions.audience(), storage));
            }
            // An index may have been used in memory and in files, one after the other.
            RegistryEntry::Free(_) => {}
            RegistryEntry::Broken => return Err(broken("its registry has an invalid record".to_owned())),
        }
    }
    for &(_, entry) in &entries {
        if let RegistryEntry::Free(last) = entry
            && !live.contains(&last.index())
        {
            engine.restore_free(last);
        }
    }
    memory
        .clear_undo(0, VALUE_BYTES_MAX as u64)
        .map_err(|source| PoolError::File { path: folder.to_owned(), source })?;
    let floor = memory.registry.floor();
    engine.restore_clock(floor);
    for (area, taken) in taken.iter_mut().enumerate().skip(OWN_AREA + 1) {
        clear_unused(memory, area, taken)
            .map_err(|source| PoolError::File { path: area_path(folder, area), source })?;
    }
    Ok(found)
}

/// Refuses a truncated file: opening it would restore its length, with zeroes in the place of data.
fn check_lengths(memory: &NodeMemory, entries: &[(Storage, RegistryEntry)]) -> Result<(), PoolError> {
    let mut lengths = BTreeMap::new();
    for (storage, entry) in entries {
        let RegistryEntry::Live(record) = entry else { continue };
        let path = memory.area_file(area_of(record.at), *storage).0;
        let measure = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        let found = *lengths.entry(path.clone()).or_insert_with_key(measure);
        let bytes = record.spec.pool_bytes();
        if offset_of(record.at).saturating_add(bytes) > found {
            let name = record.name.as_str();
            let what =
                format!("the file is truncated to {found} bytes and {name:?} lies behind them: restore the file");
            return Err(PoolError::Broken { path, what });
        }
    }
    Ok(())
}

fn restore_segment(
    memory: &mut NodeMemory,
    engine: &mut Engine,
    record: &Record,
    found: &mut RecoveryReport,
) -> Result<u64, String> {
    let name = &record.name;
    let history_len = record.spec.history_len();
    let bytes = record.spec.pool_bytes().next_multiple_of(BLOCK_BYTES as u64);
    let end = offset_of(record.at).checked_add(bytes);
    if !(OWN_AREA + 1..AREAS_MAX).contains(&area_of(record.at)) {
        return Err(format!("{name:?} lies outside of every area"));
    }
    let other = memory.open_area_at(area_of(record.at)).is_some_and(|(storage, _)| storage != record.spec.storage);
    if other {
        return Err(format!("{name:?} lies in an area that is both in memory and in a file"));
    }
    let area = memory
        .open_area(area_of(record.at), record.spec.storage)
        .map_err(|error| format!("{name:?} cannot be opened: {error}"))?;
    if end.is_none_or(|end| end > area.len() as u64) {
        return Err(format!("{name:?} lies outside of its area"));
    }
    let before = memory.header(record.at);
    if (before.segment, before.bytes) != (record.known_as.to_bits(), record.spec.bytes) {
        return Err(format!("the header of {name:?} contradicts the registry"));
    }
    if !memory.undo_commit(record) {
        return Err(format!("{name:?} was being written, and the undo log does not have its old bytes"));
    }
    memory.set_lock_holder(record.at, LockToken::default());
    let header = memory.header(record.at);
    if let Some(line) = Header::history_offset(record.spec.bytes, history_len, Version(header.state >> 1)) {
        // The daemon may have died between the commit and its history copy.
        memory.store_version(record.at, record.at + line, &header);
    }
    found.undone += usize::from(header.state != before.state) + usize::from(memory.undo_record(record));
    let (version, timestamp) = (Version(header.state >> 1), Timestamp(header.timestamp));
    let restored = engine.restore(record, version, timestamp);
    restored.map_err(|failure| match failure {
        Failure::NoSpace if record.spec.storage == Storage::File => {
            format!("{name:?} and the other segments in files need a larger --file-bytes")
        }
        Failure::NoSpace => format!("{name:?} and the other segments need a larger --pool-bytes"),
        _ => format!("{name:?} overlaps another segment"),
    })?;
    Ok(bytes)
}

/// Zeroes the memory that no segment uses, for the next segment.
fn clear_unused(memory: &NodeMemory, area: usize, taken: &mut [(u64, u64)]) -> Result<(), ddss_ipc::MemoryError> {
    let known = memory.open_area_at(area).filter(|_| !taken.is_empty());
    for storage in [Storage::Memory, Storage::File] {
        if known.is_none_or(|(used, _)| used != storage) {
            // No client that has it mapped could still find anything in it.
            let _ = std::fs::remove_file(memory.area_file(area, storage).0);
        }
    }
    let Some((_, memory)) = known else { return Ok(()) };
    taken.sort_unstable();
    let mut from = 0;
    for &(start, bytes) in taken.iter().chain([&(memory.len() as u64, 0)]) {
        if start > from {
            memory.clear(from as usize, (start - from) as usize)?;
        }
        from = start + bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Name, NodeId, Permissions, Principal, Range, SegmentId, Shard, Spec};
    use ddss_engine::EngineConfig;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const BYTES: usize = 10_000;
    const POOL: u64 = 1 << 20;
    /// A place in the first area for segments.
    const AT: u64 = 1 << 48 | 8192;

    fn record() -> Record {
        Record {
            segment: SegmentId::new(NodeId(1), 3, 9),
            known_as: SegmentId::new(NodeId(1), 3, 9),
            epoch: 0,
            at: AT,
            name: Name::new("s").unwrap(),
            spec: Spec::new(BYTES as u64),
            permissions: Permissions { owner: Principal { uid: 1, gid: 1 }, mode: 0o600 },
        }
    }

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ddssd-recovery-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn put(memory: &NodeMemory, version: u64, byte: u8, written: usize) {
        let stamp = (Version(version), Timestamp(100 + version));
        let ranges = [Range { offset: 8, bytes: 5000 }, Range { offset: 9000, bytes: 1000 }];
        memory.commit(record().at, stamp, &ranges, |area, data| {
            area.write(data + 8, &vec![byte; written.min(5000)]).unwrap();
            assert_eq!(written, 6000, "the daemon dies here");
            area.write(data + 9000, &[byte; 1000]).unwrap();
        });
    }

    fn open(folder: &Path) -> (NodeMemory, Engine) {
        let engine = Engine::new(&EngineConfig {
            node: NodeId(1),
            shard: Shard::ONLY,
            pool_bytes: POOL,
            peers: Vec::new(),
            first_generation: 0,
            reads_overlap: true,
        });
        (NodeMemory::open(folder, NodeId(1), POOL).unwrap(), engine)
    }

    fn formatted(folder: &Path) -> NodeMemory {
        let (mut memory, _) = open(folder);
        let header =
            Header { timestamp: 1, segment: record().segment.to_bits(), bytes: BYTES as u64, ..Header::default() };
        memory.format(&record(), &header, Header::bytes_with(header.bytes, 0)).unwrap();
        memory
    }

    fn bytes(memory: &NodeMemory) -> Vec<u8> {
        let (area, at) = memory.area_at(record().at);
        let mut bytes = vec![0; BYTES];
        area.read(at + Header::DATA_OFFSET as usize, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn unfinished_commit_is_undone_after_crash() {
        // If this broke, a crash of the daemon would leave half of a put in the place of an acknowledged one.
        for written in [0, 1, 2500, 5000] {
            let folder = folder("half");
            let memory = formatted(&folder);
            put(&memory, 1, 7, 6000);
            memory.set_lock_holder(record().at, LockToken(7));
            let before = (bytes(&memory), memory.header(record().at));
            catch_unwind(AssertUnwindSafe(|| put(&memory, 2, 8, written))).unwrap_err();
            assert_eq!(memory.header(record().at).state & 1, 1);
            drop(memory);
            let (mut memory, mut engine) = open(&folder);
            let found = restore(&folder, &mut memory, &mut engine).unwrap();
            let areas = BTreeMap::from([(1, (record().permissions.audience(), Storage::Memory))]);
            assert_eq!(found, RecoveryReport { segments: 1, bytes: BYTES as u64, undone: 1, areas });
            assert_eq!(bytes(&memory), before.0);
            assert_eq!(memory.header(record().at), Header { locked: 0, ..before.1 });
            // Later puts work.
            put(&memory, 2, 9, 6000);
            assert_eq!(bytes(&memory)[8], 9);
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn unfinished_row_commit_is_undone_after_crash() {
        // If this broke, a crash of the daemon would leave half of a put in one row of a table.
        let table = Record { spec: Spec::table(40, 5000), ..record() };
        let layout = table.spec.layout().unwrap();
        let commit = |memory: &NodeMemory, row: u64, version: u64, byte: u8, dies: bool| {
            let (first, _) = layout.bounds(row);
            let ranges = [Range { offset: first + 8, bytes: 3000 }, Range { offset: first + 4000, bytes: 1000 }];
            let stamp = (Version(version), Timestamp(100 + version));
            memory.commit_at(layout.record(row).of_segment(AT), stamp, &ranges, |area, data| {
                area.write(data + ranges[0].offset as usize, &[byte; 3000]).unwrap();
                assert!(!dies, "the daemon dies here");
                area.write(data + ranges[1].offset as usize, &[byte; 1000]).unwrap();
            });
        };
        let row = |memory: &NodeMemory, row: u64| {
            let place = layout.record(row).of_segment(AT);
            let (area, data) = memory.area_at(place.data);
            let mut bytes = vec![0; 5000];
            area.read(data + layout.bounds(row).0 as usize, &mut bytes).unwrap();
            (memory.record_header(place.header), bytes)
        };
        for victim in [0, 39] {
            let folder = folder(&format!("row-{victim}"));
            let (mut memory, _) = open(&folder);
            let (id, bytes) = (table.segment.to_bits(), table.spec.bytes);
            let header = Header { timestamp: 1, segment: id, bytes, ..Header::default() };
            memory.format(&table, &header, table.spec.pool_bytes()).unwrap();
            for (index, byte) in [(0, 7), (39, 8), (38, 9)] {
                commit(&memory, index, 1, byte, false);
            }
            let before: Vec<_> = (0..40).map(|index| row(&memory, index)).collect();
            catch_unwind(AssertUnwindSafe(|| commit(&memory, victim, 2, 3, true))).unwrap_err();
            assert_ne!(row(&memory, victim), before[victim as usize]);
            drop(memory);
            let (mut memory, mut engine) = open(&folder);
            assert_eq!(restore(&folder, &mut memory, &mut engine).unwrap().undone, 1);
            assert!((0..40).all(|index| row(&memory, index) == before[index as usize]), "row {victim}");
            // Later puts work.
            commit(&memory, victim, 2, 5, false);
            assert_eq!(row(&memory, victim).0.0, Header::committed(Version(2)));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn finished_commit_survives_crash() {
        // If this broke, a crash would take back a put that clients have read.
        let folder = folder("whole");
        let memory = formatted(&folder);
        put(&memory, 1, 7, 6000);
        drop(memory);
        let (mut memory, mut engine) = open(&folder);
        assert_eq!(restore(&folder, &mut memory, &mut engine).unwrap().undone, 0);
        assert_eq!(bytes(&memory)[8], 7);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unpublished_segment_leaves_no_bytes() {
        // If this broke, the next segment in that place would show the bytes of a dead daemon.
        let folder = folder("unwritten");
        let memory = formatted(&folder);
        let (area, at) = memory.area_at(record().at);
        area.write(at + 100, b"secret").unwrap();
        memory.registry.remove(record().segment);
        drop(memory);
        let (mut memory, mut engine) = open(&folder);
        assert_eq!(restore(&folder, &mut memory, &mut engine).unwrap(), RecoveryReport::default());
        assert!(bytes(&formatted(&folder)).iter().all(|&byte| byte == 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn inconsistent_memory_is_refused_and_unchanged() {
        // If this broke, a daemon would serve bytes that belong to another segment.
        type Break = fn(&NodeMemory);
        let breaks: [(Break, &str); 3] = [
            (
                |memory| memory.area_at(AT).0.store(8192 + 16, 77, std::sync::atomic::Ordering::Relaxed).unwrap(),
                "header",
            ),
            (
                |memory| memory.area_at(AT).0.store(8192, 77, std::sync::atomic::Ordering::Relaxed).unwrap(),
                "being written",
            ),
            (|memory| memory.registry.write(&Record { at: AT + 4096, ..record() }).unwrap(), "header"),
        ];
        for (break_it, why) in breaks {
            let folder = folder("broken");
            let memory = formatted(&folder);
            break_it(&memory);
            drop(memory);
            let (mut memory, mut engine) = open(&folder);
            let error = restore(&folder, &mut memory, &mut engine).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("--discard"), "{error}");
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}
