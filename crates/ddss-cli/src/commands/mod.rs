//! The commands, a file for each subject.

pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod counters;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod locks;
pub(crate) mod offline;
pub(crate) mod segments;
pub(crate) mod status;
pub(crate) mod trace;
