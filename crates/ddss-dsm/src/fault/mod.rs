//! Use of a region by page faults: how the system reports them, and their answers.

mod faults;
mod lost_page;
mod page_faults;

pub(crate) use faults::{DescribePage, FaultSettings, Faults};
pub use lost_page::LostPage;
pub(crate) use lost_page::LostPageCallback;
pub use page_faults::PageFaults;
