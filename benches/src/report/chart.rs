//! Draws a figure.

use super::picture::{Bars, Curves, Panel, Picture, Scale};
use super::svg::{Hang, Svg, wrapped};
use super::units;

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 20.0;
/// Height of the field of a panel with curves.
const FIELD: f64 = 230.0;
/// Height of one bar with its distance.
const BAR: f64 = 24.0;
/// Pixels of a letter of the axes, about.
const LETTER: f64 = 6.6;
/// Width of the place beside the axis where the paper's numbers stand, if a panel has some.
const PAPER_LANE: f64 = 74.0;
/// Height of a line of small text.
const LINE: f64 = 13.0;
const PAPER: &str = "the paper (2007; nodes of 8 cores, InfiniBand)";

impl Scale {
    fn is_log(self) -> bool {
        matches!(self, Scale::Time | Scale::Rate | Scale::Bytes | Scale::Count)
    }

    /// A number as it is written on this axis.
    pub(crate) fn words(self, value: f64) -> String {
        match self {
            Scale::Time | Scale::TimeFromZero | Scale::TimeShare => units::time(value),
            Scale::Rate | Scale::RateFromZero => units::rate(value),
            Scale::Bytes => units::bytes(value),
            Scale::Count | Scale::Number => units::plain(value),
        }
    }
}

/// An axis: which numbers, and where they lie.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: &[f64], from: f64, to: f64) -> Axis {
        let usable = values.iter().copied().filter(|value| !scale.is_log() || *value > 0.0);
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (low, high) = match scale {
            Scale::Time | Scale::Rate => (low / 1.6, high * 1.6),
            Scale::Bytes | Scale::Count => (low, high.max(low * 2.0)),
            _ => (0.0, if high > 0.0 { high * 1.1 } else { 1.0 }),
        };
        Axis { scale, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.scale.is_log() {
            (value.max(self.low / 4.0) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
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
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step * 0.999).unwrap_or(step)
}

/// The picture of a figure; an `alone` one contains its colours.
pub fn draw(picture: &Picture, alone: bool) -> String {
    let mut svg = Svg::default();
    let mut y = MARGIN + 14.0;
    svg.text((MARGIN, y), Hang::Left, "head", &format!("{} — {}", picture.number, picture.title));
    for line in wrapped(&picture.says, WIDTH - 2.0 * MARGIN, 7.3) {
        y += 20.0;
        svg.text((MARGIN, y), Hang::Left, "says", &line);
    }
    y = legend(&mut svg, picture, y + 24.0);
    let columns = match picture.panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let width = (WIDTH - 2.0 * MARGIN) / columns as f64;
    for row in picture.panels.chunks(columns) {
        let mut lowest = y;
        for (column, panel) in row.iter().enumerate() {
            let x = MARGIN + width * column as f64;
            let bottom = match panel {
                Panel::Curves(curves) => draw_curves(&mut svg, curves, (x, y), width),
                Panel::Bars(bars) => draw_bars(&mut svg, bars, (x, y), width),
            };
            lowest = lowest.max(bottom);
        }
        y = lowest + 16.0;
    }
    let id = if alone { format!("{}-alone", picture.id) } else { picture.id.to_owned() };
    svg.finish(&id, (WIDTH, y + 6.0), &picture.title, &picture.says, alone)
}

/// Draws the legend, each entry once with its mark; returns the top of the panels.
fn legend(svg: &mut Svg, picture: &Picture, mut y: f64) -> f64 {
    let mut seen: Vec<(&str, &str, bool)> = Vec::new();
    let mut has_paper = false;
    for panel in &picture.panels {
        let entries: Vec<(&str, &str, bool)> = match panel {
            Panel::Curves(curves) => {
                has_paper |= !curves.marks.is_empty();
                curves.curves.iter().map(|curve| (curve.curve_style, &*curve.label, true)).collect()
            }
            Panel::Bars(bars) => {
                has_paper |= bars.bars.iter().any(|bar| bar.paper.is_some());
                let parts = bars.bars.iter().flat_map(|bar| &bar.parts);
                parts
                    .filter(|part| !part.label.is_empty())
                    .map(|part| (part.curve_style, &*part.label, false))
                    .collect()
            }
        };
        for entry in entries {
            if !seen.contains(&entry) {
                seen.push(entry);
            }
        }
    }
    if seen.is_empty() && !has_paper {
        return y;
    }
    let mut x = MARGIN;
    let paper = has_paper.then_some(("raw", PAPER, true));
    for (index, (curve_style, label, is_curve)) in seen.iter().copied().chain(paper).enumerate() {
        let width = 34.0 + 6.9 * label.chars().count() as f64 + 18.0;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + 20.0);
        }
        if index == seen.len() {
            svg.hollow((x + 12.0, y - 4.0), "raw", label);
        } else if is_curve {
            svg.path(&[(x, y - 4.0), (x + 24.0, y - 4.0)], &line_class(curve_style));
            svg.mark((x + 12.0, y - 4.0), curve_style, label);
        } else {
            svg.bar((x + 4.0, y - 11.0), (16.0, 13.0), &format!("bar {curve_style}"), label);
        }
        svg.text((x + 30.0, y), Hang::Left, "", label);
        x += width;
    }
    y + 24.0
}

fn line_class(curve_style: &str) -> String {
    format!("line {curve_style}{}", if curve_style == "raw" { " dash" } else { "" })
}

fn draw_curves(svg: &mut Svg, curves: &Curves, at: (f64, f64), width: f64) -> f64 {
    let (left, top) = (at.0 + 58.0, at.1 + 40.0);
    let names = curves.curves.iter().map(|curve| curve.label.chars().count()).max().unwrap_or(0).min(18);
    let (right, bottom) = (at.0 + width - 26.0 - LETTER * names as f64, top + FIELD);
    svg.text((at.0, at.1 + 12.0), Hang::Left, "name", &curves.title);
    svg.text((at.0, at.1 + 29.0), Hang::Left, "dim", &curves.y.0);
    let points = curves.curves.iter().flat_map(|curve| &curve.points).chain(curves.marks.iter().map(|mark| &mark.at));
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.copied().unzip();
    let lane = if curves.marks.is_empty() { 0.0 } else { PAPER_LANE };
    let (x, y) = (Axis::new(curves.x.1, &xs, left + lane, right), Axis::new(curves.y.1, &ys, bottom, top));
    for tick in y.ticks() {
        svg.line((left, y.at(tick)), (right, y.at(tick)), "grid");
        svg.text((left - 6.0, y.at(tick) + 4.0), Hang::Right, "dim", &y.scale.words(tick));
    }
    svg.line((left, bottom), (right, bottom), "axis");
    x_axis(svg, &x, xs, bottom);
    svg.text((f64::midpoint(left, right), bottom + 36.0), Hang::Middle, "dim", &curves.x.0);
    let mut ends = Vec::new();
    for curve in &curves.curves {
        let usable = curve.points.iter().filter(|(_, value)| !y.scale.is_log() || *value > 0.0);
        let places: Vec<(f64, f64)> = usable.map(|(a, b)| (x.at(*a), y.at(*b))).collect();
        svg.path(&places, &line_class(curve.curve_style));
        for ((a, b), place) in curve.points.iter().filter(|(_, value)| !y.scale.is_log() || *value > 0.0).zip(&places) {
            let hint = format!("{}: {} at {}", curve.label, y.scale.words(*b), x.scale.words(*a));
            svg.mark(*place, curve.curve_style, &hint);
        }
        ends.extend(places.last().map(|end| (end.1, curve)));
    }
    papers_own(svg, curves, &y, left + 9.0);
    // Names beside the ends of their curves, none upon another.
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = top - 8.0;
    for (end, curve) in ends {
        let at = end.max(free);
        free = at + LINE;
        svg.text((right + 8.0, at + 4.0), Hang::Left, &format!("own {}", curve.curve_style), &curve.label);
    }
    bottom + 40.0
}

/// The paper's numbers, in a column of their own before the first point, without overlap.
fn papers_own(svg: &mut Svg, curves: &Curves, y: &Axis, at: f64) {
    let mut marks: Vec<_> = curves.marks.iter().map(|mark| (y.at(mark.at.1), mark)).collect();
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::MIN;
    for (place, mark) in marks {
        let words = place.max(free);
        free = words + LINE;
        svg.hollow((at, place), mark.curve_style, &mark.label);
        svg.text((at + 11.0, words + 4.0), Hang::Left, &format!("own {}", mark.curve_style), &mark.label);
    }
}

/// Writes the numbers that were measured under the axis, as many as have room.
fn x_axis(svg: &mut Svg, x: &Axis, mut values: Vec<f64>, bottom: f64) {
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut free = f64::MIN;
    for value in values {
        let (place, words) = (x.at(value), x.scale.words(value));
        let half = words.chars().count() as f64 * LETTER / 2.0;
        svg.line((place, bottom), (place, bottom + 4.0), "axis");
        if place - half >= free {
            svg.text((place, bottom + 18.0), Hang::Middle, "dim", &words);
            free = place + half + 6.0;
        }
    }
}

fn draw_bars(svg: &mut Svg, bars: &Bars, at: (f64, f64), width: f64) -> f64 {
    let longest = bars.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let left = at.0 + (LETTER * longest as f64 + 12.0).clamp(60.0, width * 0.45);
    let right = at.0 + width - 110.0;
    svg.text((at.0, at.1 + 12.0), Hang::Left, "name", &bars.title);
    svg.text((at.0, at.1 + 29.0), Hang::Left, "dim", &bars.unit.0);
    let sum = |bar: &super::picture::Bar| bar.parts.iter().map(|part| part.value).sum::<f64>();
    let scale = bars.unit.1;
    // If only shares count, all bars have equal length.
    let is_share = scale == Scale::TimeShare;
    let length =
        |bar: &super::picture::Bar, value: f64| if is_share { value / sum(bar).max(f64::MIN_POSITIVE) } else { value };
    let values: Vec<f64> = bars.bars.iter().flat_map(|bar| [length(bar, sum(bar)), bar.paper.unwrap_or(0.0)]).collect();
    let axis = Axis::new(if scale == Scale::Time { Scale::TimeFromZero } else { scale }, &values, left, right);
    let (top, bottom) = (at.1 + 38.0, at.1 + 38.0 + BAR * bars.bars.len() as f64);
    for tick in axis.ticks() {
        svg.line((axis.at(tick), top), (axis.at(tick), bottom), "grid");
        let words = if is_share { format!("{:.0} %", tick * 100.0) } else { scale.words(tick) };
        svg.text((axis.at(tick), bottom + 16.0), Hang::Middle, "dim", &words);
    }
    for (index, bar) in bars.bars.iter().enumerate() {
        let y = top + BAR * index as f64;
        svg.text((left - 8.0, y + 16.0), Hang::Right, "", &bar.label);
        let mut from = 0.0;
        for part in &bar.parts {
            let to = from + part.value;
            let hint = format!("{} {}: {}", bar.label, part.label, scale.words(part.value));
            let (begin, end) = (axis.at(length(bar, from)), axis.at(length(bar, to)));
            svg.bar((begin, y + 4.0), ((end - begin).max(0.6), BAR - 8.0), &format!("bar {}", part.curve_style), &hint);
            from = to;
        }
        let mut end = axis.at(length(bar, from));
        if let Some(paper) = bar.paper {
            let place = axis.at(paper);
            svg.hollow((place, y + BAR / 2.0), "raw", &format!("{} in the paper: {}", bar.label, scale.words(paper)));
            if place + 9.0 > end && place - 9.0 < end + LETTER * 8.0 {
                end = place + 6.0;
            }
        }
        svg.text((end + 6.0, y + 16.0), Hang::Left, "", &scale.words(from));
    }
    svg.line((left, top), (left, bottom), "axis");
    bottom + 24.0
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, an axis would have no numbers, or numbers outside of it.
    #[test]
    fn axis_has_few_round_ticks() {
        let ticks = |scale, values: &[f64]| Axis::new(scale, values, 0.0, 100.0).ticks();
        assert_eq!(ticks(Scale::Time, &[0.4, 13.0]), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(Scale::Time, &[0.01, 900.0]), [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(ticks(Scale::Number, &[0.0, 1.0]), [0.0, 0.5, 1.0]);
        assert!(!ticks(Scale::Rate, &[]).is_empty());
        let axis = Axis::new(Scale::Bytes, &[1.0, 1024.0], 10.0, 110.0);
        assert_eq!((axis.at(1.0), axis.at(32.0), axis.at(1024.0)), (10.0, 60.0, 110.0));
    }
}
