//! A page that a thread uses and its rank cannot have, and what the program does about it.

use ddss_dsm_core::{Failure, Rank};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

/// A page that a thread of this rank uses by a page fault, and that the rank cannot have: its space has ended. `SIGBUS` follows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LostPage {
    /// This rank.
    pub rank: Rank,
    /// Elements in the page, such as `grid[512..1024]`.
    pub elements: String,
    /// Reason for the end of the space. `None`: the service thread of this rank has panicked.
    pub failure: Option<Failure>,
}

impl fmt::Display for LostPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, elements, failure } = self;
        write!(f, "{rank} cannot have {elements}: ")?;
        match failure {
            Some(failure) => failure.fmt(f),
            None => f.write_str("its service thread has panicked"),
        }
    }
}

/// Function that the service thread calls before `SIGBUS`.
#[derive(Clone)]
pub(crate) struct LostPageCallback(Arc<dyn Fn(&LostPage) + Send + Sync>);

impl LostPageCallback {
    pub(crate) fn new(callback: impl Fn(&LostPage) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(super) fn call(&self, page: &LostPage) {
        (self.0)(page);
    }
}

impl Default for LostPageCallback {
    /// Writes a message.
    fn default() -> Self {
        Self::new(|page| drop(writeln!(io::stderr(), "ddss-dsm: {page}")))
    }
}

impl fmt::Debug for LostPageCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LostPageCallback")
    }
}
