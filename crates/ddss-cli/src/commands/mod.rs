//! The commands of `ddss`, one file for each subject. `segments`, `data`, `map`, `backup` and `locks` act on segments; `status`, `clients`,
//! `counters` and `trace` read the daemon's status page; `offline` inspects a node without a daemon; `programs` starts those of others.

pub(crate) mod backup;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod counters;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod locks;
pub(crate) mod map;
pub(crate) mod offline;
pub(crate) mod programs;
pub(crate) mod segment_query;
pub(crate) mod segments;
pub(crate) mod status;
pub(crate) mod trace;
