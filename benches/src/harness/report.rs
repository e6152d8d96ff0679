//! Rows for programs, and a table for people.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Compared, EXTRA_COLUMNS, ExtraColumns, Figure};

/// Columns of every row.
pub const CONTRACT: &str = "name,op,size,mode,outstanding,p50_us,p99_us,ops_per_s";

/// The first line of the rows.
pub(crate) fn header() -> String {
    format!("{CONTRACT},{}", EXTRA_COLUMNS.join(","))
}

/// One figure of the report.
#[derive(Debug, Clone)]
pub struct Row {
    /// The first five columns: name, op, size, mode, outstanding.
    pub label: String,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Operations a second.
    pub operations_per_s: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Ratio of the median to the limit's; `None` for the limit itself.
    pub ratio: Option<f64>,
    /// Ratio of the rate to the limit's; `None` for the limit itself.
    pub rate_ratio: Option<f64>,
    /// Optional columns.
    pub more: ExtraColumns,
    /// Notes.
    pub notes: Vec<String>,
}

impl Row {
    pub(crate) fn new(figure: &Figure, compared: &Compared, is_limit: bool) -> Row {
        let sample = &compared.figure;
        let mut notes = figure.notes.clone();
        if compared.is_noisy() {
            notes.push("NOISY: the limit moved in every round".to_owned());
        } else if compared.thrown > 0 {
            notes.push(format!("{} of {} slices thrown away", compared.thrown, compared.thrown + compared.kept));
        }
        if sample.laps_per_reading > 1 {
            notes.push(format!("percentiles are of means of {}", sample.laps_per_reading));
        }
        let row = Row::of(&figure.label(), compared, notes);
        if is_limit { Row { ratio: None, rate_ratio: None, ..row } } else { row }
    }

    pub(crate) fn of(label: &str, compared: &Compared, notes: Vec<String>) -> Row {
        let sample = &compared.figure;
        Row {
            label: label.to_owned(),
            p50_us: sample.quantile_us(0.5),
            p99_us: sample.quantile_us(0.99),
            operations_per_s: sample.operations_per_s(),
            p999_us: sample.quantile_us(0.999),
            ratio: Some(compared.ratio()),
            rate_ratio: Some(compared.rate_ratio()),
            more: ExtraColumns::default(),
            notes,
        }
    }

    /// Creates the row of a rate that is a part of the peak. No operation was timed.
    pub fn fraction(label: String, fraction: f64, notes: Vec<String>) -> Row {
        Row {
            label,
            p50_us: 0.0,
            p99_us: 0.0,
            operations_per_s: fraction,
            p999_us: 0.0,
            ratio: None,
            rate_ratio: None,
            more: ExtraColumns::default(),
            notes,
        }
    }

    /// Formats the row: the contract's columns, then the optional ones. A value that was not measured is empty.
    pub fn csv(&self) -> String {
        let contract = format!("{},{:.4},{:.4},{}", self.label, self.p50_us, self.p99_us, self.rate());
        let ratios = [Some(self.p999_us), self.ratio, self.rate_ratio];
        let numbers = ratios.into_iter().chain(self.more.values());
        let numbers = numbers.map(|number| {
            // A division by zero gives no number.
            number.filter(|number| number.is_finite()).map_or_else(String::new, |number| format!("{number:.4}"))
        });
        let notes = self.notes.join("; ").replace(',', ";").replace('\n', " ");
        [contract].into_iter().chain(numbers).chain([notes]).collect::<Vec<_>>().join(",")
    }

    /// Formats the rate: a fraction of a peak has digits behind its point.
    fn rate(&self) -> String {
        let digits = if self.operations_per_s <= 1.0 { 4 } else { 0 };
        format!("{:.digits$}", self.operations_per_s)
    }

    fn for_people(&self) -> String {
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "limit".to_owned(), |ratio| format!("{ratio:.2} x"));
        let line = format!(
            "{:<44} {:>11.3} {:>11.3} {:>12} {:>9} {:>9} {line:>8}  {}",
            self.label.replace(',', " "),
            self.p50_us,
            self.p99_us,
            self.rate(),
            times(self.ratio),
            times(self.rate_ratio),
            self.notes.join("; "),
            line = self.more.line_us.map_or_else(String::new, |took| format!("{took:.2}")),
        );
        line.trim_end().to_owned()
    }
}

/// Output of rows. Each row goes immediately to standard output and into the file; all rows go at the end as a table to
/// standard error. Standard output holds only rows.
pub(crate) struct Report {
    file: Option<(PathBuf, File)>,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn start(csv: Option<&Path>) -> io::Result<Report> {
        let file = csv.map(|path| File::create(path).map(|file| (path.to_path_buf(), file))).transpose()?;
        let mut report = Report { file, rows: Vec::new() };
        report.line(&header())?;
        Ok(report)
    }

    pub(crate) fn row(&mut self, row: Row) -> io::Result<()> {
        self.line(&row.csv())?;
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        let mut out = io::stderr().lock();
        let [p50, p99, rate, line] = ["p50 µs", "p99 µs", "ops/s", "line µs"];
        writeln!(out, "\n{:<44} {p50:>11} {p99:>11} {rate:>12} {:>9} {:>9} {line:>8}", "figure", "of p50", "of rate")?;
        for row in &self.rows {
            writeln!(out, "{}", row.for_people())?;
        }
        if let Some((path, _)) = &self.file {
            writeln!(out, "rows are in {}", path.display())?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{line}")?;
        match &mut self.file {
            Some((_, file)) => writeln!(file, "{line}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, programs that read the rows would assign wrong columns.
    #[test]
    fn row_has_the_columns_of_the_header() {
        let row = Row {
            label: "raw,pingpong,8,shm/spin/t1,1".into(),
            p50_us: 0.3456,
            p99_us: 1.5,
            operations_per_s: 2_500_000.4,
            p999_us: 2.0,
            ratio: None,
            rate_ratio: None,
            more: ExtraColumns { fair: Some(0.5), ..ExtraColumns::default() },
            notes: vec!["one, two".into(), "three".into()],
        };
        let contract = "raw,pingpong,8,shm/spin/t1,1,0.3456,1.5000,2500000";
        assert_eq!(row.csv(), format!("{contract},2.0000,,,0.5000,,,,,,,,,,one; two; three"));
        assert!(header().starts_with(CONTRACT));
        assert_eq!(row.csv().split(',').count(), header().split(',').count());
    }

    // If this failed, the file would be incomplete, or differ from standard output.
    #[test]
    fn csv_file_holds_header_and_rows() {
        let path = std::env::temp_dir().join(format!("ddss-report-{}.csv", std::process::id()));
        let mut report = Report::start(Some(&path)).unwrap();
        let row = Row {
            label: "ddss,null,8,shm/rcq/t1,1".into(),
            p50_us: 1.0,
            p99_us: 2.0,
            operations_per_s: 3.0,
            p999_us: 2.5,
            ratio: Some(1.1),
            rate_ratio: Some(0.9),
            more: ExtraColumns::default(),
            notes: vec!["a note".into()],
        };
        report.row(row).unwrap();
        drop(report);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let row = "ddss,null,8,shm/rcq/t1,1,1.0000,2.0000,3,2.5000,1.1000,0.9000,,,,,,,,,,,a note";
        assert_eq!(text, format!("{}\n{row}\n", header()));
    }
}
