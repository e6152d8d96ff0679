//! Tables for people.

/// Rows under a head; the last column is not padded.
#[derive(Debug)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&word| word.to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    /// The lines, each column as wide as its widest cell.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.0.iter().map(line).collect()
    }

    pub(crate) fn print(&self) {
        self.lines().iter().for_each(|line| println!("{line}"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        // If this broke, a number would be read as another one's.
        let mut table = Table::new(&["NAME", "BYTES", "HOME"]);
        table.row(vec!["größe".to_owned(), bytes_in_words(1536), "1".to_owned()]);
        assert_eq!(table.lines(), ["NAME   BYTES  HOME", "größe  1.5K   1"]);
        assert_eq!((bytes_in_words(1023), bytes_in_words(1 << 40)), ("1023".to_owned(), "1.0T".to_owned()));
    }
}
