//! Ways in which the system reports uses of closed pages.

use crate::sys::{ApplicationView, MemoryFile, ViewAddress};
use std::fmt;
use std::io;

/// Way in which the system reports uses of pages that a rank does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageFaults {
    /// Permissions of pages (`mprotect`) and a handler of `SIGSEGV`. It needs no privilege, and works in any container.
    Mprotect,
}

impl PageFaults {
    /// All ways, the best first.
    pub const ALL: [Self; 1] = [Self::Mprotect];

    /// Tries it.
    ///
    /// # Errors
    /// The system cannot do it, for the reason that the error has.
    pub fn check(self) -> io::Result<()> {
        let page = 4096;
        let file = MemoryFile::create("ddss-dsm-check", page)?;
        ApplicationView::map(&file, 0..page, page, ViewAddress::Any).map(drop)
    }

    /// Returns the way of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mprotect => "mprotect",
        }
    }
}

impl fmt::Display for PageFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
