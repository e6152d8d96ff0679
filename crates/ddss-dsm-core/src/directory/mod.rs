//! Rows of the table `dsm/NAME`, in which DDSS names a space.

mod rows;

pub use rows::{DirectoryError, ROW_BYTES, RankRow, SpaceRow};
