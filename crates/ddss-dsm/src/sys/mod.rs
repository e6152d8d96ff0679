//! Memory that the fabric transfers: the only unsafe file of the crate.

mod memory_file;

pub(crate) use memory_file::MemoryFile;
