//! A panel with bars from 0 on.

use std::io;

use plotters::coord::ranged1d::Ranged;
use plotters::style::text_anchor::HPos;

use super::area::{Area, DIM, GRID, INK, Point, TEXT, bold, font, hollow, line, rectangle, text, width_of};
use super::axis::Axis;
use crate::report::picture::{Bar, Bars, Scale, Style};

/// Height of one bar with the space below it.
const BAR: i32 = 24;
const HEAD: i32 = 40;

pub(super) fn height(bars: &Bars) -> i32 {
    HEAD + BAR * bars.bars.len() as i32 + 24
}

fn sum(bar: &Bar) -> f64 {
    bar.parts.iter().map(|part| part.value).sum()
}

/// Length of a value of a bar. If only shares count, all bars have equal length.
fn length(scale: Scale, bar: &Bar, value: f64) -> f64 {
    if scale == Scale::TimeShare { value / sum(bar).max(f64::MIN_POSITIVE) } else { value }
}

/// Draws the panel with its upper left corner at `at`.
pub(super) fn draw(root: &Area<'_>, bars: &Bars, at: Point, size: (u32, u32)) -> io::Result<()> {
    text(root, &bars.title, &bold(13.0, HPos::Left), (at.0, at.1 + 10))?;
    text(root, &bars.unit.0, &font(TEXT, DIM, HPos::Left), (at.0, at.1 + 28))?;
    let scale = bars.unit.1;
    let left = at.0 + bars.bars.iter().map(|bar| width_of(&bar.label)).max().unwrap_or(0) + 12;
    let right = at.0 + size.0 as i32 - 76;
    let values = bars.bars.iter().flat_map(|bar| [length(scale, bar, sum(bar)), bar.paper.unwrap_or(0.0)]);
    let axis = Axis::new(if scale == Scale::TimeShare { Scale::Percent } else { scale }, values);
    let x = |value| axis.map(&value, (left, right));
    let (top, bottom) = (at.1 + HEAD, at.1 + HEAD + BAR * bars.bars.len() as i32);
    let mut free = i32::MIN;
    for tick in axis.ticks().iter().copied() {
        line(root, vec![(x(tick), top), (x(tick), bottom)], GRID, 1)?;
        let words = if scale == Scale::TimeShare { Scale::Percent.words(tick * 100.0) } else { axis.scale.words(tick) };
        let half = width_of(&words) / 2;
        if x(tick) - half > free {
            text(root, &words, &font(TEXT, DIM, HPos::Center), (x(tick), bottom + 12))?;
            free = x(tick) + half + 4;
        }
    }
    for (row, bar) in (0..).zip(&bars.bars) {
        let middle = top + BAR * row + BAR / 2;
        text(root, &bar.label, &font(TEXT, INK, HPos::Right), (left - 8, middle))?;
        let mut from = 0.0;
        for part in &bar.parts {
            let (begin, end) = (x(length(scale, bar, from)), x(length(scale, bar, from + part.value)));
            rectangle(root, (begin, middle - 8), (end.max(begin + 1), middle + 8), part.curve_style.colour())?;
            from += part.value;
        }
        let mut end = x(length(scale, bar, from));
        if let Some(paper) = bar.paper {
            hollow(root, Style::Raw, (x(paper), middle))?;
            end = past(end, x(paper));
        }
        text(root, &scale.words(from), &font(TEXT, INK, HPos::Left), (end + 6, middle))?;
    }
    line(root, vec![(left, top), (left, bottom)], DIM, 1)
}

/// Returns the position of a text behind a bar, so that it does not overlap the mark of the paper.
pub(super) fn past(end: i32, mark: i32) -> i32 {
    if mark + 9 > end && mark - 9 < end + 64 { mark + 9 } else { end }
}
