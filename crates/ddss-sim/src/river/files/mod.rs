//! Parts that two nodes have, read from both, with file servers that are killed or stopped and copies that are damaged.
//!
//! `plan` says what happens. `disk` needs time for reads and seeks. `world` holds readers, servers and connections. `checker`
//! judges each chunk. `run` executes events.

mod checker;
mod disk;
mod plan;
mod run;
mod world;

pub(crate) use plan::{CopyPlan, DiskPlan, FilesPlan, random_plan};
pub(crate) use run::run_files;
pub(crate) use world::FileCounts;
