//! How far the client's and the service's core are apart while something is measured.
//!
//! A host may run two virtual cores on two cores or on the two threads of one, and change that whenever it likes. A line then
//! takes a third of the time from one to the other, and all that needs a core's own strength takes up to twice as long. Rows that
//! do not say which it was cannot be compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::measure::Meter;
use super::{Cores, Figure};
use crate::baseline::line_ping_pong;

/// How long one look takes.
const LOOK: Duration = Duration::from_micros(200);
/// Looks of one figure that lie further apart than this are of two machines, so to speak.
const MOVED: f64 = 1.8;
/// How long a run goes on in all without the line that was asked for. It measures meanwhile and throws away, rather than wait: what
/// is measured stands still between its slices, and the others give up who does that for long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// How the note of a row begins that was measured on other cores than were asked for.
pub const NEAR: &str = "NEAR:";

/// Looks at a bare line between the cores, and remembers what it took beside each figure.
pub(crate) struct Distance {
    line: Figure,
    meter: Meter,
    min_us: Option<f64>,
    seen: BTreeMap<String, Vec<f64>>,
}

/// What a line took beside the slices of one figure, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beside {
    pub(crate) median_us: f64,
    least_us: f64,
    most_us: f64,
}

impl Distance {
    /// Between these cores; what is measured while a line takes less than `min_us` is not wanted.
    pub(crate) fn between(cores: Cores, min_us: Option<f64>) -> Distance {
        Distance { line: line_ping_pong(cores), meter: Meter::with_readings(4096), min_us, seen: BTreeMap::new() }
    }

    /// Before anything is measured: waits for the line that was asked for, as long as there is patience. Returns what it takes, in
    /// microseconds.
    pub(crate) fn start(&mut self, patience: &mut Duration) -> f64 {
        let begin = Instant::now();
        let mut took_us = self.took_us();
        while !self.is_wanted(took_us) && begin.elapsed() < *patience {
            took_us = self.took_us();
        }
        *patience = patience.saturating_sub(begin.elapsed());
        took_us
    }

    /// Whether a line that takes that long is one that was asked for.
    fn is_wanted(&self, took_us: f64) -> bool {
        self.min_us.is_none_or(|min_us| took_us >= min_us)
    }

    /// Looks. What it took counts for the figure called `label`.
    pub(crate) fn look(&mut self, label: &str) {
        let took_us = self.took_us();
        self.remember(label, &[took_us]);
    }

    /// Looks before and after; says as well whether the cores were as they were asked for.
    pub(crate) fn around<T>(&mut self, label: Option<&str>, run: impl FnOnce() -> T) -> (T, bool) {
        let before_us = self.took_us();
        let done = run();
        // A second look costs time, and says nothing new where nothing was asked for.
        let after_us = if self.min_us.is_some() { self.took_us() } else { before_us };
        if let Some(label) = label {
            self.remember(label, &[before_us, after_us]);
        }
        (done, self.is_wanted(before_us.min(after_us)))
    }

    /// What is not wanted counts only as long as there is nothing else.
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

    /// What was seen beside the figure called `label` since this was asked for last.
    pub(crate) fn beside(&mut self, label: &str) -> Option<Beside> {
        Beside::of(self.seen.remove(label)?)
    }

    /// What there is to say about it, if there is something.
    pub(crate) fn note(&self, beside: Beside) -> Option<String> {
        let Beside { least_us, most_us, .. } = beside;
        if self.min_us.is_some_and(|min_us| least_us < min_us) {
            return Some(format!("{NEAR} the line took {least_us:.2} us, less than was asked for"));
        }
        let moved = most_us > MOVED * least_us;
        moved.then(|| format!("the host moved the cores: a line took {least_us:.2} to {most_us:.2} us"))
    }

    fn took_us(&mut self) -> f64 {
        self.meter.measure(&mut self.line, LOOK).quantile_us(0.5)
    }
}

impl Beside {
    fn of(mut looks: Vec<f64>) -> Option<Beside> {
        looks.sort_by(f64::total_cmp);
        Some(Beside { median_us: *looks.get(looks.len() / 2)?, least_us: *looks.first()?, most_us: *looks.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a row that was measured on two cores and on one would pass for one of two.
    #[test]
    fn a_figure_that_was_moved_says_so() {
        let mut distance = Distance::between(Cores::of_this_machine(), None);
        distance.look("a");
        assert!(distance.beside("a").unwrap().median_us > 0.0);
        assert_eq!(distance.beside("a"), None, "it counted twice");

        let moved = Beside::of(vec![0.39, 0.12, 0.38]).unwrap();
        assert_eq!(moved, Beside { median_us: 0.38, least_us: 0.12, most_us: 0.39 });
        assert!(distance.note(moved).unwrap().contains("0.12 to 0.39 us"));
        let still = Beside::of(vec![0.12, 0.13]).unwrap();
        assert_eq!(distance.note(still), None);

        let asked = Distance { min_us: Some(0.3), ..distance };
        assert!(asked.note(still).unwrap().contains("0.12 us, less"));
        assert!(asked.note(Beside::of(vec![0.31, 0.33]).unwrap()).is_none());
    }

    // If this failed, a row would be marked for slices that did not count, or not be marked for those that did.
    #[test]
    fn what_was_not_wanted_is_remembered_only_for_want_of_better() {
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
