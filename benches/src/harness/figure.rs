//! What can be measured.

use std::time::Duration;

/// Something that goes there and comes back.
///
/// Between [`wake`](RoundTrip::wake) and [`rest`](RoundTrip::rest) it may have threads and processes that poll;
/// outside it may not: there are two cores, and the other one belongs to what is measured next. A daemon that
/// never parks can be stopped in `rest` and continued in `wake`.
pub trait RoundTrip {
    /// One round trip, from the request to the whole answer.
    fn once(&mut self);

    /// How long the last `once` took, if not all of it counts.
    fn took(&self) -> Option<Duration> {
        None
    }

    /// Operations that one `once` does: more than one where they travel together.
    fn operations(&self) -> u64 {
        1
    }

    /// Gets whoever answers onto its core.
    fn wake(&mut self) {}

    /// Gets whoever answers off its core, and returns when it is off.
    fn rest(&mut self) {}
}

/// A round trip with its place in the rows.
pub struct Figure {
    /// `ddss` or `raw`.
    pub name: &'static str,
    /// What is done.
    pub op: &'static str,
    /// Bytes of the answer, or of the request for a put.
    pub size_bytes: usize,
    /// PATH/WAIT/tCLIENTS.
    pub mode: String,
    /// Operations under way at the same time.
    pub outstanding: usize,
    /// What is measured.
    pub trip: Box<dyn RoundTrip>,
    /// What has to be said about it beside its numbers.
    pub notes: Vec<String>,
    /// Round trips between two readings of the clock; 0 until it is known.
    pub(crate) laps_per_reading: u32,
}

impl Figure {
    /// A figure with one operation under way at a time.
    pub fn new(
        name: &'static str,
        op: &'static str,
        size_bytes: usize,
        mode: impl Into<String>,
        trip: impl RoundTrip + 'static,
    ) -> Figure {
        let mode = mode.into();
        let (trip, notes) = (Box::new(trip), Vec::new());
        Figure { name, op, size_bytes, mode, outstanding: 1, trip, notes, laps_per_reading: 0 }
    }

    /// The same with more operations under way.
    #[must_use]
    pub fn outstanding(mut self, count: usize) -> Figure {
        self.outstanding = count;
        self
    }

    /// The same with something to be said about it.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Figure {
        self.notes.push(note.into());
        self
    }

    /// The first five columns of its row.
    pub fn label(&self) -> String {
        format!("{},{},{},{},{}", self.name, self.op, self.size_bytes, self.mode, self.outstanding)
    }
}
