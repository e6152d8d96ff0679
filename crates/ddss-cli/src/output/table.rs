//! Tables for people.

use super::terminal_text::{columns, letter_width, note, width, wrapped};

/// Rows under a head; the last column is not padded.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of numbers, whose last digits stand under each other.
    right: Vec<usize>,
    /// Columns that a narrow terminal does without, the first one first.
    spare: Vec<usize>,
    /// Whether the last column is a sentence, which goes on in the next line.
    flows: bool,
}

/// Letters that are left of a column in a narrow terminal.
const COLUMN_LEAST: usize = 8;

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|&word| word.to_owned()).collect();
        Self { rows: vec![head], right: Vec::new(), spare: Vec::new(), flows: false }
    }

    /// These columns are numbers.
    pub(crate) fn right(&mut self, columns: &[usize]) {
        self.right.extend_from_slice(columns);
    }

    /// Where there is no room for all columns, these are left out, the first one first.
    pub(crate) fn spare(&mut self, columns: &[usize]) {
        self.spare.extend_from_slice(columns);
    }

    /// The last column is a sentence.
    pub(crate) fn flows(&mut self) {
        self.flows = true;
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Rows under the head.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How wide each column is; 0 where it is left out.
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
        for &column in &self.spare {
            let least: Vec<usize> = widths.iter().map(|&width| width.min(COLUMN_LEAST)).collect();
            if taken(&least) > most {
                widths[column] = 0;
            }
        }
        while taken(&widths) > most
            && let Some(widest) = widths.iter_mut().max().filter(|width| **width > COLUMN_LEAST)
        {
            *widest -= 1;
        }
        widths
    }

    /// The lines in a terminal of so many columns, each column as wide as its widest cell. Where they have to be, columns are
    /// left out that were said to be spare, then the widest ones are cut, and say so.
    pub(crate) fn lines_within(&self, most: usize) -> Vec<String> {
        let widths = self.widths(most);
        let last = widths.len().saturating_sub(1);
        let indent: usize = widths.iter().take(last).filter(|width| **width > 0).map(|width| width + 2).sum();
        let mut lines = Vec::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0);
            let cells = cells.map(|(column, (cell, &width))| match column {
                _ if self.flows && column == last => cell.clone(),
                _ if self.right.contains(&column) => padded_left(&cut(cell, width), width),
                // Names that begin alike are told apart by their ends.
                0 => padded(cut_inside(cell, width), width),
                _ => padded(cut(cell, width), width),
            });
            let line = cells.collect::<Vec<_>>().join("  ").trim_end().to_owned();
            if self.flows { lines.extend(wrapped(&line, indent, most)) } else { lines.push(line) }
        }
        lines
    }

    /// The same to standard error, beside a question.
    pub(crate) fn print_as_note(&self) {
        self.lines_within(columns(std::io::stderr()).unwrap_or(usize::MAX)).iter().for_each(|line| note(line));
    }

    /// The same; where there is no row the head stands alone, and this sentence goes to standard error.
    pub(crate) fn print_or(&self, nothing: &str) {
        self.print();
        if self.is_empty() {
            note(nothing);
        }
    }

    /// To standard output; in a terminal no line is broken by its edge.
    pub(crate) fn print(&self) {
        self.lines_within(columns(std::io::stdout()).unwrap_or(usize::MAX)).iter().for_each(|line| println!("{line}"));
    }
}

/// With blanks behind it. (The padding of `format!` counts letters, of which some take two columns.)
fn padded(mut cell: String, most: usize) -> String {
    let blanks = most.saturating_sub(width(&cell));
    cell.extend(std::iter::repeat_n(' ', blanks));
    cell
}

/// With blanks before it.
fn padded_left(cell: &str, most: usize) -> String {
    format!("{}{cell}", " ".repeat(most.saturating_sub(width(cell))))
}

/// As many letters as there is room for.
fn fitting(letters: impl Iterator<Item = char>, most: usize) -> Vec<char> {
    let mut taken = 0;
    letters
        .take_while(|&letter| {
            taken += letter_width(letter);
            taken <= most
        })
        .collect()
}

/// As much of it as there is room for.
fn cut(cell: &str, most: usize) -> String {
    if width(cell) <= most {
        return cell.to_owned();
    }
    fitting(cell.chars(), most.saturating_sub(1)).into_iter().chain(['…']).collect()
}

/// Its beginning and its end, if there is no room for all of it.
fn cut_inside(cell: &str, most: usize) -> String {
    if width(cell) <= most {
        return cell.to_owned();
    }
    let tail = fitting(cell.chars().rev(), most.saturating_sub(1) / 2);
    let taken: usize = tail.iter().copied().map(letter_width).sum();
    let head = fitting(cell.chars(), most.saturating_sub(1 + taken));
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// 4.0K, 1.5M: three figures are enough for a table.
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { bytes.to_string() } else { format!("{value:.1}{}", UNITS[unit]) }
}

/// A span of time, as short as it makes sense.
pub(crate) fn seconds_in_words(micros: u32) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{:.1} s", f64::from(micros) / 1e6),
    }
}

/// A moment as people write it, in UTC, to the microsecond.
pub(crate) fn time_in_words(micros: u64) -> String {
    if micros == 0 {
        return "never".to_owned();
    }
    let (days, rest) = (micros / 86_400_000_000, micros % 86_400_000_000);
    let (year, month, day) = date(days);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06} UTC")
}

/// Year, month and day of so many days after 1970 began.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        // If this broke, a number would be read as another one's.
        let mut table = Table::new(&["NAME", "BYTES", "HOME"]);
        table.row(vec!["größe".to_owned(), bytes_in_words(1536), "1".to_owned()]);
        assert_eq!(table.lines_within(usize::MAX), ["NAME   BYTES  HOME", "größe  1.5K   1"]);
        table.right(&[1]);
        assert_eq!(table.lines_within(usize::MAX), ["NAME   BYTES  HOME", "größe   1.5K  1"]);
        table.row(vec!["a name that is longer".to_owned(), "1".to_owned(), "22".to_owned()]);
        assert_eq!(table.lines_within(24)[2], "a nam…onger      1  22");
        assert!(table.lines_within(24).iter().all(|line| line.chars().count() <= 24));
        table.row(vec!["温度 of a room somewhere".to_owned(), "1".to_owned(), "3".to_owned()]);
        assert_eq!(table.lines_within(24)[3], "温度 …where      1  3");
        assert_eq!(table.rows.pop().map(|row| row.len()), Some(3));
        table.spare(&[1]);
        assert_eq!(
            table.lines_within(15),
            ["NAME       HOME", "größe      1", "a na…nger  22"].map(|line| line.to_owned())
        );
        let mut told = Table::new(&["NAME", "WHAT"]);
        told.flows();
        told.row(vec!["parks".to_owned(), "times that the progress thread went to sleep".to_owned()]);
        assert_eq!(told.lines_within(34)[1..], ["parks  times that the progress", "       thread went to sleep"]);
        assert_eq!((seconds_in_words(999), seconds_in_words(1_500_000)), ("999 µs".to_owned(), "1.5 s".to_owned()));
        assert_eq!(time_in_words(951_782_400_000_001), "2000-02-29 00:00:00.000001 UTC");
        assert_eq!(time_in_words(1_795_305_599_999_999), "2026-11-21 23:59:59.999999 UTC");
        assert_eq!(time_in_words(0), "never");
        assert_eq!((bytes_in_words(1023), bytes_in_words(1 << 40)), ("1023".to_owned(), "1.0T".to_owned()));
    }
}
