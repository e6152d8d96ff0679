//! C libraries, opened when somebody asks for them: a build needs none of them.

mod libnfs;

pub(crate) use libnfs::{NfsFile, WINDOW as NFS_WINDOW};
