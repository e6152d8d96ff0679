//! Bindings of C libraries that are opened at run time: a build needs none of them.

mod libnfs;

pub(crate) use libnfs::{NfsFile, WINDOW as NFS_WINDOW};
