//! Copies of segments in files: `export` and `import` of one segment, `cluster snapshot` and `cluster restore` of all.
//! `cluster recover` makes a cluster of what its survivors have.

mod archive;
mod command;
mod description;
pub(crate) mod files;
mod recover;
mod restore;
mod snapshot;

pub(crate) use command::run;
