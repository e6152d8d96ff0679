//! Reader for the rows of any bench.
//!
//! The eight columns of the contract come first. Further columns are found by name in the header, and unknown ones are
//! accepted, because benches grow.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::harness::CONTRACT;

/// Maximum length of a file of rows.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Bench of the row: the name of its file.
    pub bench: String,
    /// `ddss`, `raw`, or another measured system.
    pub name: String,
    /// Operation.
    pub op: String,
    /// Bytes.
    pub size: u64,
    /// PATH/WAIT/tCLIENTS as it was written.
    pub mode: String,
    /// Operations in flight at the same time.
    pub outstanding: u64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// The numbers of all further columns that hold one.
    pub more: BTreeMap<String, f64>,
    /// Notes.
    pub notes: String,
}

impl Entry {
    /// PATH of the mode.
    pub fn path(&self) -> &str {
        self.mode.split('/').next().unwrap_or_default()
    }

    /// WAIT of the mode.
    pub fn wait(&self) -> &str {
        self.mode.split('/').nth(1).unwrap_or_default()
    }

    /// CLIENTS of the mode, 1 by default.
    pub fn clients(&self) -> u64 {
        let word = self.mode.split('/').nth(2).and_then(|word| word.strip_prefix('t'));
        word.and_then(|count| count.parse().ok()).unwrap_or(1)
    }

    /// A further column, if it has a number.
    pub fn more(&self, column: &str) -> Option<f64> {
        self.more.get(column).copied()
    }
}

/// Reason why a file cannot be read as rows.
#[derive(Debug)]
pub enum RowError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// A line that does not match its header: bench, line (counted from 1), and reason.
    Line(String, usize, String),
}

impl std::fmt::Display for RowError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RowError::Unreadable(path, error) => write!(formatter, "reading {}: {error}", path.display()),
            RowError::Line(bench, line, what) => write!(formatter, "rows of {bench}, line {line}: {what}"),
        }
    }
}

impl std::error::Error for RowError {}

/// All rows of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows(pub Vec<Entry>);

impl Rows {
    /// Reads the rows of one bench. The last one of two equal rows counts.
    pub fn parse(bench: &str, text: &str) -> Result<Rows, RowError> {
        let wrong = |line: usize, what: &str| RowError::Line(bench.to_owned(), line + 1, what.to_owned());
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (at, header) = lines.next().ok_or_else(|| wrong(0, "there is no header"))?;
        let header: Vec<&str> = header.trim().split(',').collect();
        let contract: Vec<&str> = CONTRACT.split(',').collect();
        if !header.starts_with(&contract) {
            return Err(wrong(at, &format!("the header does not begin with {CONTRACT}")));
        }
        let mut rows = Rows::default();
        for (at, line) in lines {
            let entry = entry(bench, &header, contract.len(), line).map_err(|what| wrong(at, &what))?;
            rows.take(entry);
        }
        Ok(rows)
    }

    /// Reads every `.csv` of a directory, in the order of their names.
    pub fn read(folder: &Path) -> Result<Rows, RowError> {
        let unreadable = |path: &Path| {
            let path = path.to_path_buf();
            |error| RowError::Unreadable(path, error)
        };
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .map_err(unreadable(folder))?
            .filter_map(|file| file.ok().map(|file| file.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
            // That file contains all the others.
            .filter(|path| path.file_stem().is_some_and(|name| name != "results"))
            .collect();
        files.sort();
        let mut rows = Rows::default();
        for path in files {
            let bytes = fs::metadata(&path).map_err(unreadable(&path))?.len();
            if bytes > FILE_BYTES_MAX {
                return Err(RowError::Unreadable(path, io::Error::other("it is too long")));
            }
            let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
            let bench = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            rows.add(Rows::parse(&bench, &text)?);
        }
        Ok(rows)
    }

    /// Merges `others`; an equal row of `others` replaces the old one.
    pub fn add(&mut self, others: Rows) {
        others.0.into_iter().for_each(|entry| self.take(entry));
    }

    fn take(&mut self, entry: Entry) {
        let same = |other: &&mut Entry| {
            (&other.bench, &other.name, &other.op, &other.mode) == (&entry.bench, &entry.name, &entry.op, &entry.mode)
                && (other.size, other.outstanding) == (entry.size, entry.outstanding)
        };
        match self.0.iter_mut().find(same) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }

    /// The rows of one bench.
    pub fn of<'a>(&'a self, bench: &str) -> impl Iterator<Item = &'a Entry> + Clone + use<'a> {
        let bench = bench.to_owned();
        self.0.iter().filter(move |entry| entry.bench == bench)
    }

    /// Returns the row of a bench with these columns and one operation in flight.
    pub fn one(&self, bench: &str, name: &str, op: &str, size: u64, mode: &str) -> Option<&Entry> {
        let is_it = |entry: &&Entry| {
            (&*entry.name, &*entry.op, entry.size, &*entry.mode) == (name, op, size, mode) && entry.outstanding == 1
        };
        self.of(bench).find(is_it)
    }
}

fn entry(bench: &str, header: &[&str], contract: usize, line: &str) -> Result<Entry, String> {
    let words: Vec<&str> = line.trim_end_matches('\r').splitn(header.len(), ',').collect();
    if words.len() < contract {
        return Err(format!("{} columns are fewer than {contract}", words.len()));
    }
    let number = |index: usize| {
        let number = words[index].trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| format!("{} of {:?} is no number from 0 on", header[index], words[index]))
    };
    let whole = |index: usize| {
        let whole = words[index].trim().parse::<u64>();
        whole.map_err(|_| format!("{} of {:?} is no whole number", header[index], words[index]))
    };
    let behind = || header.iter().zip(&words).skip(contract);
    let finite = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    Ok(Entry {
        bench: bench.to_owned(),
        name: words[0].trim().to_owned(),
        op: words[1].trim().to_owned(),
        size: whole(2)?,
        mode: words[3].trim().to_owned(),
        outstanding: whole(4)?,
        p50_us: number(5)?,
        p99_us: number(6)?,
        ops_per_s: number(7)?,
        more: behind().filter_map(|(name, text)| Some(((*name).to_owned(), finite(text)?))).collect(),
        notes: behind().find(|(name, _)| **name == "notes").map_or_else(String::new, |(_, text)| (*text).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, rows of a bench with more or fewer columns would be assigned wrong columns.
    #[test]
    fn columns_are_found_by_name_and_unknown_columns_are_accepted() {
        let text = format!(
            "{CONTRACT},zebra,fair,notes\nddss,null,8,shm/rcq/t4,1,0.5,1.5,2000000,9,0.75,a, b\n\nraw,x,1,near,2,0,0,0\n"
        );
        let rows = Rows::parse("ipc", &text).unwrap();
        let [first, second] = &rows.0[..] else { panic!("{rows:?}") };
        assert_eq!((first.path(), first.wait(), first.clients()), ("shm", "rcq", 4));
        assert_eq!((first.more("fair"), first.more("zebra"), first.more("stripe")), (Some(0.75), Some(9.0), None));
        assert_eq!(first.notes, "a, b");
        assert_eq!((second.path(), second.wait(), second.clients(), second.outstanding), ("near", "", 1, 2));
        assert!(rows.one("ipc", "ddss", "null", 8, "shm/rcq/t4").is_some());
        assert!(rows.one("get", "ddss", "null", 8, "shm/rcq/t4").is_none());
    }

    // If this failed, a repeated row would be drawn twice, or the old one would win.
    #[test]
    fn last_of_two_equal_rows_wins() {
        let text = format!("{CONTRACT}\nddss,null,8,a/b/t1,1,1,1,1\nddss,null,8,a/b/t1,1,2,2,2\n");
        let rows = Rows::parse("ipc", &text).unwrap();
        assert_eq!((rows.0.len(), rows.0[0].p50_us), (1, 2.0));
    }

    // If this failed, a truncated or foreign file would become a figure.
    #[test]
    fn malformed_row_is_reported_with_its_line() {
        let good = format!("{CONTRACT}\n");
        let said = |text: &str| Rows::parse("ipc", text).unwrap_err().to_string();
        assert!(said("").contains("no header"));
        assert!(said("a,b\n1,2\n").contains("line 1"));
        assert!(said(&format!("{good}ddss,null,8,m,1,1.0")).contains("line 2: 6 columns"));
        for broken in
            ["ddss,null,-8,m,1,1,1,1", "ddss,null,8,m,1,NaN,1,1", "ddss,null,8,m,x,1,1,1", "ddss,null,8,m,1,1,-1,1"]
        {
            assert!(said(&format!("{good}{broken}\n")).contains("line 2"), "{broken}");
        }
    }
}
