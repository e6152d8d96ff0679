//! Tables for a terminal, and the number formats in their cells.

use super::terminal_text::{char_width, columns, print_note, width, wrapped};
use ddss::Timestamp;

/// A table with a header row; the last column is not padded.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns that are aligned to the right.
    align_right: Vec<usize>,
    /// Columns that a narrow terminal omits, in this order.
    optional: Vec<usize>,
    /// True if the last column is a sentence, which wraps into the next line.
    wrap_last: bool,
}

/// Minimum width of a column in a narrow terminal.
const COLUMN_MIN: usize = 8;

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|&word| word.to_owned()).collect();
        Self { rows: vec![head], align_right: Vec::new(), optional: Vec::new(), wrap_last: false }
    }

    /// Aligns these columns to the right.
    pub(crate) fn align_right(&mut self, columns: &[usize]) {
        self.align_right.extend_from_slice(columns);
    }

    /// Lets a narrow terminal omit these columns, in this order.
    pub(crate) fn set_optional(&mut self, columns: &[usize]) {
        self.optional.extend_from_slice(columns);
    }

    /// Wraps the last column into the next line.
    pub(crate) fn wrap_last(&mut self) {
        self.wrap_last = true;
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns the number of rows without the header.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the width of each column; 0 if the column is omitted.
    fn widths(&self, most: usize) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(widest).collect();
        let taken = |widths: &[usize]| {
            let seen = widths.iter().filter(|width| **width > 0);
            seen.clone().sum::<usize>() + 2 * seen.count().saturating_sub(1)
        };
        for &column in &self.optional {
            let least: Vec<usize> = widths.iter().map(|&width| width.min(COLUMN_MIN)).collect();
            if taken(&least) > most {
                widths[column] = 0;
            }
        }
        while taken(&widths) > most
            && let Some(widest) = widths.iter_mut().max().filter(|width| **width > COLUMN_MIN)
        {
            *widest -= 1;
        }
        widths
    }

    /// Formats the lines for a terminal of `most` columns. Each column is as wide as its widest cell. If the row is too wide,
    /// optional columns are omitted first, then the widest cells are truncated with an ellipsis.
    pub(crate) fn format_lines(&self, most: usize) -> Vec<String> {
        let widths = self.widths(most);
        let last = widths.len().saturating_sub(1);
        let indent: usize = widths.iter().take(last).filter(|width| **width > 0).map(|width| width + 2).sum();
        let mut lines = Vec::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0);
            let cells = cells.map(|(column, (cell, &width))| match column {
                _ if self.wrap_last && column == last => cell.clone(),
                _ if self.align_right.contains(&column) => pad_left(&truncate(cell, width), width),
                // Truncating the middle keeps names with a common prefix distinct.
                0 => pad_right(truncate_middle(cell, width), width),
                _ => pad_right(truncate(cell, width), width),
            });
            let line = cells.collect::<Vec<_>>().join("  ").trim_end().to_owned();
            if self.wrap_last { lines.extend(wrapped(&line, indent, most)) } else { lines.push(line) }
        }
        lines
    }

    /// Prints the table to standard error, above a question.
    pub(crate) fn print_to_stderr(&self) {
        self.format_lines(columns(std::io::stderr()).unwrap_or(usize::MAX)).iter().for_each(|line| print_note(line));
    }

    /// Prints the table; without rows, prints the header and a note to standard error.
    pub(crate) fn print_or(&self, nothing: &str) {
        self.print();
        if self.is_empty() {
            print_note(nothing);
        }
    }

    /// Prints the table to standard output, no wider than its terminal.
    pub(crate) fn print(&self) {
        self.format_lines(columns(std::io::stdout()).unwrap_or(usize::MAX)).iter().for_each(|line| println!("{line}"));
    }
}

/// Pads a cell on the right. (`format!` counts characters, of which some take two columns.)
fn pad_right(mut cell: String, most: usize) -> String {
    let blanks = most.saturating_sub(width(&cell));
    cell.extend(std::iter::repeat_n(' ', blanks));
    cell
}

/// Pads a cell on the left.
fn pad_left(cell: &str, most: usize) -> String {
    format!("{}{cell}", " ".repeat(most.saturating_sub(width(cell))))
}

/// Returns the longest prefix that fits into `most` columns.
fn take_fitting(letters: impl Iterator<Item = char>, most: usize) -> Vec<char> {
    let mut taken = 0;
    letters
        .take_while(|&letter| {
            taken += char_width(letter);
            taken <= most
        })
        .collect()
}

/// Truncates the end of a cell.
fn truncate(cell: &str, most: usize) -> String {
    if width(cell) <= most {
        return cell.to_owned();
    }
    take_fitting(cell.chars(), most.saturating_sub(1)).into_iter().chain(['…']).collect()
}

/// Truncates the middle of a cell.
fn truncate_middle(cell: &str, most: usize) -> String {
    if width(cell) <= most {
        return cell.to_owned();
    }
    let tail = take_fitting(cell.chars().rev(), most.saturating_sub(1) / 2);
    let taken: usize = tail.iter().copied().map(char_width).sum();
    let head = take_fitting(cell.chars(), most.saturating_sub(1 + taken));
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// Formats a number of bytes with a binary suffix (`4.0K`, `1.5M`).
pub(crate) fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { bytes.to_string() } else { format!("{value:.1}{}", UNITS[unit]) }
}

/// Formats a duration of at most some seconds.
pub(crate) fn format_micros(micros: u32) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{:.1} s", f64::from(micros) / 1e6),
    }
}

/// Formats a timestamp in UTC with microseconds.
pub(crate) fn format_timestamp(micros: u64) -> String {
    Timestamp(micros << Timestamp::COUNTER_BITS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_their_headers() {
        let mut table = Table::new(&["NAME", "BYTES", "HOME"]);
        table.row(vec!["größe".to_owned(), format_bytes(1536), "1".to_owned()]);
        assert_eq!(table.format_lines(usize::MAX), ["NAME   BYTES  HOME", "größe  1.5K   1"]);
        table.align_right(&[1]);
        assert_eq!(table.format_lines(usize::MAX), ["NAME   BYTES  HOME", "größe   1.5K  1"]);
        table.row(vec!["a name that is longer".to_owned(), "1".to_owned(), "22".to_owned()]);
        assert_eq!(table.format_lines(24)[2], "a nam…onger      1  22");
        assert!(table.format_lines(24).iter().all(|line| line.chars().count() <= 24));
        table.row(vec!["温度 of a room somewhere".to_owned(), "1".to_owned(), "3".to_owned()]);
        assert_eq!(table.format_lines(24)[3], "温度 …where      1  3");
        assert_eq!(table.rows.pop().map(|row| row.len()), Some(3));
        table.set_optional(&[1]);
        assert_eq!(
            table.format_lines(15),
            ["NAME       HOME", "größe      1", "a na…nger  22"].map(|line| line.to_owned())
        );
        let mut wrapping = Table::new(&["NAME", "WHAT"]);
        wrapping.wrap_last();
        wrapping.row(vec!["parks".to_owned(), "times that the progress thread went to sleep".to_owned()]);
        assert_eq!(wrapping.format_lines(34)[1..], ["parks  times that the progress", "       thread went to sleep"]);
        assert_eq!((format_micros(999), format_micros(1_500_000)), ("999 µs".to_owned(), "1.5 s".to_owned()));
        assert_eq!(format_timestamp(951_782_400_000_001), "2000-02-29 00:00:00.000001 UTC");
        assert_eq!((format_bytes(1023), format_bytes(1 << 40)), ("1023".to_owned(), "1.0T".to_owned()));
    }
}
