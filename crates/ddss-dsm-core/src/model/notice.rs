//! Notices: the pages that an interval changed.

use super::page::PageRange;

/// Pages that an interval changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangedPages {
    /// These pages. Their home gets a stamp of the interval for each of them.
    Exact(Vec<PageRange>),
    /// Any page of the space. The writes of the interval were placed before its notice was published, because a reader
    /// cannot know for which pages a stamp will come.
    Coarse,
}

/// The pages that one interval of a rank changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Number of the interval.
    pub interval: u32,
    /// Pages.
    pub pages: ChangedPages,
}
