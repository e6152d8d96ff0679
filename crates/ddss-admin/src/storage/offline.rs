//! Read-only inspection of the segments of a daemon that does not run, for operators' commands.

use super::layout::{area_path, file_folder, shard_folder};
use super::registry::{Registry, RegistryEntry};
use ddss_core::limits::{AREAS_MAX, SHARDS_MAX};
use ddss_core::{Header, NodeId, OWN_AREA, Record, area_of, offset_of};
use ddss_ipc::{MemoryError, SharedMemory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Error: the directory holds no readable segments.
#[derive(Debug, thiserror::Error)]
#[error("no segments of a daemon in {}", path.display())]
pub struct OfflineError {
    path: PathBuf,
    #[source]
    source: MemoryError,
}

/// Segments of a stopped daemon.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct OfflineNode {
    /// Node number of the daemon.
    pub node: NodeId,
    /// Segments in the order of their names.
    pub segments: Vec<OfflineSegment>,
}

/// A segment of a stopped daemon.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct OfflineSegment {
    /// Registry record.
    pub record: Record,
    /// Header. An odd state is an unfinished put, which the next daemon undoes. `None` if the header is missing: the
    /// next daemon will refuse this memory.
    pub header: Option<Header>,
}

impl OfflineNode {
    /// Reads the memory directory of a daemon, and the file segments below its state directory.
    pub fn read_all(memory_folder: &Path, state_folder: &Path) -> Result<Self, OfflineError> {
        let in_files = Self::read_memory(&file_folder(state_folder, 0));
        match (Self::read_memory(memory_folder), in_files) {
            (Ok(mut all), Ok(in_files)) if all.node == in_files.node => {
                all.segments.extend(in_files.segments);
                all.segments.sort_by(|one, other| one.record.name.as_str().cmp(other.record.name.as_str()));
                Ok(all)
            }
            (Err(_), Ok(in_files)) => Ok(in_files),
            (in_memory, _) => in_memory,
        }
    }

    /// Reads the memory directory of a daemon. Ask a running daemon instead: a record that it is writing may be seen in
    /// part.
    pub fn read_memory(memory_folder: &Path) -> Result<Self, OfflineError> {
        let others = (1..SHARDS_MAX as u8).map(|shard| shard_folder(memory_folder, shard));
        let mut others = others.filter_map(|folder| Self::read_shard(&folder).ok());
        // File segments may exist in any of the shards.
        let mut all = Self::read_shard(memory_folder).or_else(|none| others.next().ok_or(none))?;
        others.for_each(|other| all.segments.extend(other.segments));
        all.segments.sort_by(|one, other| one.record.name.as_str().cmp(other.record.name.as_str()));
        Ok(all)
    }

    fn read_shard(memory_folder: &Path) -> Result<Self, OfflineError> {
        let path = memory_folder.join(Registry::FILE_NAME);
        let registry = Registry::open_existing(&path).map_err(|source| OfflineError { path, source })?;
        let mut records: Vec<Record> = registry
            .entries()
            .filter_map(|entry| if let RegistryEntry::Live(record) = entry { Some(record) } else { None })
            .collect();
        // A record that was being rewritten is complete in the intent, which takes precedence.
        if let Some(intent) = registry.intent() {
            records.retain(|record| record.segment.index() != intent.segment.index());
            records.push(intent);
        }
        let mut areas = BTreeMap::new();
        let segments = records.into_iter().map(|record| {
            let area = areas.entry(area_of(record.at)).or_insert_with_key(|&area| open_area(memory_folder, area));
            let header = area.as_ref().and_then(|area| header_at(area, &record));
            OfflineSegment { record, header }
        });
        Ok(Self { node: registry.node(), segments: segments.collect() })
    }
}

fn open_area(folder: &Path, area: usize) -> Option<SharedMemory> {
    let known = (OWN_AREA + 1..AREAS_MAX).contains(&area);
    known.then(|| SharedMemory::open_file(&area_path(folder, area)).ok())?
}

/// Returns the header at the record's place, if it belongs to that segment.
fn header_at(area: &SharedMemory, record: &Record) -> Option<Header> {
    let line = offset_of(record.at);
    let word = |offset: u64| area.load(usize::try_from(line.checked_add(offset)?).ok()?, Ordering::Acquire).ok();
    let header = Header {
        state: word(Header::STATE_OFFSET)?,
        timestamp: word(Header::TIMESTAMP_OFFSET)?,
        segment: word(Header::SEGMENT_OFFSET)?,
        bytes: word(Header::BYTES_OFFSET)?,
        locked: word(Header::LOCKED_OFFSET)?,
    };
    (header.segment == record.segment.to_bits()).then_some(header)
}
