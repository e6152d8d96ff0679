//! Interleaved comparison: limit, A, limit, B, limit, A, limit, B, limit.
//!
//! On a busy machine the same operation drifts by a factor of 1.4 to 1.7 between two passes. So the compared operations
//! run in short slices in turn, and each slice is between two probes of the limit. If the two probes differ, the
//! machine changed, and slice and probes are discarded. The same holds for a slice on cores of the wrong distance, if
//! one was requested.

use std::time::{Duration, Instant};

use super::{Figure, Sample};

/// Permitted difference of the probes before and after a slice.
const DRIFT_MAX: f64 = 1.4;

/// Amount of measurement.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Slices of each figure that count.
    pub rounds: usize,
    /// Maximum number of rounds, however few slices counted.
    pub rounds_max: usize,
    /// Duration of a slice.
    pub slice: Duration,
    /// Duration of a probe of the limit.
    pub probe: Duration,
}

impl Plan {
    /// For a page of figures.
    pub const FULL: Plan = Plan::of(7, Duration::from_millis(40), Duration::from_millis(12));
    /// For a curve of many points.
    pub const CURVE: Plan = Plan::of(5, Duration::from_millis(30), Duration::from_millis(8));
    /// For a curve, with `--quick`.
    pub const QUICK_CURVE: Plan = Plan::of(2, Duration::from_millis(6), Duration::from_millis(3));
    /// For figures, with `--quick`.
    pub const QUICK: Plan = Plan::of(5, Duration::from_millis(20), Duration::from_millis(8));
    /// For a test that everything runs; the numbers mean nothing.
    pub const SMOKE: Plan = Plan::of(1, Duration::from_micros(500), Duration::from_micros(200));

    const fn of(rounds: usize, slice: Duration, probe: Duration) -> Plan {
        Plan { rounds, rounds_max: 2 * rounds, slice, probe }
    }

    /// A short measurement, to choose between variants.
    pub(crate) fn for_a_choice(self) -> Plan {
        let short = Plan::of(5, Duration::from_millis(20), Duration::from_millis(5));
        Plan { rounds: short.rounds.min(self.rounds), slice: short.slice.min(self.slice), ..short }
    }
}

/// One figure, and the limit as it was around its slices.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The figure.
    pub figure: Sample,
    /// The limit, from the probes around the slices that counted.
    pub limit: Sample,
    /// Slices that counted.
    pub kept: usize,
    /// Slices that were discarded.
    pub thrown: usize,
    /// Slices that were measured at the wrong core distance.
    unwanted: usize,
}

impl Compared {
    fn none() -> Compared {
        Compared { figure: Sample::empty(), limit: Sample::empty(), kept: 0, thrown: 0, unwanted: 0 }
    }

    /// Compares one slice with the probes before and after it.
    pub(crate) fn of(before: Sample, slice: Sample, after: &Sample) -> Compared {
        let mut one = Compared::none();
        one.take(&before, &slice, after, true);
        one
    }

    /// Returns true if no slice counted, for another reason than the core distance.
    pub fn is_noisy(&self) -> bool {
        self.is_empty() && self.thrown > self.unwanted
    }

    /// Returns true if no slice counted, so that the numbers are those of the last discarded slice.
    fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Ratio of the figure's median to the limit's.
    pub fn ratio(&self) -> f64 {
        self.figure.quantile_us(0.5) / self.limit.quantile_us(0.5)
    }

    /// Ratio of the figure's rate to the limit's.
    pub fn rate_ratio(&self) -> f64 {
        self.figure.operations_per_s() / self.limit.operations_per_s()
    }

    fn take(&mut self, before: &Sample, slice: &Sample, after: &Sample, is_wanted: bool) {
        let quiet = is_wanted && drift(before, after) <= DRIFT_MAX;
        if quiet && self.is_empty() {
            *self = Compared { thrown: self.thrown, unwanted: self.unwanted, ..Compared::none() };
        }
        if quiet {
            self.kept += 1;
            self.figure.add(slice);
            self.limit.add(before);
            self.limit.add(after);
        } else {
            self.thrown += 1;
            self.unwanted += usize::from(!is_wanted);
            if self.is_empty() {
                self.figure = slice.clone();
                self.limit = before.clone();
                self.limit.add(after);
            }
        }
    }
}

/// Measures each of `figures` between probes of `limit`, in turns. The last result is that of the limit. `measure` also
/// returns true if the core distance was as requested; other rounds consume `patience`.
pub(crate) fn compare(
    plan: Plan,
    patience: &mut Duration,
    limit: &mut Figure,
    figures: &mut [Figure],
    mut measure: impl FnMut(&mut Figure, Duration) -> (Sample, bool),
) -> Vec<Compared> {
    let mut compared = vec![Compared::none(); figures.len() + 1];
    let (mut before, _) = measure(limit, plan.probe);
    let mut rounds = 0;
    while rounds < plan.rounds_max && compared.iter().any(|one| one.kept < plan.rounds) {
        let begin = Instant::now();
        let mut all_wanted = true;
        for (index, one) in compared.iter_mut().enumerate() {
            if one.kept == plan.rounds {
                continue;
            }
            // The last turn is the limit's own: its slice is a longer probe.
            let (slice, is_wanted) = measure(figures.get_mut(index).unwrap_or(limit), plan.slice);
            let (after, _) = measure(limit, plan.probe);
            one.take(&before, &slice, &after, is_wanted);
            before = after;
            all_wanted &= is_wanted;
        }
        if all_wanted || patience.is_zero() {
            rounds += 1;
        } else {
            *patience = patience.saturating_sub(begin.elapsed());
        }
    }
    compared
}

/// Ratio of the higher median to the lower one.
fn drift(before: &Sample, after: &Sample) -> f64 {
    let (before, after) = (before.quantile_us(0.5), after.quantile_us(0.5));
    (before / after).max(after / before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::RoundTrip;

    struct Nothing;
    impl RoundTrip for Nothing {
        fn once(&mut self) {}
    }

    fn figure(op: &'static str) -> Figure {
        Figure::new("raw", op, 8, "near/spin/t1", Nothing)
    }

    fn sample(us: u64) -> Sample {
        let mut sample = Sample::empty();
        sample.record(Duration::from_micros(us), 1, 1);
        sample
    }

    const PLAN: Plan = Plan::of(2, Duration::from_millis(2), Duration::from_millis(1));

    // If this failed, A could win only because it was measured in a quiet minute and B in a busy one.
    #[test]
    fn measurements_alternate_between_limit_probes() {
        let mut order = String::new();
        let mut figures = [figure("a"), figure("b")];
        let compared = compare(PLAN, &mut Duration::default(), &mut figure("l"), &mut figures, |figure, time| {
            order += figure.op;
            assert_eq!(time == PLAN.probe, figure.op == "l" && !order.ends_with("bll"), "in {order}");
            (sample(3), true)
        });
        // The third of three turns is the limit's own slice.
        assert_eq!(order, "lalblll".to_owned() + "alblll");
        assert!(compared.iter().all(|one| one.kept == 2 && one.thrown == 0));
    }

    // If this failed, a figure would be compared with a limit from another state of the machine.
    #[test]
    fn slice_is_discarded_when_limit_probes_differ() {
        // The first slice of `a` stands between 10 and 15; then the limit stays at 15.
        let mut probes = [10].into_iter();
        let mut slices = [100, 30, 40].into_iter();
        let compared = compare(PLAN, &mut Duration::default(), &mut figure("l"), &mut [figure("a")], |figure, _| {
            (sample(if figure.op == "l" { probes.next().unwrap_or(15) } else { slices.next().unwrap() }), true)
        });
        let a = &compared[0];
        assert_eq!((a.kept, a.thrown, a.figure.operations), (2, 1, 2));
        assert!(a.figure.quantile_us(1.0) < 41.0, "the slice of 100 counted");
        assert!((a.ratio() - 2.0).abs() < 0.01, "{}", a.ratio());
    }

    // If this failed, measurements on two threads of one core would pass for two cores, or a run would end early.
    #[test]
    fn slice_is_repeated_when_machine_changed() {
        // Only each fifth slice of `a` is wanted; many more rounds than the plan has.
        let mut slices = 0;
        let mut measure = |figure: &mut Figure, _| {
            let is_a = figure.op == "a";
            slices += u64::from(is_a);
            let is_wanted = !is_a || slices.is_multiple_of(5);
            (sample(if is_wanted { 3 } else { 300 }), is_wanted)
        };
        let mut patience = Duration::from_secs(60);
        let compared = compare(PLAN, &mut patience, &mut figure("l"), &mut [figure("a")], &mut measure);
        assert_eq!((compared[0].kept, compared[0].thrown), (2, 8));
        assert!(compared[0].figure.quantile_us(1.0) < 4.0, "an unwanted slice counted");
        assert_eq!(compared[0].unwanted, 8);

        let compared = compare(PLAN, &mut Duration::default(), &mut figure("l"), &mut [figure("a")], measure);
        assert_eq!(compared[0].kept + compared[0].thrown, PLAN.rounds_max, "it goes on without any patience left");
    }

    // If this failed, a busy machine would give no rows, or rows without a mark.
    #[test]
    fn row_is_marked_when_machine_is_never_quiet() {
        let mut turn = 0;
        let compared = compare(PLAN, &mut Duration::default(), &mut figure("l"), &mut [figure("a")], |figure, _| {
            turn += 1;
            (sample(if figure.op == "l" { 10_u64.pow(turn % 4 + 1) } else { 7 }), true)
        });
        assert!(compared[0].is_noisy());
        assert_eq!((compared[0].thrown, compared[0].figure.operations), (PLAN.rounds_max, 1));
    }
}
