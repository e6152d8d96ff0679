//! Page stores: numbered pages of 8 KiB behind one trait, through which an index reads and writes.
//!
//! [`DdssPages`] keeps them in one segment, [`NfsPages`] in one file on a network file system, [`RedisPages`] under one
//! key each. An index that is written against [`PageStore`] works on each of them.

mod ddss;
mod nfs;
mod redis;
mod store;
mod timed;

pub use crate::page::{PAGE_BYTES, Page, PageId, new_page};
pub use ddss::DdssPages;
pub use nfs::NfsPages;
pub use redis::{RedisClient, RedisPages};
pub use store::{Change, PageStore};
pub use timed::Timed;
