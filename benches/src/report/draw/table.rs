//! A panel with a table, whose rows end with a bar.

use std::io;

use plotters::coord::ranged1d::Ranged;
use plotters::style::text_anchor::HPos;

use super::area::{Area, DIM, GRID, INK, Point, TEXT, bold, font, hollow, line, rectangle, text, width_of};
use super::axis::Axis;
use super::bars::past;
use crate::report::picture::{Style, Table};

/// Height of a row.
const ROW: i32 = 24;
const HEAD: i32 = 60;
/// Distance of two columns.
const GAP: i32 = 8;

pub(super) fn height(table: &Table) -> i32 {
    HEAD + ROW * table.rows.len() as i32 + 24
}

/// Returns the right end of each column. A column is as wide as its text.
fn columns(table: &Table, x: i32) -> Vec<i32> {
    let mut end = x;
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(column)).chain(table.columns.get(column));
        cells.map(|words| width_of(words)).max().unwrap_or(0)
    };
    (0..table.columns.len())
        .map(|column| {
            end += width(column) + if column == 0 { 0 } else { GAP };
            end
        })
        .collect()
}

/// Draws the panel with its upper left corner at `at`.
pub(super) fn draw(root: &Area<'_>, table: &Table, at: Point, width: i32) -> io::Result<()> {
    text(root, &table.title, &bold(13.0, HPos::Left), (at.0, at.1 + 10))?;
    let ends = columns(table, at.0);
    let (left, right) = (ends.last().copied().unwrap_or(at.0) + GAP + 10, at.0 + width - 60);
    let (top, bottom) = (at.1 + HEAD, at.1 + HEAD + ROW * table.rows.len() as i32);
    let row_of = |cells: &[String], middle: i32, colour| {
        for (column, (words, end)) in cells.iter().zip(&ends).enumerate() {
            let (hang, place) = if column == 0 { (HPos::Left, at.0) } else { (HPos::Right, *end) };
            text(root, words, &font(TEXT, colour, hang), (place, middle))?;
        }
        io::Result::Ok(())
    };
    row_of(&table.columns, at.1 + 46, DIM)?;
    text(root, &table.unit.0, &font(TEXT, DIM, HPos::Left), (left, at.1 + 46))?;
    let scale = table.unit.1;
    let axis = Axis::new(scale, table.rows.iter().flat_map(|row| [row.bar, row.paper]).flatten());
    let x = |value| axis.map(&value, (left, right));
    for tick in axis.ticks().iter().copied() {
        line(root, vec![(x(tick), top), (x(tick), bottom)], GRID, 1)?;
        text(root, &scale.words(tick), &font(TEXT, DIM, HPos::Center), (x(tick), bottom + 12))?;
    }
    for (index, row) in (0..).zip(&table.rows) {
        let middle = top + ROW * index + ROW / 2;
        line(root, vec![(at.0, top + ROW * index), (left - 10, top + ROW * index)], GRID, 1)?;
        row_of(&row.cells, middle, INK)?;
        let mut end = left;
        if let Some(bar) = row.bar {
            end = x(bar);
            rectangle(root, (left, middle - 8), (end.max(left + 1), middle + 8), table.curve_style.colour())?;
        }
        if let Some(paper) = row.paper {
            hollow(root, Style::Raw, (x(paper), middle))?;
            end = past(end, x(paper));
        }
        if let Some(bar) = row.bar {
            text(root, &scale.words(bar), &font(TEXT, INK, HPos::Left), (end + 6, middle))?;
        }
    }
    line(root, vec![(left, top), (left, bottom)], DIM, 1)
}
