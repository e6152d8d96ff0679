//! Failure to open the memory of a node.

use super::state_dir::StateDirError;
use ddss_admin::Release;
use ddss_core::NodeId;
use ddss_ipc::MemoryError;
use std::path::{Path, PathBuf};

/// Failure to open the memory of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Creating a file of shared memory failed.
    #[error("cannot make shared memory at {}: is there room (df), and may this user write there?", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: MemoryError,
    },
    /// Creating anonymous memory failed.
    #[error("cannot make {bytes} bytes of shared memory")]
    Anonymous {
        /// Requested size.
        bytes: usize,
        /// Cause.
        #[source]
        source: MemoryError,
    },
    /// The segments were written by another release.
    #[error(
        "the segments in {} have format {found}{by}, and this is ddssd {Release}: start the release that wrote them \
         (`ddss export` and `ddss import` carry segments over), or discard them with --discard",
        path.display()
    )]
    OtherRelease {
        /// Folder of the segments.
        path: PathBuf,
        /// Format that was found.
        found: u64,
        /// Release that wrote them, as a part of the sentence; empty if unknown.
        by: String,
    },
    /// The registry file is not a registry.
    #[error(
        "{} is not a segment registry of ddssd: give another --memory-dir or --state-dir, or restore the file, or discard \
         the segments with --discard", path.display()
    )]
    NotARegistry {
        /// Path of the file.
        path: PathBuf,
    },
    /// The segments are inconsistent.
    #[error("cannot restore the segments in {}: {what}; or discard them with --discard", path.display())]
    Broken {
        /// Folder of the segments.
        path: PathBuf,
        /// Description of the inconsistency.
        what: String,
    },
    /// The segments are distributed over another number of shards.
    #[error(
        "the {segments} segments in {} are distributed over {before} progress threads: start with --progress-threads {before}, \
         or release them before you change the number, or discard them with --discard", path.display()
    )]
    OtherShardCount {
        /// Folder of the segments.
        path: PathBuf,
        /// Number of shards that fits.
        before: u8,
        /// Number of segments.
        segments: usize,
    },
    /// File segments may hold a mix of several puts.
    #[error(
        "the machine ended before the daemon with segments in {} did: their bytes may be a mix of several puts. \
         --unclean-files keep uses them nevertheless, --unclean-files drop discards them", path.display()
    )]
    Unclean {
        /// Folder of the segments.
        path: PathBuf,
    },
    /// The folder of the file segments is unusable.
    #[error(transparent)]
    Folder(StateDirError),
    /// The memory belongs to another node.
    #[error(
        "the memory in {} belongs to {node}: give this daemon that number, or another --memory-dir, or discard the segments \
         with --discard", path.display()
    )]
    OtherNode {
        /// Folder of the memory.
        path: PathBuf,
        /// Owner of the memory.
        node: NodeId,
    },
}

impl PoolError {
    pub(crate) fn other_release(folder: &Path, found: u64, release: String) -> Self {
        let by = if release.is_empty() { release } else { format!(", written by ddssd {release}") };
        Self::OtherRelease { path: folder.to_owned(), found, by }
    }
}
