//! Stored segments of a daemon: where its files are, and what they hold.
//!
//! `layout.rs` names the files, `registry.rs` is the persistent table of segments, and `offline.rs` reads the segments
//! of a daemon that does not run.

mod last_command;
mod layout;
mod memory_limit;
mod offline;
mod registry;

pub use last_command::{last_command, record_command};
pub use layout::{
    FOUND_FILE_NAME, JOIN_FILE_NAME, STATE_FOLDER_OF_ROOT, STATE_VARIABLE, area_path, default_state_folder,
    file_folder, shard_folder,
};
pub use memory_limit::MemoryLimit;
pub use offline::{OfflineError, OfflineNode, OfflineSegment};
pub use registry::{Head, Registry, RegistryEntry, Unusable};
