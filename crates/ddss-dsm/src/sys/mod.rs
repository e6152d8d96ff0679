//! Memory that the fabric transfers, views of it, and page faults: the only unsafe files of the crate.

mod application_view;
mod fault_signal;
mod fault_table;
mod frames;
mod in_place;
mod memory_file;

pub(crate) use application_view::{ApplicationView, ViewAddress};
pub(crate) use fault_signal::install as install_fault_handler;
pub(crate) use fault_table::{Fault, FaultTable};
pub(crate) use frames::{Frames, Refused, Use};
pub use frames::{ReadView, WriteView};
pub use in_place::{Cells, InPlace};
pub(crate) use memory_file::MemoryFile;
