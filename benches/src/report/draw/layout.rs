//! Layout of a figure: head, legend, and panels in rows.

use std::io;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::area::{Area, DIM, INK, Point, TEXT, bold, font, hollow, mark, rectangle, series, text, width_of, wrapped};
use super::{bars, curves, table};
use crate::report::picture::{Panel, Paper, Picture, Style};

const WIDTH: i32 = 1000;
const MARGIN: i32 = 20;
/// Maximum number of letters in a line of the summary.
const SAYS_LETTERS: usize = 122;
/// Height of a line of the summary or of the legend.
const LINE: i32 = 20;

impl Paper {
    /// The paper with its machines.
    fn words(self) -> &'static str {
        match self {
            Paper::Ddss => "the paper (2007; nodes of 8 cores, InfiniBand)",
            Paper::Sdp => "the paper (2008; 10-Gigabit Ethernet, TCP in the adapter)",
            Paper::River => "the paper (1999; UltraSPARC I, Myrinet)",
        }
    }
}

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq)]
enum Entry<'a> {
    Curve(&'a str, Style, bool),
    Bar(&'a str, Style),
    Paper(Paper),
}

impl Entry<'_> {
    fn words(&self) -> &str {
        match self {
            Entry::Curve(label, ..) | Entry::Bar(label, _) => label,
            Entry::Paper(paper) => paper.words(),
        }
    }
}

/// The picture of a figure as SVG.
pub fn draw(picture: &Picture) -> io::Result<String> {
    let says = wrapped(&picture.says, SAYS_LETTERS);
    let entries = placed(entries(picture), MARGIN + 44 + LINE * says.len() as i32);
    let mut top = entries.last().map_or(MARGIN + 34 + LINE * says.len() as i32, |(_, (_, y))| y + 24);
    let mut places = Vec::new();
    for row in rows(picture) {
        let bottom = top + row.panels.iter().map(height).max().unwrap_or(0);
        let width = (WIDTH - 2 * MARGIN) / row.columns;
        places.extend((0..).zip(row.panels).map(|(column, panel)| (panel, (MARGIN + width * column, top), width)));
        top = bottom + 16;
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, (top + 6) as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(io::Error::other)?;
        let head = format!("{} — {}", picture.number, picture.title);
        text(&area, &head, &bold(17.0, HPos::Left), (MARGIN, MARGIN + 10))?;
        for (line, words) in (1..).zip(&says) {
            text(&area, words, &font(13.0, DIM, HPos::Left), (MARGIN, MARGIN + 14 + LINE * line))?;
        }
        for (entry, at) in &entries {
            legend(&area, entry, *at)?;
        }
        for (panel, at, width) in places {
            let size = (width as u32, height(panel) as u32);
            match panel {
                Panel::Curves(curves) => curves::draw(&area, curves, at, size)?,
                Panel::Bars(bars) => bars::draw(&area, bars, at, size)?,
                Panel::Table(table) => table::draw(&area, table, at, width)?,
            }
        }
        area.present().map_err(io::Error::other)?;
    }
    // The backend writes no description for screen readers.
    let (title, says) = (escaped(&picture.title), escaped(&picture.says));
    Ok(svg.replacen('>', &format!(" role=\"img\">\n<title>{title}</title>\n<desc>{says}</desc>"), 1) + "\n")
}

/// Panels beside each other.
struct Row<'a> {
    columns: i32,
    panels: &'a [Panel],
}

/// Places panels in rows; a table has a row of its own.
fn rows<'a>(picture: &'a Picture) -> Vec<Row<'a>> {
    let is_table = |panel: &Panel| matches!(panel, Panel::Table(_));
    let columns = match picture.panels.iter().filter(|panel| !is_table(panel)).count() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let same_kind = picture.panels.chunk_by(|a, b| !is_table(a) && !is_table(b));
    let row = |panels: &'a [Panel]| {
        let columns = if panels.iter().any(is_table) { 1 } else { columns };
        panels.chunks(columns).map(move |panels| Row { columns: columns as i32, panels })
    };
    same_kind.flat_map(row).collect()
}

fn height(panel: &Panel) -> i32 {
    match panel {
        Panel::Curves(_) => curves::HEIGHT,
        Panel::Bars(bars) => bars::height(bars),
        Panel::Table(table) => table::height(table),
    }
}

/// Returns the entries of the legend, each once.
fn entries(picture: &Picture) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let mut has_paper = false;
    for panel in &picture.panels {
        match panel {
            Panel::Curves(curves) => {
                has_paper |= !curves.marks.is_empty();
                let all = curves.curves.iter();
                entries.extend(all.map(|curve| Entry::Curve(&curve.label, curve.curve_style, curve.is_dashed)));
            }
            Panel::Bars(bars) => {
                has_paper |= bars.bars.iter().any(|bar| bar.paper.is_some());
                let parts = bars.bars.iter().flat_map(|bar| &bar.parts).filter(|part| !part.label.is_empty());
                entries.extend(parts.map(|part| Entry::Bar(&part.label, part.curve_style)));
            }
            Panel::Table(table) => has_paper |= table.rows.iter().any(|row| row.paper.is_some()),
        }
    }
    if has_paper {
        entries.push(Entry::Paper(picture.paper));
    }
    let mut once: Vec<Entry<'_>> = Vec::new();
    entries.into_iter().for_each(|entry| {
        if !once.contains(&entry) {
            once.push(entry);
        }
    });
    once
}

/// Places the entries of the legend in lines from `top` on.
fn placed(entries: Vec<Entry<'_>>, top: i32) -> Vec<(Entry<'_>, Point)> {
    let (mut x, mut y) = (MARGIN, top);
    let mut place = |entry: &Entry<'_>| {
        let width = 48 + width_of(entry.words());
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        let at = (x, y);
        x += width;
        at
    };
    entries.into_iter().map(|entry| (entry.clone(), place(&entry))).collect()
}

fn legend(area: &Area<'_>, entry: &Entry<'_>, (x, y): Point) -> io::Result<()> {
    match entry {
        Entry::Curve(_, style, is_dashed) => {
            series(area, &[(x, y), (x + 24, y)], *style, *is_dashed)?;
            mark(area, *style, *is_dashed, (x + 12, y))?;
        }
        Entry::Bar(_, style) => rectangle(area, (x + 4, y - 7), (x + 20, y + 6), style.colour())?,
        Entry::Paper(_) => hollow(area, Style::Raw, (x + 12, y))?,
    }
    text(area, entry.words(), &font(TEXT, INK, HPos::Left), (x + 30, y))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
