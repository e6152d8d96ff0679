//! Operations that the harness can measure.

use std::time::Duration;

/// A measurable round trip.
///
/// It may have polling threads and processes between [`wake`](RoundTrip::wake) and [`rest`](RoundTrip::rest) only,
/// because the next measurement needs the other core. A daemon that never parks can be stopped in `rest` and continued
/// in `wake`.
pub trait RoundTrip {
    /// Makes one round trip, from the request to the complete answer.
    fn once(&mut self);

    /// Returns the duration of the last `once`, if a part of it does not count.
    fn took(&self) -> Option<Duration> {
        None
    }

    /// Returns the number of operations of one `once`: more than one if they travel together.
    fn operations(&self) -> u64 {
        1
    }

    /// Wakes the service before the measurement.
    fn wake(&mut self) {}

    /// Puts the service to sleep, and returns when it is off its core.
    fn rest(&mut self) {}
}

/// A round trip with its place in the rows.
pub struct Figure {
    /// `ddss` or `raw`.
    pub name: &'static str,
    /// Operation.
    pub op: &'static str,
    /// Bytes of the answer, or of the request for a put.
    pub size_bytes: usize,
    /// PATH/WAIT/tCLIENTS.
    pub mode: String,
    /// Operations in flight.
    pub outstanding: usize,
    /// The measured operation.
    pub trip: Box<dyn RoundTrip>,
    /// Notes for its row.
    pub notes: Vec<String>,
    /// Round trips between two readings of the clock; 0 until the number is known.
    pub(crate) laps_per_reading: u32,
}

impl Figure {
    /// Creates a figure with one operation in flight.
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

    /// Returns the same figure with more operations in flight.
    #[must_use]
    pub fn outstanding(mut self, count: usize) -> Figure {
        self.outstanding = count;
        self
    }

    /// Adds a note.
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
