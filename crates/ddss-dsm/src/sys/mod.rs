//! Memory that the fabric transfers, and views of it: the only unsafe files of the crate.

mod frames;
mod memory_file;

pub(crate) use frames::{Frames, Refused};
pub use frames::{ReadView, WriteView};
pub(crate) use memory_file::MemoryFile;
