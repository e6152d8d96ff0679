//! Segments in memory and in files: areas, registry, undo log, recovery.

pub(crate) mod area_access;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod memory;
pub(crate) mod offline;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod state_dir;
pub(crate) mod undo_log;
