//! A panel with curves over two axes.

use std::io;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::area::{Area, DIM, GRID, LETTER, Point, TEXT, bold, font, hollow, line, mark, series, text, width_of};
use super::axis::Axis;
use crate::report::picture::{Curves, Mark};

pub(super) const HEIGHT: i32 = 330;
/// Height of the title and of the name of the y axis.
const HEAD: i32 = 40;
/// Room for the numbers of each axis.
const LEFT: i32 = 64;
const BOTTOM: i32 = 50;
const RIGHT: i32 = 14;
/// Free part of each axis at its ends, so that marks lie inside.
const EDGE: f64 = 0.03;
/// Height of a line of labels.
const LINE: i32 = 15;

/// Draws the panel with its upper left corner at `(x, y)`.
pub(super) fn draw(root: &Area<'_>, curves: &Curves, at: Point, size: (u32, u32)) -> io::Result<()> {
    text(root, &curves.title, &bold(13.0, HPos::Left), (at.0, at.1 + 10))?;
    text(root, &curves.y.0, &font(TEXT, DIM, HPos::Left), (at.0, at.1 + 28))?;
    let points = || curves.curves.iter().flat_map(|curve| &curve.points).copied();
    // The paper's numbers have a strip of their own before the first point.
    let lane = curves.marks.iter().map(|mark| width_of(&mark.label) + 30).max().unwrap_or(0);
    let width = size.0 as i32 - LEFT - RIGHT;
    let xs = || points().map(|point| point.0);
    let x = Axis::along(curves.x.1, xs()).with_free(f64::from(lane) / f64::from(width) + EDGE, EDGE);
    let x = x.with_ticks_of(xs(), width, LETTER);
    let ys = points().map(|point| point.1).chain(curves.marks.iter().map(|mark| mark.value));
    let y = Axis::new(curves.y.1, ys).with_free(0.0, EDGE);
    let is_drawn = |point: &(f64, f64)| x.has(point.0) && y.has(point.1);

    let panel = root.clone().shrink((at.0, at.1 + HEAD), (size.0, size.1 - HEAD as u32));
    let mut chart = ChartBuilder::on(&panel)
        .margin_right(RIGHT)
        .margin_top(4)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(io::Error::other)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(DIM)
        .label_style(font(TEXT, DIM, HPos::Left))
        .axis_desc_style(font(TEXT, DIM, HPos::Left))
        .x_desc(&*curves.x.0)
        .draw()
        .map_err(io::Error::other)?;

    for curve in &curves.curves {
        let drawn = curve.points.iter().filter(|point| is_drawn(point));
        let places: Vec<Point> = drawn.map(|point| chart.backend_coord(point)).collect();
        series(root, &places, curve.curve_style, curve.is_dashed)?;
        for place in places {
            mark(root, curve.curve_style, curve.is_dashed, place)?;
        }
    }
    let first = xs().find(|first| x.has(*first)).unwrap_or(1.0);
    let marks = curves.marks.iter().map(|mark| (chart.backend_coord(&(first, mark.value)).1, mark)).collect();
    papers_own(root, marks, at.0 + LEFT + 12)
}

/// Draws the paper's numbers one below the other. A label without room beside its mark moves down.
fn papers_own(root: &Area<'_>, mut marks: Vec<(i32, &Mark)>, x: i32) -> io::Result<()> {
    marks.sort_by_key(|(place, _)| *place);
    let mut free = i32::MIN;
    for (place, mark) in marks {
        let words = place.max(free);
        free = words + LINE;
        if words - place > LINE / 2 {
            line(root, vec![(x, place), (x + 11, words)], mark.curve_style.colour(), 1)?;
        }
        hollow(root, mark.curve_style, (x, place))?;
        text(root, &mark.label, &font(TEXT, mark.curve_style.colour(), HPos::Left), (x + 12, words))?;
    }
    Ok(())
}
