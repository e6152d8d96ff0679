//! An axis: its numbers and their positions.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::picture::Scale;
use crate::report::units;

impl Scale {
    fn is_log(self) -> bool {
        matches!(self, Scale::Time | Scale::Rate | Scale::Bandwidth | Scale::Bytes | Scale::Count)
    }

    /// Formats a number of this axis.
    pub(crate) fn words(self, value: f64) -> String {
        match self {
            Scale::Time | Scale::TimeFromZero | Scale::TimeShare => units::time(value),
            Scale::Rate | Scale::RateFromZero => units::rate(value),
            Scale::Bytes => units::bytes(value),
            Scale::Count => units::count(value),
            Scale::Number => units::plain(value),
            Scale::Percent => format!("{} %", units::plain(value)),
            Scale::Bandwidth => units::bandwidth(value),
        }
    }
}

/// A range of numbers, with the numbers that are written beside it. It is logarithmic if the scale has decades.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    low: f64,
    high: f64,
    /// Free parts of the axis before the lowest and behind the highest number.
    free: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.ends();
        let part = (self.coordinate(*value) - low) / (high - low);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        self.scale.words(*value)
    }
}

impl Axis {
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let usable = values.filter(|value| !scale.is_log() || *value > 0.0);
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (low, high) = match scale {
            Scale::Time | Scale::Rate | Scale::Bandwidth => (low / 1.6, high * 1.6),
            Scale::Bytes | Scale::Count => (low, high.max(low * 2.0)),
            _ => (0.0, if high > 0.0 { high * 1.1 } else { 1.0 }),
        };
        let mut axis = Axis { scale, low, high, free: (0.0, 0.0), ticks: Vec::new() };
        axis.ticks = axis.round_numbers();
        axis
    }

    /// Creates an axis for the range of these values, which need not contain 0.
    pub(super) fn along(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Axis {
        let axis = Axis::new(scale, values.clone());
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if scale.is_log() || low >= high { axis } else { Axis { low, high, ..axis } }
    }

    /// Leaves parts of the axis free before the lowest and behind the highest number.
    pub(super) fn with_free(self, before: f64, behind: f64) -> Axis {
        Axis { free: (before, behind), ..self }
    }

    /// Returns true if the axis can show this number.
    pub(super) fn has(&self, value: f64) -> bool {
        !self.scale.is_log() || value > 0.0
    }

    fn coordinate(&self, value: f64) -> f64 {
        if self.scale.is_log() { value.log10() } else { value }
    }

    /// Coordinates of both ends.
    fn ends(&self) -> (f64, f64) {
        let (low, high) = (self.coordinate(self.low), self.coordinate(self.high));
        let length = (high - low) / (1.0 - self.free.0 - self.free.1);
        (low - self.free.0 * length, high + self.free.1 * length)
    }

    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Returns a few round numbers in the range.
    fn round_numbers(&self) -> Vec<f64> {
        if !self.scale.is_log() {
            let step = nice(self.high / 4.0);
            return (0..8).map(|index| f64::from(index) * step).filter(|tick| *tick <= self.high).collect();
        }
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let all = (first..first + 14).flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }

    /// Labels the axis with measured numbers instead of round ones, as many as fit into `pixels`.
    pub(super) fn with_ticks_of(mut self, values: impl Iterator<Item = f64>, pixels: i32, letter: f64) -> Axis {
        let mut values: Vec<f64> = values.filter(|value| self.has(*value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let ends = |value: &f64| {
            let place = self.map(value, (0, pixels));
            let half = (self.scale.words(*value).chars().count() as f64 * letter / 2.0).ceil() as i32;
            (place - half, place + half + 5)
        };
        let mut ticks: Vec<f64> = Vec::new();
        let last = values.last().copied();
        for value in values {
            let has_room = |tick: Option<&f64>| tick.is_none_or(|tick| ends(tick).1 <= ends(&value).0);
            // The last one always has its number.
            while Some(value) == last && !has_room(ticks.last()) {
                ticks.pop();
            }
            if has_room(ticks.last()) {
                ticks.push(value);
            }
        }
        self.ticks = ticks;
        self
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step * 0.999).unwrap_or(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, an axis would have no numbers, or numbers outside of it.
    #[test]
    fn axis_has_few_round_ticks() {
        let ticks = |scale, values: &[f64]| Axis::new(scale, values.iter().copied()).ticks().to_vec();
        assert_eq!(ticks(Scale::Time, &[0.4, 13.0]), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(Scale::Time, &[0.01, 900.0]), [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(ticks(Scale::Number, &[0.0, 1.0]), [0.0, 0.5, 1.0]);
        assert!(!ticks(Scale::Rate, &[]).is_empty());
        let axis = Axis::new(Scale::Bytes, [1.0, 1024.0].into_iter());
        assert_eq!([1.0, 32.0, 1024.0].map(|value| axis.map(&value, (10, 110))), [10, 60, 110]);
        let axis = axis.with_free(0.2, 0.3);
        assert_eq!([1.0, 32.0, 1024.0].map(|value| axis.map(&value, (110, 10))), [90, 65, 40]);
    }

    // If this failed, numbers below an axis would run into each other.
    #[test]
    fn ticks_without_room_are_left_out() {
        let values = [1.0, 1.1, 10.0, 1000.0, 990.0];
        let axis = Axis::new(Scale::Count, values.into_iter()).with_ticks_of(values.into_iter(), 300, 7.0);
        assert_eq!(axis.ticks(), [1.0, 10.0, 1000.0]);
    }
}
