//! What a daemon that does not run left in its memory: which segments, and what their headers say. Looked at and not
//! touched, for the commands of operators.

use super::files::Files;
use super::memory::NodeMemory;
use super::registry::{Entry, Registry};
use super::state_dir::plane_folder;
use ddss_core::engine::{OWN_AREA, area_of, offset_of};
use ddss_core::limits::{AREAS_MAX, PLANES_MAX};
use ddss_core::{Header, NodeId, Record};
use ddss_ipc::{MemoryError, SharedMemory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Why what was left cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("no daemon left segments in {}", path.display())]
pub struct OfflineError {
    path: PathBuf,
    #[source]
    source: MemoryError,
}

/// What a daemon left.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct OfflineNode {
    /// Which node it was.
    pub node: NodeId,
    /// Its segments, in the order of their names.
    pub segments: Vec<OfflineSegment>,
}

/// A segment that was left.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct OfflineSegment {
    /// What was written down of it.
    pub record: Record,
    /// Its header. An odd state is a put that had begun: the next daemon undoes it. `None` if there is none where it
    /// should be: then the next daemon will not start with this memory.
    pub header: Option<Header>,
}

impl OfflineNode {
    /// Looks into a daemon's memory folder, and at what it has in files below its state folder.
    pub fn look_everywhere(memory_folder: &Path, state_folder: &Path) -> Result<Self, OfflineError> {
        let in_files = Self::look(&Files::folder(state_folder, 0));
        match (Self::look(memory_folder), in_files) {
            (Ok(mut all), Ok(in_files)) if all.node == in_files.node => {
                all.segments.extend(in_files.segments);
                all.segments.sort_by(|one, other| one.record.name.as_str().cmp(other.record.name.as_str()));
                Ok(all)
            }
            (Err(_), Ok(in_files)) => Ok(in_files),
            (in_memory, _) => in_memory,
        }
    }

    /// Looks into a daemon's memory folder. While a daemon runs there it is to be asked instead: what it is just writing
    /// down may be seen in part.
    pub fn look(memory_folder: &Path) -> Result<Self, OfflineError> {
        let others = (1..PLANES_MAX as u8).map(|plane| plane_folder(memory_folder, plane));
        let mut others = others.filter_map(|folder| Self::look_at_plane(&folder).ok());
        // What is in files may be of any of the planes.
        let mut all = Self::look_at_plane(memory_folder).or_else(|none| others.next().ok_or(none))?;
        others.for_each(|other| all.segments.extend(other.segments));
        all.segments.sort_by(|one, other| one.record.name.as_str().cmp(other.record.name.as_str()));
        Ok(all)
    }

    fn look_at_plane(memory_folder: &Path) -> Result<Self, OfflineError> {
        let path = memory_folder.join(NodeMemory::REGISTER_NAME);
        let register = Registry::open_existing(&path).map_err(|source| OfflineError { path, source })?;
        let mut records: Vec<Record> = register
            .entries()
            .filter_map(|entry| if let Entry::Live(record) = entry { Some(record) } else { None })
            .collect();
        // One that was being written down again stands there whole, too, and is the one that counts.
        if let Some(intent) = register.intent() {
            records.retain(|record| record.segment.index() != intent.segment.index());
            records.push(intent);
        }
        let mut areas = BTreeMap::new();
        let segments = records.into_iter().map(|record| {
            let area = areas.entry(area_of(record.at)).or_insert_with_key(|&area| open_area(memory_folder, area));
            let header = area.as_ref().and_then(|area| header_at(area, &record));
            OfflineSegment { record, header }
        });
        Ok(Self { node: register.node(), segments: segments.collect() })
    }
}

fn open_area(folder: &Path, area: usize) -> Option<SharedMemory> {
    let known = (OWN_AREA + 1..AREAS_MAX).contains(&area);
    known.then(|| SharedMemory::open_file(&NodeMemory::area_path(folder, area)).ok())?
}

/// The header where the record says, if it is that segment's.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Node};

    #[test]
    fn what_a_daemon_left_is_seen_and_left_alone() {
        // If this broke, an operator would not know what a dead daemon's memory holds, or would change it by looking.
        let folder = std::env::temp_dir().join(format!("ddssd-remains-{}", std::process::id()));
        let mut config = Config::single(&folder);
        (config.discard, config.pool_bytes) = (false, 1 << 20);
        let memory = config.memory_folder.clone();
        Node::start(config).unwrap().stop().unwrap();
        let empty = OfflineNode::look(&memory).unwrap();
        assert_eq!((empty.node, empty.segments.len()), (NodeId(1), 0));
        std::fs::remove_dir_all(&folder).unwrap();
        let told = OfflineNode::look(&memory).unwrap_err().to_string();
        assert!(told.contains("no daemon left segments in"), "{told}");
    }
}
