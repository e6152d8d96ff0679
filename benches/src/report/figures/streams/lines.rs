//! The streams of the bench `wire`, as lines of a panel.

use crate::report::figures::curve;
use crate::report::picture::{Curve, Style};
use crate::report::rows::{Entry, Rows};

/// A stream: the name and the mode of its rows, and its style.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) mode: &'static str,
    pub(super) label: &'static str,
    pub(super) style: Style,
    pub(super) is_dashed: bool,
}

const FRAMED: &str = "tcp-lo/framed/t1";
const PLAIN: &str = "tcp-lo/plain/t1";

const fn line(name: &'static str, mode: &'static str, label: &'static str, style: Style, is_dashed: bool) -> Line {
    Line { name, mode, label, style, is_dashed }
}

pub(super) const TCP: Line = line("tcp", "tcp-lo/bare/t1", "bare TCP", Style::Raw, false);
pub(super) const BASIC: Line = line("basic", FRAMED, "basic", Style::Mq, false);
pub(super) const BATCHED: Line = line("basic-batched", FRAMED, "basic, one system call a write", Style::Rmq, false);
pub(super) const ENHANCED: Line = line("enhanced", FRAMED, "enhanced", Style::Rcq, false);
pub(super) const PLAIN_BASIC: Line = line("basic", PLAIN, "basic, no markers, no CRC", Style::Mq, true);
pub(super) const PLAIN_ENHANCED: Line = line("enhanced", PLAIN, "enhanced, no markers, no CRC", Style::Rcq, true);
/// All lines of a panel with absolute numbers.
pub(super) const LINES: [Line; 6] = [TCP, BASIC, BATCHED, ENHANCED, PLAIN_BASIC, PLAIN_ENHANCED];
/// Lines that are compared with the basic plan of the same framing.
pub(super) const COMPARED: [Line; 3] = [BATCHED, ENHANCED, PLAIN_ENHANCED];

impl Line {
    /// Returns the stream's row for an operation of `size` bytes.
    pub(super) fn at<'a>(&self, rows: &'a Rows, op: &str, size: u64) -> Option<&'a Entry> {
        rows.one("wire", self.name, op, size, self.mode)
    }

    /// The curve of an operation over its size.
    pub(super) fn curve(&self, rows: &Rows, op: &str, y: impl Fn(&Entry) -> Option<f64>) -> Option<Curve> {
        let own = rows.of("wire").filter(|row| (&*row.name, &*row.op, &*row.mode) == (self.name, op, self.mode));
        let mut points: Vec<(f64, f64)> = own.filter_map(|row| Some((row.size as f64, y(row)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!points.is_empty()).then(|| Curve { is_dashed: self.is_dashed, ..curve(self.label, self.style, points) })
    }
}
