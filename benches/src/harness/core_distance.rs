//! Distance between the client's and the service's core during a measurement.
//!
//! A host may run two virtual cores on two cores or on the two threads of one, and may change that at any time. On one
//! core a cache line takes a third of the time, and computation takes up to twice as long. Rows are comparable only at
//! equal distance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::measure::Meter;
use super::{Cores, Figure, line_ping_pong};

/// Duration of one probe.
const PROBE_TIME: Duration = Duration::from_micros(200);
/// Ratio of two probes of one figure above which the core distance has changed.
const DISTANCE_RATIO_MAX: f64 = 1.8;
/// Total time for which a run continues at the wrong distance. It measures and discards instead of waiting, because an
/// idle harness would let the compared threads go to sleep.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Beginning of the note of a row at the wrong distance.
pub const SAME_CORE_NOTE: &str = "NEAR:";

/// Probes a bare cache line between the cores, and records its time beside each figure.
pub(crate) struct Distance {
    line: Figure,
    meter: Meter,
    min_us: Option<f64>,
    seen: BTreeMap<String, Vec<f64>>,
}

/// Time of the line beside the slices of one figure, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DistanceRange {
    pub(crate) median_us: f64,
    least_us: f64,
    most_us: f64,
}

impl Distance {
    /// Probes between these cores. Measurements are unwanted while a line takes less than `min_us`.
    pub(crate) fn between(cores: Cores, min_us: Option<f64>) -> Distance {
        Distance { line: line_ping_pong(cores), meter: Meter::with_readings(4096), min_us, seen: BTreeMap::new() }
    }

    /// Waits for the requested distance before the first measurement, within its patience. Returns the time of the
    /// line, in microseconds.
    pub(crate) fn start(&mut self, patience: &mut Duration) -> f64 {
        let begin = Instant::now();
        let mut took_us = self.took_us();
        while !self.is_wanted(took_us) && begin.elapsed() < *patience {
            took_us = self.took_us();
        }
        *patience = patience.saturating_sub(begin.elapsed());
        took_us
    }

    /// Returns true if a line of that time has the requested distance.
    fn is_wanted(&self, took_us: f64) -> bool {
        self.min_us.is_none_or(|min_us| took_us >= min_us)
    }

    /// Probes, and records the time for the figure called `label`.
    pub(crate) fn probe(&mut self, label: &str) {
        let took_us = self.took_us();
        self.remember(label, &[took_us]);
    }

    /// Runs `run` between two probes; also returns true if the distance was as requested.
    pub(crate) fn around<T>(&mut self, label: Option<&str>, run: impl FnOnce() -> T) -> (T, bool) {
        let before_us = self.took_us();
        let done = run();
        // A second probe costs time, and gives nothing without a request.
        let after_us = if self.min_us.is_some() { self.took_us() } else { before_us };
        if let Some(label) = label {
            self.remember(label, &[before_us, after_us]);
        }
        (done, self.is_wanted(before_us.min(after_us)))
    }

    /// Records distances. Unwanted distances count only while there are no others.
    fn remember(&mut self, label: &str, looks_us: &[f64]) {
        let are_wanted = looks_us.iter().all(|&us| self.is_wanted(us));
        let (min_us, seen) = (self.min_us.unwrap_or(0.0), self.seen.entry(label.to_owned()).or_default());
        let only_unwanted = seen.iter().any(|&us| us < min_us);
        if are_wanted && only_unwanted {
            seen.clear();
        }
        if are_wanted || only_unwanted || seen.is_empty() {
            seen.extend(looks_us);
        }
    }

    /// Times recorded for the figure called `label` since the last call.
    pub(crate) fn beside(&mut self, label: &str) -> Option<DistanceRange> {
        DistanceRange::of(self.seen.remove(label)?)
    }

    /// Returns the note about this range, if it is needed.
    pub(crate) fn note(&self, beside: DistanceRange) -> Option<String> {
        let DistanceRange { least_us, most_us, .. } = beside;
        if self.min_us.is_some_and(|min_us| least_us < min_us) {
            return Some(format!("{SAME_CORE_NOTE} the line took {least_us:.2} us, less than was asked for"));
        }
        let moved = most_us > DISTANCE_RATIO_MAX * least_us;
        moved.then(|| format!("the host moved the cores: a line took {least_us:.2} to {most_us:.2} us"))
    }

    fn took_us(&mut self) -> f64 {
        self.meter.measure(&mut self.line, PROBE_TIME).quantile_us(0.5)
    }
}

impl DistanceRange {
    fn of(mut looks: Vec<f64>) -> Option<DistanceRange> {
        looks.sort_by(f64::total_cmp);
        Some(DistanceRange {
            median_us: *looks.get(looks.len() / 2)?,
            least_us: *looks.first()?,
            most_us: *looks.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a row that mixes two cores and one would pass for two cores.
    #[test]
    fn row_is_marked_when_core_distance_changed() {
        let mut distance = Distance::between(Cores::of_this_machine(), None);
        distance.probe("a");
        assert!(distance.beside("a").unwrap().median_us > 0.0);
        assert_eq!(distance.beside("a"), None, "it counted twice");

        let moved = DistanceRange::of(vec![0.39, 0.12, 0.38]).unwrap();
        assert_eq!(moved, DistanceRange { median_us: 0.38, least_us: 0.12, most_us: 0.39 });
        assert!(distance.note(moved).unwrap().contains("0.12 to 0.39 us"));
        let still = DistanceRange::of(vec![0.12, 0.13]).unwrap();
        assert_eq!(distance.note(still), None);

        let asked = Distance { min_us: Some(0.3), ..distance };
        assert!(asked.note(still).unwrap().contains("0.12 us, less"));
        assert!(asked.note(DistanceRange::of(vec![0.31, 0.33]).unwrap()).is_none());
    }

    // If this failed, a row would be marked for discarded slices, or unmarked for counted ones.
    #[test]
    fn unwanted_core_distance_is_used_only_as_fallback() {
        let mut distance = Distance::between(Cores::of_this_machine(), Some(0.3));
        distance.remember("a", &[0.12, 0.4]);
        distance.remember("a", &[0.13, 0.13]);
        assert!(distance.seen["a"].iter().all(|us| [0.12, 0.4, 0.13].contains(us)));
        distance.remember("a", &[0.41, 0.42]);
        distance.remember("a", &[0.12, 0.42]);
        let beside = distance.beside("a").unwrap();
        assert_eq!((beside.least_us, beside.most_us), (0.41, 0.42));
        assert_eq!(distance.note(beside), None);

        let (_, is_wanted) = Distance::between(Cores::of_this_machine(), Some(1e9)).around(None, || ());
        assert!(!is_wanted);
        let (_, is_wanted) = Distance::between(Cores::of_this_machine(), None).around(None, || ());
        assert!(is_wanted);
    }
}
