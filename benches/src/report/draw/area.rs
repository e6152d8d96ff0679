//! Colours, text and marks on a plotters drawing area.

use std::io;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::picture::Style;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Position in pixels.
pub(super) type Point = (i32, i32);

pub(super) const INK: RGBColor = RGBColor(0x18, 0x18, 0x1b);
pub(super) const DIM: RGBColor = RGBColor(0x52, 0x52, 0x5b);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe7);

/// Size of ordinary text in pixels.
pub(super) const TEXT: f64 = 12.0;
/// Width of a letter of ordinary text in pixels, at most: of DejaVu Sans, the widest of the usual fonts.
pub(super) const LETTER: f64 = 7.4;
/// The SVG backend divides font sizes by this number.
const FONT_SCALE: f64 = 1.24;

impl Style {
    pub(super) fn colour(self) -> RGBColor {
        match self {
            Style::Mq => RGBColor(0xb4, 0x53, 0x09),
            Style::Rmq => RGBColor(0x6d, 0x28, 0xd9),
            Style::Rcq => RGBColor(0x0f, 0x76, 0x6e),
            Style::Auto => RGBColor(0xbe, 0x12, 0x3c),
            Style::Raw => DIM,
            Style::Peer => RGBColor(0x1d, 0x4e, 0xd8),
            Style::Without => RGBColor(0x4d, 0x7c, 0x0f),
        }
    }
}

/// Style of a text of this size.
pub(super) fn font(pixels: f64, colour: RGBColor, hang: HPos) -> TextStyle<'static> {
    ("sans-serif", pixels * FONT_SCALE).into_font().color(&colour).pos(Pos::new(hang, VPos::Center))
}

/// Style of an ordinary text in bold letters.
pub(super) fn bold(pixels: f64, hang: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", pixels * FONT_SCALE).into_font().style(FontStyle::Bold);
    font.color(&INK).pos(Pos::new(hang, VPos::Center))
}

/// Writes text beside or around a point, with its middle at the point's height.
pub(super) fn text(area: &Area<'_>, words: &str, style: &TextStyle<'_>, at: Point) -> io::Result<()> {
    area.draw_text(words, style, at).map_err(io::Error::other)
}

pub(super) fn rectangle(area: &Area<'_>, from: Point, to: Point, colour: RGBColor) -> io::Result<()> {
    area.draw(&Rectangle::new([from, to], colour.filled())).map_err(io::Error::other)
}

pub(super) fn line(area: &Area<'_>, points: Vec<Point>, colour: RGBColor, width: u32) -> io::Result<()> {
    area.draw(&PathElement::new(points, colour.stroke_width(width))).map_err(io::Error::other)
}

/// Draws the line of a series, with dashes for a limit of the machine or if `is_dashed`, and with dots for both.
pub(super) fn series(area: &Area<'_>, points: &[Point], style: Style, is_dashed: bool) -> io::Result<()> {
    let look = style.colour().stroke_width(2);
    let dashes = |length, gap| area.draw(&DashedPathElement::new(points.iter().copied(), length, gap, look));
    let drawn = match (is_dashed, style) {
        (true, Style::Raw) => dashes(1, 3),
        (true, _) | (_, Style::Raw) => dashes(5, 4),
        _ => area.draw(&PathElement::new(points.to_vec(), look)),
    };
    drawn.map_err(io::Error::other)
}

/// Draws the mark of a series: each style has its own shape, so that colours are not needed to distinguish series.
pub(super) fn mark(area: &Area<'_>, style: Style, is_dashed: bool, (x, y): Point) -> io::Result<()> {
    let colour = style.colour().filled();
    let polygon = |points: Vec<Point>| area.draw(&Polygon::new(points, colour)).map_err(io::Error::other);
    match style {
        Style::Mq => area.draw(&Circle::new((x, y), 4, colour)).map_err(io::Error::other),
        Style::Rmq => rectangle(area, (x - 4, y - 4), (x + 4, y + 4), style.colour()),
        Style::Rcq => polygon(vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)]),
        Style::Auto => polygon(diamond((x, y), 5)),
        Style::Peer => polygon(vec![(x - 5, y - 4), (x + 5, y - 4), (x, y + 5)]),
        Style::Without => rectangle(area, (x - 5, y - 2), (x + 5, y + 2), style.colour()),
        Style::Raw if is_dashed => {
            area.draw(&Circle::new((x, y), 4, WHITE.filled())).map_err(io::Error::other)?;
            area.draw(&Circle::new((x, y), 4, style.colour().stroke_width(1))).map_err(io::Error::other)
        }
        Style::Raw => area.draw(&Circle::new((x, y), 2, colour)).map_err(io::Error::other),
    }
}

/// Draws the hollow mark of a number of the paper.
pub(super) fn hollow(area: &Area<'_>, style: Style, at: Point) -> io::Result<()> {
    let mut points = diamond(at, 7);
    area.draw(&Polygon::new(points.clone(), WHITE.filled())).map_err(io::Error::other)?;
    points.push(points[0]);
    line(area, points, style.colour(), 2)
}

fn diamond((x, y): Point, radius: i32) -> Vec<Point> {
    vec![(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)]
}

/// Width of a text in pixels, at most.
pub(super) fn width_of(words: &str) -> i32 {
    (words.chars().count() as f64 * LETTER).ceil() as i32
}

/// Breaks a text into lines of at most `most` letters.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every style.
    const STYLES: [Style; 7] =
        [Style::Mq, Style::Rmq, Style::Rcq, Style::Auto, Style::Raw, Style::Peer, Style::Without];

    // If this failed, a reader could not distinguish two series, or only by their colours.
    #[test]
    fn each_style_has_its_own_line_and_mark() {
        let looks = STYLES.into_iter().flat_map(|style| [false, true].map(|is_dashed| (style, is_dashed)));
        let drawn = |(style, is_dashed): (Style, bool)| {
            let mut svg = String::new();
            let area = SVGBackend::with_string(&mut svg, (60, 20)).into_drawing_area();
            series(&area, &[(0, 10), (60, 10)], style, is_dashed).unwrap();
            mark(&area, style, is_dashed, (30, 10)).unwrap();
            area.present().unwrap();
            drop(area);
            // Removes the colours.
            svg.split('#').map(|part| part.get(6..).unwrap_or(part)).collect::<String>()
        };
        let pictures: BTreeSet<String> = looks.map(drawn).collect();
        assert_eq!(pictures.len(), 2 * STYLES.len());
    }
}
