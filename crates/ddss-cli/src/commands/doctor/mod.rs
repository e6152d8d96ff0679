//! The command `doctor`: checks this machine for a node and its clients, and the cluster, with advice for each problem.

mod cluster;
mod finding;
mod machine;
mod memory_file_systems;

pub(crate) use machine::run;
