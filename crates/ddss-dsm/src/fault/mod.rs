//! Use of a region by page faults: how the system reports them, and their answers.

mod faults;
mod page_faults;

pub(crate) use faults::{DescribePage, Faults};
pub use page_faults::PageFaults;
