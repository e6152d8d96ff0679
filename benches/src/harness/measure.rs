//! Clock and histogram.
//!
//! The end of one lap is the beginning of the next, so a lap contains one reading of the clock (some 25 ns) and nothing
//! else of the harness. Laps are stored as numbers and counted after the slice. The clock steps by 10 ns, so an
//! operation of less than 50 ns is measured as the mean of several laps. A percentile is then one of means, and the
//! report says so. The groups stay small, because a limit must contain the same clock readings as its figures.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Figure;

/// A lap shorter than this is measured together with others.
const LAP_MIN: Duration = Duration::from_nanos(50);
/// Approximate total duration of laps that are measured together.
const LAPS_TOGETHER: Duration = Duration::from_micros(2);
/// Maximum number of laps that are measured together.
const LAPS_PER_READING_MAX: u32 = 4096;
/// Maximum number of readings of one slice.
const READINGS_MAX: usize = 1 << 20;
/// The longest lap that a histogram distinguishes, in picoseconds.
const LAP_PS_MAX: u64 = 60_000_000_000_000;

/// Result of one measurement.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Duration of a lap, in picoseconds, because a mean of several laps has a fraction.
    laps_ps: Histogram<u64>,
    /// Operations done.
    pub operations: u64,
    /// Their total duration.
    pub elapsed: Duration,
    /// Laps of which each entry is the mean.
    pub laps_per_reading: u32,
}

impl Sample {
    /// Creates an empty sample.
    pub fn empty() -> Sample {
        let laps_ps = Histogram::new_with_bounds(1, LAP_PS_MAX, 3).expect("the bounds are in order");
        Sample { laps_ps, operations: 0, elapsed: Duration::ZERO, laps_per_reading: 1 }
    }

    /// Counts one reading: `laps` laps that took `elapsed` together and did `operations` operations.
    pub fn record(&mut self, elapsed: Duration, laps: u32, operations: u64) {
        let elapsed_ps = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        self.laps_ps.saturating_record(elapsed_ps / u64::from(laps));
        self.operations += operations;
        self.elapsed += elapsed;
        self.laps_per_reading = self.laps_per_reading.max(laps);
    }

    /// Counts laps of one operation that were timed elsewhere, each of about `lap`.
    pub fn record_many(&mut self, lap: Duration, count: u64) {
        let lap_ps = u64::try_from(lap.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        self.laps_ps.saturating_record_n(lap_ps, count);
        self.operations += count;
    }

    /// Merges another sample of the same figure.
    pub fn add(&mut self, other: &Sample) {
        self.laps_ps.add(&other.laps_ps).expect("all histograms have the same bounds");
        self.operations += other.operations;
        self.elapsed += other.elapsed;
        self.laps_per_reading = self.laps_per_reading.max(other.laps_per_reading);
    }

    /// The time within which `quantile` (0 to 1) of the laps were done, in microseconds.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.laps_ps.value_at_quantile(quantile) as f64 / 1e6
    }

    /// Operations a second; 0 if there was no operation.
    pub fn operations_per_s(&self) -> f64 {
        if self.operations == 0 || self.elapsed.is_zero() {
            0.0
        } else {
            self.operations as f64 / self.elapsed.as_secs_f64()
        }
    }
}

/// Measures figures, one at a time.
pub(crate) struct Meter {
    readings: Vec<Duration>,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter::with_readings(READINGS_MAX)
    }

    /// Measures slices of `count` clock readings.
    pub(crate) fn with_readings(count: usize) -> Meter {
        // Touched before the first slice: a page fault is longer than most laps.
        Meter { readings: vec![Duration::MAX; count] }
    }

    /// Runs `figure` for about `slice`, after a warm-up of a quarter of it.
    pub(crate) fn measure(&mut self, figure: &mut Figure, slice: Duration) -> Sample {
        figure.trip.wake();
        let lap = warm_up(figure, slice / 4);
        if figure.laps_per_reading == 0 {
            figure.laps_per_reading = laps_per_reading(lap);
        }
        let laps = figure.laps_per_reading;
        let begin = Instant::now();
        let mut last = begin;
        let mut count = 0;
        while count < self.readings.len() && last - begin < slice {
            for _ in 0..laps {
                figure.trip.once();
            }
            let now = Instant::now();
            self.readings[count] = figure.trip.took().unwrap_or(now - last);
            last = now;
            count += 1;
        }
        figure.trip.rest();

        let operations = figure.trip.operations() * u64::from(laps);
        let mut sample = Sample::empty();
        for reading in &self.readings[..count] {
            sample.record(*reading, laps, operations);
        }
        sample
    }
}

/// Runs for about `time`, at least once; returns how long a lap takes.
fn warm_up(figure: &mut Figure, time: Duration) -> Duration {
    let begin = Instant::now();
    let mut laps = 0;
    loop {
        // A burst is long enough to time laps of a nanosecond, and short enough to end in time.
        let burst = if laps == 0 { 1 } else { 64 };
        for _ in 0..burst {
            figure.trip.once();
        }
        laps += burst;
        let elapsed = begin.elapsed();
        if elapsed >= time {
            return elapsed / laps;
        }
    }
}

fn laps_per_reading(lap: Duration) -> u32 {
    if lap >= LAP_MIN {
        return 1;
    }
    let laps = LAPS_TOGETHER.as_nanos() / lap.as_nanos().max(1);
    u32::try_from(laps).unwrap_or(LAPS_PER_READING_MAX).min(LAPS_PER_READING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a figure below the clock's step would be the clock's step.
    #[test]
    fn short_laps_are_measured_in_groups() {
        assert_eq!(laps_per_reading(Duration::from_nanos(350)), 1);
        assert_eq!(laps_per_reading(Duration::from_nanos(50)), 1);
        assert_eq!(laps_per_reading(Duration::from_nanos(40)), 50);
        assert_eq!(laps_per_reading(Duration::ZERO), 2000);
    }

    // If this failed, rates and percentiles would not be those of the laps.
    #[test]
    fn sample_reports_recorded_values() {
        let mut sample = Sample::empty();
        for _ in 0..99 {
            sample.record(Duration::from_micros(10), 4, 8);
        }
        let mut slow = Sample::empty();
        slow.record(Duration::from_micros(10_010), 4, 8);
        sample.add(&slow);
        assert_eq!(sample.operations, 800);
        assert_eq!(sample.laps_per_reading, 4);
        assert!((sample.quantile_us(0.5) - 2.5).abs() < 0.01, "{}", sample.quantile_us(0.5));
        assert!((sample.quantile_us(1.0) - 2502.5).abs() < 3.0, "{}", sample.quantile_us(1.0));
        assert!((sample.operations_per_s() - 800.0 / 0.011).abs() < 1.0, "{}", sample.operations_per_s());
    }
}
