//! Counts of a rank and its hot pages, as rows of the space's directory: `ddss dsm top` reads them.

mod load;
mod page_rows;
mod reporter;

pub(crate) use load::RankLoad;
pub(crate) use page_rows::{FETCHED, PageList, REGION_ROWS, ROWS, SHARED, decode_pages};
pub(crate) use reporter::Reporter;
