//! Marks at which a stream counts as readable or writable.

/// Marks in bytes, as `SO_RCVLOWAT` and `SO_SNDLOWAT` have them. Zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadinessMarks {
    /// Bytes to read that make the stream readable. The end of the stream and an error do so as well.
    pub readable: usize,
    /// Bytes of room that make the stream writable. An error does so as well.
    pub writable: usize,
}

impl Default for ReadinessMarks {
    fn default() -> Self {
        ReadinessMarks { readable: 1, writable: 1 }
    }
}

/// State of a stream, or the part of it that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Readiness {
    /// True if the mark for reading is reached.
    pub readable: bool,
    /// True if the mark for writing is reached.
    pub writable: bool,
}

/// Finder of changes.
#[derive(Default)]
pub(crate) struct ReadinessTracker {
    pub(crate) marks: ReadinessMarks,
    reported: Readiness,
}

impl ReadinessTracker {
    /// Compares amounts with the marks.
    pub(crate) fn level(&self, readable: usize, writable: usize) -> Readiness {
        Readiness { readable: readable >= self.marks.readable.max(1), writable: writable >= self.marks.writable.max(1) }
    }

    /// Returns what became true since the last call.
    pub(crate) fn edge(&mut self, now: Readiness) -> Readiness {
        let before = std::mem::replace(&mut self.reported, now);
        Readiness { readable: now.readable && !before.readable, writable: now.writable && !before.writable }
    }
}
